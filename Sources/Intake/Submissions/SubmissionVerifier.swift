import AppStore
import LedgerStorage
import Subscriptions

/// Verifies what was submitted, whichever kind it is: receipts by asking Apple, signed data by its
/// signatures alone.
struct SubmissionVerifier: Sendable {
  let receipts: ReceiptVerifier
  let signedData: SignedDataVerifier

  /// What is to be done with a submission now, and each exchange with Apple that says so.
  struct Verification: Sendable {
    var verdict: Verdict
    var exchanges: [SubmissionExchange] = []
  }

  /// What is to be done with a submission now.
  enum Verdict: Sendable {
    case verified(VerifiedEvidence)
    /// It proves nothing, for good.
    case rejected(SubmissionProblem)
    /// Nothing is known yet: ask Apple again later.
    case retry(ReceiptRetry)
    /// Our configuration keeps Apple from answering.
    case misconfigured(ReceiptMisconfiguration)
  }

  /// What a verification can take.
  func longestVerification(of payload: SubmissionPayload) -> Duration {
    switch payload {
    case .receipt: receipts.longestVerification
    // Milliseconds, which the time for storing covers.
    case .signedData: .zero
    }
  }

  /// Verifies what was submitted; never throws, for every outcome is a verdict.
  func verify(_ payload: SubmissionPayload, of submission: Submission) async -> Verification {
    switch payload {
    case .receipt(let data):
      let verification = await receipts.verify(data, bundleID: submission.bundleID)
      return Verification(
        verdict: Verdict(verification.verdict),
        exchanges: verification.exchanges.map(SubmissionExchange.init))
    case .signedData(let transactions, let renewalInfo):
      return Verification(
        verdict: await verify(transactions, renewalInfo, bundleID: submission.bundleID))
    }
  }

  /// Verifies each part; the first that is refused refuses all of it.
  private func verify(
    _ transactions: [String], _ renewalInfo: [String], bundleID: String?
  ) async -> Verdict {
    var submitted = SubmittedSignedData(namedBundleID: bundleID)
    for (index, jws) in transactions.enumerated() {
      switch await signedData.transaction(jws) {
      case .success(let transaction): submitted.transactions.append(transaction)
      case .failure(let refusal):
        return .rejected(SubmissionProblem(refusal, of: "signed_transactions[\(index)]"))
      }
    }
    for (index, jws) in renewalInfo.enumerated() {
      switch await signedData.renewalInfo(jws) {
      case .success(let info): submitted.renewalInfo.append(info)
      case .failure(let refusal):
        return .rejected(SubmissionProblem(refusal, of: "signed_renewal_info[\(index)]"))
      }
    }
    return submitted.verdict
  }
}

extension SubmissionVerifier.Verdict {
  fileprivate init(_ verdict: ReceiptVerdict) {
    self =
      switch verdict {
      case .verified(let receipt): .verified(VerifiedEvidence(receipt))
      case .rejected(let rejection): .rejected(SubmissionProblem(rejection))
      case .retry(let retry): .retry(retry)
      case .misconfigured(let fault): .misconfigured(fault)
      }
  }
}

extension SubmissionProblem {
  init(_ rejection: ReceiptRejection) {
    self.init(
      code: rejection.code.rawValue, detail: rejection.reason,
      appleStatus: rejection.appleStatus)
  }

  /// Why one part of what was submitted is refused; `part` is its place in the request.
  fileprivate init(_ refusal: SignedDataRefusal, of part: String) {
    self.init(
      code: refusal.reason == .wrongBundleID ? "wrong_bundle_id" : "invalid_signature",
      detail: "`\(part)`: \(refusal)")
  }
}

extension SubmissionExchange {
  init(_ exchange: Exchange) {
    self.init(
      endpoint: exchange.url, askedAt: exchange.startedAt, duration: exchange.duration,
      httpStatus: exchange.httpStatus, answer: exchange.response.map(\.body),
      fault: exchange.fault)
  }
}

/// The signed data of one submission: each part verified by itself, and now judged together.
struct SubmittedSignedData: Sendable {
  /// The app that the sender named.
  let namedBundleID: String?
  /// In the order in which they were sent.
  var transactions: [SignedTransaction] = []
  var renewalInfo: [SignedRenewalInfo] = []

  /// Whether the parts are of one app and one environment, and each renewal info of a line that a
  /// transaction beside it vouches for: it names no app itself.
  var verdict: SubmissionVerifier.Verdict {
    if let namedBundleID,
      let (index, other) = transactions.enumerated().first(where: {
        $0.element.bundleID != namedBundleID
      })
    {
      return .rejected(
        SubmissionProblem(
          code: "wrong_bundle_id",
          detail: "`signed_transactions[\(index)]`: The transaction belongs to \(other.bundleID), "
            + "not to \(namedBundleID)."))
    }
    let environments = Set(transactions.map(\.environment) + renewalInfo.map(\.environment))
    guard let environment = environments.first, environments.count == 1 else {
      return .rejected(
        SubmissionProblem(
          code: "receipt_rejected",
          detail: "The signed data is of two environments, production and sandbox: submit what is "
            + "of one, then what is of the other."))
    }
    let lines = Set(transactions.map(\.record.key.line))
    if let stranger = renewalInfo.firstIndex(where: { !lines.contains($0.line) }) {
      return .rejected(
        SubmissionProblem(
          code: "invalid_signature",
          detail: "`signed_renewal_info[\(stranger)]`: It has the original transaction id of no "
            + "signed transaction beside it, and without one it says nothing of an app."))
    }
    return .verified(evidence(of: environment))
  }

  /// The app of all of them; nil where they are of several.
  private var onlyBundleID: String? {
    let ids = Set(transactions.map(\.bundleID))
    return ids.count == 1 ? ids.first : nil
  }

