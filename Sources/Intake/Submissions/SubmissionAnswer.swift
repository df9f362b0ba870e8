import AppStore
package import Foundation
package import LedgerStorage
package import Subscriptions

/// Where a submission stands: what its sender is told.
package enum SubmissionAnswer: Sendable {
  case verified(Verified)
  /// Stored; Apple could not be reached, or answered something that will change, or it is just
  /// being decided.
  ///
  /// Without a next attempt it was given up, and the problem says so. The entitlements are what the
  /// account may use meanwhile; nil where nothing is ever granted provisionally.
  case pending(
    id: UUID, retryAt: Timestamp?, problem: SubmissionProblem?, entitlements: [Entitlement]?)
  case rejected(id: UUID, problem: SubmissionProblem)

  /// The answer to a submission that Apple vouches for.
  package struct Verified: Sendable {
    package var id: UUID
    package var environment: Environment
    /// The selected transactions.
    package var transactions: [ChargeReport]
    package var order: StoredOrder?
    package var warnings: [SubmissionWarning]
    /// What the account may use now.
    package var entitlements: [Entitlement]
  }
}

/// What a verified submission came to when it was decided, for lists of submissions.
package struct SubmissionFindings: Hashable, Sendable {
  /// How many transactions it claimed.
  package let claimed: Int
  /// How many of them its account came to own by it.
  package let newlyOwned: Int
  /// What its sender was warned of.
  package let warnings: [SubmissionWarning]

  /// Reads what was stored; nil before the decision, and for what only a newer version can read.
  package init?(of submission: SubmissionSummary) {
    guard let stored = submission.outcome,
      let outcome = try? JSONDecoder().decode(SubmissionOutcome.self, from: Data(stored.utf8))
    else { return nil }
    claimed = outcome.selected.count
    newlyOwned = outcome.newlyOwned.count
    warnings = outcome.warnings
  }
}

/// What an app server submits.
package struct SubmissionRequest: Sendable {
  package var accountID: String
  package var payload: SubmissionPayload
  package var transactionID: TransactionID?
  package var orderID: UUID?
  /// Whether the customer asked for everything that was ever bought.
  ///
  /// It changes nothing of signed data, each of which is selected anyway.
  package var isRestore: Bool
  package var bundleID: String?

  package init(
    accountID: String, payload: SubmissionPayload, transactionID: TransactionID? = nil,
    orderID: UUID? = nil, isRestore: Bool = false, bundleID: String? = nil
  ) {
    self.accountID = accountID
    self.payload = payload
    self.transactionID = transactionID
    self.orderID = orderID
    self.isRestore = isRestore
    self.bundleID = bundleID
  }

  /// The receipt in what was sent as one: Unity's apps send theirs in a wrapper, which Apple would
  /// refuse.
  package static func receiptData(in text: String) -> String { UnityReceipt.unwrapping(text) }
}
