import AppStore
import JSONText
import LedgerStorage
import Subscriptions

/// The evidence of a submission, or why it is permanently rejected.
typealias SubmissionVerdict = Result<VerifiedEvidence, SubmissionProblem>

extension SignedDataVerifier {
  /// Verifies each part of a submission; the first refused part rejects it.
  func verify(
    _ transactions: [String], _ renewalInfo: [String], bundleID: String?
  ) async -> SubmissionVerdict {
    var submitted = SubmittedSignedData(namedBundleID: bundleID)
    for (index, jws) in transactions.enumerated() {
      switch await transaction(jws) {
      case .success(let transaction): submitted.transactions.append(transaction)
      case .failure(let refusal):
        return .failure(SubmissionProblem(refusal, of: "signed_transactions[\(index)]"))
      }
    }
    for (index, jws) in renewalInfo.enumerated() {
      switch await self.renewalInfo(jws) {
      case .success(let info): submitted.renewalInfo.append(info)
      case .failure(let refusal):
        return .failure(SubmissionProblem(refusal, of: "signed_renewal_info[\(index)]"))
      }
    }
    return submitted.verdict
  }
}

extension SubmissionProblem {
  /// The identifier of PKCS#7 signed data, 1.2.840.113549.1.7.2, in DER.
  private static let signedData: [UInt8] = [6, 9, 42, 134, 72, 134, 247, 13, 1, 7, 2]

  /// The problem of text that does not begin as a receipt or is cut off; Apple verifies the rest.
  init?(notReceipt text: String) {
    let head = Base64.decode(standard: Array(text.utf8.prefix(24))) ?? []
    if head.first(where: { $0 > UInt8(ascii: " ") }) == UInt8(ascii: "{") { return nil }
    if head.first == 0x30, let start = head.dropFirst(2).firstRange(of: Self.signedData)?.lowerBound
    {
      // The first byte of the length, or the bytes after it; zero for BER's indefinite length.
      let length = head[2..<start].reduce(head[1] < 0x80 ? Int(head[1]) : 0) { $0 << 8 | Int($1) }
      let digits = text.utf8.prefix { $0 != UInt8(ascii: "=") }.count
      if start + length <= digits * 3 / 4 { return nil }
    }
    self.init(
      code: ReceiptRejection.Code.receiptRejected.rawValue,
      detail: "The receipt is neither PKCS#7 nor an iOS 6 property list, or was cut off.")
  }

  init(_ rejection: ReceiptRejection) {
    self.init(
      code: rejection.code.rawValue, detail: rejection.reason, appleStatus: rejection.appleStatus)
  }

  fileprivate init(_ refusal: SignedDataError, of part: String) {
    self.init(
      code: refusal.reason == .wrongBundleID ? "wrong_bundle_id" : "invalid_signature",
      detail: "`\(part)`: \(refusal)")
  }
}

extension SubmissionExchange {
  init(_ exchange: Exchange) {
    self.init(
      endpoint: exchange.url, askedAt: exchange.startedAt, duration: exchange.duration,
      httpStatus: exchange.httpStatus, answer: exchange.response.map(\.body), fault: exchange.fault)
  }
}

/// The signed data of one submission, whose parts are verified and now have to fit together.
struct SubmittedSignedData: Sendable {
  /// The app that the request named.
  let namedBundleID: String?
  /// In the order of the request.
  var transactions: [SignedTransaction] = []
  var renewalInfo: [SignedRenewalInfo] = []

  /// Requires one environment, the named app, and for each renewal info a transaction with the same
  /// original transaction ID, because a renewal info has no bundle ID.
  var verdict: SubmissionVerdict {
    if let namedBundleID,
      let (index, other) = transactions.enumerated().first(where: {
        $0.element.bundleID != namedBundleID
      })
    {
      return .failure(
        SubmissionProblem(
          code: "wrong_bundle_id",
          detail: "`signed_transactions[\(index)]`: The transaction belongs to \(other.bundleID), "
            + "not to \(namedBundleID)."))
    }
    let environments = Set(transactions.map(\.environment) + renewalInfo.map(\.environment))
    guard let environment = environments.first, environments.count == 1 else {
      return .failure(
        SubmissionProblem(
          code: "receipt_rejected",
          detail: "The signed data is from both environments: submit production and sandbox data "
            + "separately."))
    }
    let lines = Set(transactions.map(\.record.key.line))
    if let stranger = renewalInfo.firstIndex(where: { !lines.contains($0.line) }) {
      return .failure(
        SubmissionProblem(
          code: "invalid_signature",
          detail: "`signed_renewal_info[\(stranger)]`: No signed transaction in the request has "
            + "its original transaction ID, which is needed to know the app."))
    }
    return .success(evidence(of: environment))
  }