  /// The same for the same parts, in whatever order and however often they were sent.
  private func evidence(of environment: Environment) -> VerifiedEvidence {
    let byDate = transactions.sorted {
      ($0.record.chargedAt, $0.record.key, $0.record.asOf)
        < ($1.record.chargedAt, $1.record.key, $1.record.asOf)
    }
    // Of a transaction that was signed more than once, the latest word.
    let records = Dictionary(
      byDate.map { ($0.record.key, $0.record) }, uniquingKeysWith: { $0.asOf > $1.asOf ? $0 : $1 })
    let latest = Dictionary(grouping: records.values, by: \.key.line).mapValues { records in
      records.max { ($0.chargedAt, $0.key) < ($1.chargedAt, $1.key) }
    }
    let statuses = renewalInfo.map { info in
      (line: info.line, status: info.status(latest: latest[info.line] ?? nil))
    }.sorted { ($0.line, $0.status.asOf) < ($1.line, $1.status.asOf) }
    var seen: Set<Evidence> = []
    let evidence =
      byDate.flatMap(\.evidence) + statuses.map { .renewalStatus($0.status, line: $0.line) }
    return VerifiedEvidence(
      source: .signedTransaction, environment: environment,
      evidence: evidence.filter { seen.insert($0).inserted }, bundleID: onlyBundleID,
      records: Array(records.values),
      selection: .submitted, canGrow: false, signedAt: records.values.map(\.asOf).max())
  }
}

/// What a verified submission proves, whichever way it was verified.
struct VerifiedEvidence: Sendable {
  /// As what it came.
  var source: EntrySource.Kind
  var environment: Environment
  var evidence: [Evidence]
  /// The app that it is about; nil where none is named, or several are.
  var bundleID: String?
  /// The transactions in it, one record for each.
  var records: [TransactionRecord]
  /// What is selected where no transaction is named and no restore was asked for.
  var selection: ClaimSelection
  /// What Apple listed and nobody could read.
  var unreadable: [UnreadableRecord] = []
  /// Whether verifying the same again can prove more: Apple's answers lag.
  var canGrow: Bool
  /// How far Apple's clock is ahead of ours, at least.
  var clockSkew: Duration = .zero
  /// When Apple signed the latest of what was submitted; nil: nothing in it is signed.
  var signedAt: Timestamp?

  /// When a submission was received, by Apple's clock where that is later than ours.
  ///
  /// What was signed was signed before it was received.
  private func receivedAt(_ submission: Submission) -> Timestamp {
    let receivedAt = submission.receivedAt + clockSkew
    return max(receivedAt, signedAt ?? receivedAt)
  }

  /// A transaction that a submission names.
  struct NamedTransaction: Sendable {
    /// The id under which it is here.
    var listed: TransactionID
    /// The transaction itself, where it is only here under another id of its charge.
    var alias: TransactionKey?
  }

  /// Finds the transaction that a submission names, under its id or under another id that the
  /// ledger knows as the same charge; nil if none is named, or it is not here.
  func transaction(namedBy submission: Submission, in ledger: Ledger) async throws
    -> NamedTransaction?
  {
    guard let id = submission.transactionID else { return nil }
    if records.contains(where: { $0.key.transactionID == id }) {
      return NamedTransaction(listed: id)
    }
    for line in try await ledger.lines(of: id) where line.environment == environment {
      guard let family = try await ledger.family(of: line) else { continue }
      for key in family.line.history.transactions.map(\.key) where key.transactionID == id {
        let names = family.charge(of: key)?.charge.transactions ?? []
        if let record = records.first(where: { names.contains($0.key) }) {
          return NamedTransaction(listed: record.key.transactionID, alias: key)
        }
      }
    }
    return nil
  }

  /// The transactions that a submission claims.
  ///
  /// - Parameters:
  ///   - submission: The submission.
  ///   - named: The transaction that it names; nil if it names none, or is decided as if it did.
  ///   - catalogue: The types of products that Apple's receipts don't report.
  /// - Returns: The transactions by purchase date.
  func selected(
    by submission: Submission, named: NamedTransaction?, catalogue: Catalogue
  ) -> [TransactionKey] {
    let selection: ClaimSelection =
      if let named {
        .transaction(named.listed)
      } else if submission.isRestore { .restore } else { selection }
    let selected = selection.select(
      from: records, receivedAt: receivedAt(submission), catalogue: catalogue
    ).map(\.key)
    guard let alias = named?.alias, !selected.isEmpty else { return selected }
    return [alias]
  }

  /// Whether something that the submission could claim is left out because it was purchased later.
  ///
  /// - Parameters:
  ///   - submission: The submission.
  ///   - named: The only transaction that it can claim; nil: there is none such.
  /// - Returns: Whether there is such a purchase.
  func leavesOutLaterPurchases(of submission: Submission, named: NamedTransaction?) -> Bool {
    let receivedAt = receivedAt(submission)
    return records.contains { record in
      ClaimSelection.isPurchased(record, after: receivedAt)
        && named.map { $0.listed == record.key.transactionID } ?? true
    }
  }

  /// Whether a purchase that is newer than everything here can't be read.
  var hidesPurchase: Bool {
    let newest = records.map(\.purchaseDate).max()
    return unreadable.contains { $0.hidesPurchase(after: newest) }
  }
}

extension VerifiedEvidence {
  /// What Apple answered about a receipt.
  init(_ receipt: VerifiedReceipt) {
    self.init(
      source: .receipt, environment: receipt.environment, evidence: receipt.evidence,
      bundleID: receipt.bundleID, records: receipt.records, selection: .latest,
      unreadable: receipt.unreadable, canGrow: true, clockSkew: receipt.clockSkew)
  }
}
