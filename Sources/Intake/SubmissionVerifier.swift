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
