package import Foundation
import Postgres
package import Subscriptions

package struct WriteBackStore: LedgerStore {
  package let core: LedgerCore

  // MARK: Scheduling

  /// The jobs that write the owners of original transactions whose binding a recording moves.
  ///
  /// None for one that begins with Apple's token for its owner.
  func ownershipWriteBacks(of recording: Recording, at now: Timestamp) -> [SQL] {
    guard writeBackKinds.contains(.ownership) else { return [] }
    return recording.distinctOriginals.compactMap { original in
      guard let bound = original.newlyBound, !bound.charge.isConsumable,
        !original.isFamilyShared(bound.charge)
      else { return nil }
      let isAsApplePuts =
        original.before.line.history.transactions.isEmpty
        && original.line.history.holder(of: bound.charge.appAccountToken) == bound.account
      guard !isAsApplePuts else { return nil }
      return Job.schedule(
        .setAppAccountToken(bound.charge.id.line), runAt: now, priority: Self.ownershipPriority,
        at: now)
    }
  }

  /// Below consumption information, which has a deadline.
  private static let ownershipPriority = 1

  /// The job that answers a notification's question about a purchase.
  func consumptionWriteBacks(of verified: NotificationStore.VerifiedNotification, at now: Timestamp)
    -> [SQL]
  {
    guard writeBackKinds.contains(.consumption), let line = verified.asksAbout else { return [] }
    return [
      Job.insert(
        .sendConsumption(line.environment, notificationID: verified.id), runAt: now, at: now)
    ]
  }

  // MARK: Sending

  package struct PendingOwnership: Sendable {
    package let token: UUID
    package let isErased: Bool
    package let isMerged: Bool
    /// The app, if known.
    package let bundleID: String?
    /// The owner of the token that Apple accepted last.
    package let lastSent: (account: AccountKey, at: Timestamp)?
  }

  /// Reads the data for writing an owner to Apple; nil for an unknown account.
  package func pendingOwnership(of line: OriginalTransactionKey, to owner: AccountKey) async throws
    -> PendingOwnership?
  {
    let (account, lastSent, target) = try await database.read(
      Query(
        """
        SELECT app_account_token, erased_at IS NOT NULL, merged_into_key IS NOT NULL
        FROM tenure.account_by_key WHERE account_key = \(owner)
        """
      ) { try $0.decodeFirst(UUID.self, Bool.self, Bool.self) },
      Query(
        """
        SELECT account_key, sent_at FROM tenure.app_store_write_back
        WHERE \(line.condition) AND kind = 'ownership' AND outcome = 'accepted'
        ORDER BY write_back_id DESC LIMIT 1
        """
      ) { try $0.decodeFirst(AccountKey.self, Timestamp.self) }, PollTarget.query([line]))
    guard let (token, isErased, isMerged) = account else { return nil }
    return PendingOwnership(
      token: token, isErased: isErased, isMerged: isMerged, bundleID: target.bundleID,
      lastSent: lastSent.map { (account: $0, at: $1) })
  }

  package struct ConsumptionQuestion: Sendable {
    package let line: OriginalTransactionKey
    package let request: WriteBack.Request
    package let bundleID: String?
    /// The signature's date, or the date of receipt if it has none.
    package let askedAt: Timestamp
  }

  package func consumptionQuestion(_ notificationID: String) async throws -> ConsumptionQuestion? {
    try await database.query(
      """
      SELECT environment, original_transaction_id, transaction_id, bundle_id,
        coalesce(signed_at, received_at)
      FROM tenure.notification
      WHERE notification_id = \(notificationID) AND environment IS NOT NULL
        AND original_transaction_id IS NOT NULL AND transaction_id IS NOT NULL
      """
    ).decodeFirst(
      OriginalTransactionKey.self, TransactionID.self, String?.self, Timestamp.self
    ).map { line, transaction, bundleID, askedAt in
      ConsumptionQuestion(
        line: line,
        request: WriteBack.Request(transactionID: transaction, notificationID: notificationID),
        bundleID: bundleID, askedAt: askedAt)
    }
  }

  package func record(_ writeBack: WriteBack, ending job: Job) async throws {
    _ = try await database.withTransaction { transaction in
      try await transaction.commit(with: [writeBack.insert] + job.completion)
    }
  }

  // MARK: Reading

  package func writeBacks(of lines: [OriginalTransactionKey], limit: Int) async throws
    -> [WriteBack]
  {
    let results = try await database.batch(
      lines.map { line in
        """
        SELECT \(WriteBack.columns) FROM tenure.app_store_write_back
        WHERE \(line.condition)
        ORDER BY write_back_id DESC LIMIT \(limit)
        """
      })
    return try results.flatMap(WriteBack.rows)
      .sorted { ($0.writeBack.sentAt, $0.id) > ($1.writeBack.sentAt, $1.id) }.map(\.writeBack)
  }

  package func writeBacks(of account: AccountKey, after last: Int64?, limit: Int) async throws
    -> [(id: Int64, writeBack: WriteBack)]
  {
    try WriteBack.rows(
      from: await database.query(
        """
        SELECT \(WriteBack.columns) FROM tenure.app_store_write_back
        WHERE account_key = \(account) AND write_back_id > \(last ?? 0)
        ORDER BY write_back_id LIMIT \(limit)
        """))
  }
}