  /// The evidence, independent of the order and repetition of parts.
  private func evidence(of environment: Environment) -> VerifiedEvidence {
    let byDate = transactions.sorted {
      ($0.record.chargedAt, $0.record.key, $0.record.asOf)
        < ($1.record.chargedAt, $1.record.key, $1.record.asOf)
    }
    // The latest of several signatures of one transaction.
    let records = Dictionary(
      byDate.map { ($0.record.key, $0.record) }, uniquingKeysWith: { $0.asOf > $1.asOf ? $0 : $1 })
    let latest = Dictionary(grouping: records.values, by: \.key.line).mapValues { records in
      records.max { ($0.chargedAt, $0.key) < ($1.chargedAt, $1.key) }
    }
    let statuses = renewalInfo.map { info in
      (line: info.line, status: info.status(latest: latest[info.line] ?? nil))
    }.sorted { ($0.line, $0.status.asOf) < ($1.line, $1.status.asOf) }
    let bundleIDs = Set(transactions.map(\.bundleID))
    var seen: Set<Evidence> = []
    let evidence =
      byDate.flatMap(\.evidence) + statuses.map { .renewalStatus($0.status, line: $0.line) }
    return VerifiedEvidence(
      source: .signedTransaction, environment: environment,
      evidence: evidence.filter { seen.insert($0).inserted },
      bundleID: bundleIDs.count == 1 ? bundleIDs.first : nil, records: Array(records.values),
      selection: .submitted, canGrow: false, signedAt: records.values.map(\.asOf).max())
  }
}

struct VerifiedEvidence: Sendable {
  var source: EntrySource.Kind
  var environment: Environment
  var evidence: [Evidence]
  /// Nil if no app is named, or several are.
  var bundleID: String?
  var records: [TransactionRecord]
  /// The selection without a named transaction or a restore.
  var selection: ClaimSelection
  var unreadable: [UnreadableRecord] = []
  /// Whether verifying again can reveal more, because Apple's answers lag.
  var canGrow: Bool
  /// The least time by which Apple's clock is ahead of ours.
  var clockSkew: Duration = .zero
  /// The latest signing date; nil for a receipt.
  var signedAt: Timestamp?

  /// The time of receipt by Apple's clock if that is ahead, and not before the data was signed.
  private func receivedAt(_ submission: Submission) -> Timestamp {
    let receivedAt = submission.receivedAt + clockSkew
    return max(receivedAt, signedAt ?? receivedAt)
  }

  struct NamedTransaction: Sendable {
    /// The ID under which it is listed in the evidence.
    var listed: TransactionID
    /// The named transaction, if the evidence lists another ID of its charge.
    var alias: TransactionKey?
  }

  /// The transaction that a submission names, by its ID or another of its charge in the ledger.
  func transaction(namedBy submission: Submission, in ledger: Ledger) async throws
    -> NamedTransaction?
  {
    guard let id = submission.transactionID else { return nil }
    if records.contains(where: { $0.key.transactionID == id }) {
      return NamedTransaction(listed: id)
    }
    for line in try await ledger.ownership.lines(of: id) where line.environment == environment {
      guard let original = try await ledger.ownership.original(of: line) else { continue }
      for key in original.line.history.transactions.map(\.key) where key.transactionID == id {
        let names = original.charge(of: key)?.charge.transactions ?? []
        if let record = records.first(where: { names.contains($0.key) }) {
          return NamedTransaction(listed: record.key.transactionID, alias: key)
        }
      }
    }
    return nil
  }

  /// The claimed transactions by purchase date; the catalogue has the types that receipts lack.
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

  /// Whether a claim leaves out a transaction because it was purchased later.
  func leavesOutLaterPurchases(of submission: Submission, named: NamedTransaction?) -> Bool {
    let receivedAt = receivedAt(submission)
    return records.contains { record in
      ClaimSelection.isPurchased(record, after: receivedAt)
        && named.map { $0.listed == record.key.transactionID } ?? true
    }
  }

  /// Whether a purchase newer than all readable ones is unreadable.
  var hidesPurchase: Bool {
    let newest = records.map(\.purchaseDate).max()
    return unreadable.contains { $0.hidesPurchase(after: newest) }
  }
}

extension VerifiedEvidence {
  init(_ receipt: VerifiedReceipt) {
    self.init(
      source: .receipt, environment: receipt.environment, evidence: receipt.evidence,
      bundleID: receipt.bundleID, records: receipt.records, selection: .latest,
      unreadable: receipt.unreadable, canGrow: true, clockSkew: receipt.clockSkew)
  }
}