extension RecordedOriginalTransaction {
  /// The account to which the recording moved the binding, and the charge; nil: it did not.
  fileprivate var newlyBound: (account: AccountKey, charge: Charge)? {
    guard !items.isEmpty, let charge = rule.charges.latestCharge,
      let account = line.decisions[charge.id]?.decision.owner
    else { return nil }
    let last = before.rule.charges.latestCharge.flatMap {
      before.line.decisions[$0.id]?.decision.owner
    }
    return account == last ? nil : (account, charge)
  }

  package func isFamilyShared(_ charge: Charge) -> Bool {
    line.history[charge.id]?.ownershipType == .familyShared
  }
}

extension Charge {
  fileprivate var isConsumable: Bool { productType == .consumable }
}

package struct WriteBack: Hashable, Sendable {
  /// Each kind has a separate setting and is off by default.
  package enum Kind: String, CaseIterable, Sendable {
    /// The owner's `appAccountToken` replaces Apple's.
    case ownership
    /// The use of a purchase for which a customer requests a refund.
    case consumption
  }

  package enum Outcome: Hashable, Sendable {
    case accepted
    /// Permanently refused by Apple.
    case refused(httpStatus: Int?, code: Int64?)
    /// Nothing was sent.
    case skipped(Reason)

    /// The name in the table and in metrics.
    package var name: String {
      switch self {
      case .accepted: "accepted"
      case .refused: "refused"
      case .skipped: "skipped"
      }
    }

    package var reason: Reason? {
      if case .skipped(let reason) = self { reason } else { nil }
    }

    package var refusal: (httpStatus: Int?, code: Int64?) {
      if case .refused(let httpStatus, let code) = self { (httpStatus, code) } else { (nil, nil) }
    }
  }

  package enum Reason: String, Error, CaseIterable {
    /// The setting was turned off after the job was enqueued.
    case turnedOff = "turned_off"
    case unowned
    case accountErased = "account_erased"
    /// The merge moves the binding once more.
    case accountMerged = "account_merged"
    /// Apple accepts tokens of the purchaser only.
    case familyShared = "family_shared"
    /// There are no renewals that could inherit a token.
    case consumable
    /// The app is unknown or not served.
    case unknownApp = "unknown_app"
    case noConsent = "no_consent"
    /// Apple no longer waits for the answer.
    case tooLate = "too_late"
  }

  /// The purchase in question and the notification that asks; for consumption only.
  package struct Request: Hashable, Sendable {
    package var transactionID: TransactionID
    package var notificationID: String
  }

  package var line: OriginalTransactionKey
  package var kind: Kind
  package var sentAt: Timestamp
  package var bundleID: String?
  package var request: Request?
  /// The owner of the token or of the purchase.
  package var account: AccountKey?
  package var outcome: Outcome
  /// Apple's `deliveryStatus` as sent.
  package var deliveryStatus: String?

  package init(
    _ kind: Kind, of line: OriginalTransactionKey, at sentAt: Timestamp, bundleID: String? = nil,
    request: Request? = nil, account: AccountKey? = nil, outcome: Outcome,
    deliveryStatus: String? = nil
  ) {
    self.line = line
    self.kind = kind
    self.sentAt = sentAt
    self.bundleID = bundleID
    self.request = request
    self.account = account
    self.outcome = outcome
    self.deliveryStatus = deliveryStatus
  }

  var insert: SQL {
    let refusal = outcome.refusal
    return """
      INSERT INTO tenure.app_store_write_back (environment, original_transaction_id, kind, sent_at,
        bundle_id, transaction_id, notification_id, account_key, outcome, reason, http_status,
        error_code, delivery_status)
      VALUES (\(line.environment), \(line.originalTransactionID), \(kind), \(sentAt), \(bundleID),
        \(request?.transactionID), \(request?.notificationID), \(account), \(outcome.name),
        \(outcome.reason), \(refusal.httpStatus), \(refusal.code), \(deliveryStatus))
      """
  }

  /// The columns that ``rows(from:)`` reads.
  static let columns: SQL = """
    write_back_id, environment, original_transaction_id, kind, sent_at, bundle_id, transaction_id,
    notification_id, account_key, outcome, reason, http_status, error_code, delivery_status
    """

  static func rows(from rows: Rows) throws -> [(id: Int64, writeBack: WriteBack)] {
    try rows.decode(
      Int64.self, OriginalTransactionKey.self, Kind.self, Timestamp.self, String?.self,
      TransactionID?.self, String?.self, AccountKey?.self, String.self, Reason?.self, Int?.self,
      Int64?.self, String?.self
    ).map {
      id, line, kind, sentAt, bundleID, transaction, notification, account, outcome,
      reason, httpStatus, code, deliveryStatus in
      var request: Request?
      if let transaction, let notification {
        request = Request(transactionID: transaction, notificationID: notification)
      }
      let came: Outcome =
        reason.map(Outcome.skipped)
        ?? (outcome == Outcome.accepted.name
          ? .accepted : .refused(httpStatus: httpStatus, code: code))
      return (
        id,
        WriteBack(
          kind, of: line, at: sentAt, bundleID: bundleID,
          request: request, account: account, outcome: came, deliveryStatus: deliveryStatus)
      )
    }
  }
}
