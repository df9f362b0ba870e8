package import Foundation
import Postgres
package import Subscriptions

/// What Apple is told: who is told of it, and what came of it.
extension Ledger {
  // MARK: Planning

  /// The statements that have Apple told of the lines whose binding a recording moves, for the
  /// commit of the recording; none where nobody wants that.
  ///
  /// There is one job for each line, which does what is right when it runs. A line that Apple's own
  /// first word gives to the account whose token it carries needs none: there was nothing before
  /// that could differ.
  func ownershipTellings(of recording: Recording, at now: Timestamp) -> [SQL] {
    guard tellings.contains(.ownership) else { return [] }
    return recording.distinctFamilies.compactMap { family in
      guard let bound = family.newlyBound, !bound.charge.isConsumable,
        !family.isFamilyShared(bound.charge)
      else { return nil }
      let isAsApplePuts =
        family.before.line.history.transactions.isEmpty
        && family.line.history.holder(of: bound.charge.appAccountToken) == bound.account
      guard !isAsApplePuts else { return nil }
      return Job.schedule(
        .writeOwnership(bound.charge.id.line), runAt: now, priority: Self.ownershipPriority,
        at: now)
    }
  }

  /// What waits for twelve hours at most comes first.
  private static let ownershipPriority = 1

  /// The statements that have a notification answered which asks about a purchase.
  func consumptionTellings(of verified: VerifiedNotification, at now: Timestamp) -> [SQL] {
    guard tellings.contains(.consumption), let line = verified.asksAbout else { return [] }
    return [
      Job.insert(
        .answerConsumption(line.environment, notificationID: verified.id), runAt: now, at: now)
    ]
  }

  // MARK: Telling

  /// What is to be known for telling Apple to whom a line belongs.
  package struct OwnershipToTell: Sendable {
    package let token: UUID
    package let isErased: Bool
    package let isMerged: Bool
    /// The app, where anybody has said.
    package let bundleID: String?
    /// Whose token Apple took last from here, and when.
    package let lastTold: (account: AccountKey, at: Timestamp)?
  }

  /// Reads what Apple is to be told of a line's owner, as it is at this moment.
  ///
  /// - Parameters:
  ///   - line: The line.
  ///   - owner: Whose it is.
  /// - Returns: What there is to tell; nil if there is no such account.
  /// - Throws: What the database says.
  package func ownershipToTell(of line: LineID, to owner: AccountKey) async throws
    -> OwnershipToTell?
  {
    let results = try await database.batch(
      [
        """
        SELECT app_account_token, erased_at IS NOT NULL, merged_into_key IS NOT NULL
        FROM tenure.account_by_key WHERE account_key = \(owner)
        """,
        """
        SELECT account_key, told_at FROM tenure.apple_telling
        WHERE environment = \(line.environment)
          AND original_transaction_id = \(line.originalTransactionID)
          AND kind = 'ownership' AND outcome = 'accepted'
        ORDER BY telling_id DESC LIMIT 1
        """,
      ] + LineSource.select([line]))
    guard
      let (token, isErased, isMerged) = try results[0].decodeFirst(
        UUID.self, Bool.self, Bool.self)
    else { return nil }
    let lastTold = try results[1].decodeFirst(AccountKey.self, Timestamp.self)
    return OwnershipToTell(
      token: token, isErased: isErased, isMerged: isMerged,
      bundleID: try LineSource(from: Array(results.dropFirst(2))).bundleID,
      lastTold: lastTold.map { (account: $0, at: $1) })
  }

  /// A notification that asks what became of a purchase.
  package struct ConsumptionQuestion: Sendable {
    package let line: LineID
    package let request: AppleTelling.Request
    package let bundleID: String?
    /// When Apple signed it, or where it does not say, when it came.
    package let askedAt: Timestamp
  }

  /// Finds what a stored notification asks about; nil if there is none of this id.
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
      Environment.self, OriginalTransactionID.self, TransactionID.self, String?.self,
      Timestamp.self
    ).map { environment, line, transaction, bundleID, askedAt in
      ConsumptionQuestion(
        line: LineID(environment, line),
        request: AppleTelling.Request(
          transactionID: transaction, notificationID: notificationID),
        bundleID: bundleID, askedAt: askedAt)
    }
  }

  /// Records what Apple was told, and ends the job that did, in one commit.
  package func record(_ telling: AppleTelling, ending job: Job) async throws {
    _ = try await database.withTransaction { transaction in
      try await transaction.commit(with: [telling.insert] + job.completion)
    }
  }

  // MARK: Reading

  /// What Apple was told of some lines, the last word first.
  ///
  /// - Parameters:
  ///   - lines: Such as Apple links, for instance.
  ///   - limit: How many of each line at the most.
  /// - Returns: What was told.
  /// - Throws: What the database says.
  package func appleTellings(of lines: [LineID], limit: Int) async throws -> [AppleTelling] {
    let results = try await database.batch(
      lines.map { line in
        """
        SELECT \(AppleTelling.columns) FROM tenure.apple_telling
        WHERE environment = \(line.environment)
          AND original_transaction_id = \(line.originalTransactionID)
        ORDER BY telling_id DESC LIMIT \(limit)
        """
      })
    return try results.flatMap(AppleTelling.tellings)
      .sorted { ($0.telling.toldAt, $0.id) > ($1.telling.toldAt, $1.id) }.map(\.telling)
  }

  /// What Apple was told of an account's purchases, in order.
  ///
  /// - Parameters:
  ///   - account: The account.
  ///   - last: The one behind which to read on; nil: from the first.
  ///   - limit: How many at the most.
  /// - Returns: What was told, with its place.
  /// - Throws: What the database says.
  package func appleTellings(of account: AccountKey, after last: Int64?, limit: Int) async throws
    -> [(id: Int64, telling: AppleTelling)]
  {
    let start = last ?? 0
    return try AppleTelling.tellings(
      from: await database.query(
        """
        SELECT \(AppleTelling.columns) FROM tenure.apple_telling
        WHERE account_key = \(account) AND telling_id > \(start)
        ORDER BY telling_id LIMIT \(limit)
        """))
  }
}

extension RecordedFamily {
  /// To whom the recording bound the line, and by which charge; nil: it did not move the binding,
  /// or left it nobody's.
  fileprivate var newlyBound: (account: AccountKey, charge: Charge)? {
    guard !entries.isEmpty, let charge = rule.charges.latestCharge,
      let account = line.decisions[charge.id]?.decision.owner
    else { return nil }
    let last = before.rule.charges.latestCharge.flatMap {
      before.line.decisions[$0.id]?.decision.owner
    }
    return account == last ? nil : (account, charge)
  }

  /// Whether a family member has a charge without having paid for it.
  package func isFamilyShared(_ charge: Charge) -> Bool {
    line.history[charge.id]?.ownershipType == .familyShared
  }
}

extension Charge {
  /// Whether Apple says that it is used up.
  fileprivate var isConsumable: Bool { productType == .consumable }
}

/// What Apple was told of a line, or was to be told: by a job, and asked by nobody here.
package struct AppleTelling: Hashable, Sendable {
  /// What there is to tell; each has a setting of its own, and is off unless that is on.
  package enum Kind: String, CaseIterable, Sendable {
    /// To whom a line belongs: the account's `appAccountToken` takes the place of Apple's.
    case ownership
    /// What became of a purchase whose money a customer asks for.
    case consumption
  }

  /// What came of it.
  package enum Outcome: Hashable, Sendable {
    case accepted
    /// Apple says no for good; the code is missing where Apple names none.
    case refused(httpStatus: Int?, code: Int64?)
    /// Nothing was sent.
    case skipped(Reason)

    /// The word under which it is stored and counted.
    package var name: String {
      switch self {
      case .accepted: "accepted"
      case .refused: "refused"
      case .skipped: "skipped"
      }
    }

    /// Why nothing was sent; nil: something was.
    package var reason: Reason? {
      if case .skipped(let reason) = self { reason } else { nil }
    }

    /// What Apple said where it refused.
    package var refusal: (httpStatus: Int?, code: Int64?) {
      if case .refused(let httpStatus, let code) = self { (httpStatus, code) } else { (nil, nil) }
    }
  }

  /// Why nothing was sent.
  package enum Reason: String, CaseIterable, Sendable {
    /// The setting was turned off since.
    case turnedOff = "turned_off"
    /// Nobody owns it.
    case unowned
    case accountErased = "account_erased"
    /// It is being merged into another account, which is told of when its charges are there.
    case accountMerged = "account_merged"
    /// A family member has it; Apple takes word of the purchaser's alone.
    case familyShared = "family_shared"
    /// Nothing follows on it that could inherit a token.
    case consumable
    /// Nobody has said to which of the apps it belongs, or it is none of those that are served.
    case unknownApp = "unknown_app"
    /// The customer has not agreed to it.
    case noConsent = "no_consent"
    /// Apple decides without it by now.
    case tooLate = "too_late"
  }

  /// Of consumption, what was asked about and by which notification.
  package struct Request: Hashable, Sendable {
    package var transactionID: TransactionID
    package var notificationID: String

    package init(transactionID: TransactionID, notificationID: String) {
      self.transactionID = transactionID
      self.notificationID = notificationID
    }
  }

  package var line: LineID
  package var kind: Kind
  package var toldAt: Timestamp
  package var bundleID: String?
  package var request: Request?
  /// Whose token it is, or whose purchase; nil: nobody's.
  package var account: AccountKey?
  package var outcome: Outcome
  /// What was said of delivery, in Apple's words.
  package var deliveryStatus: String?

  package init(
    _ kind: Kind, of line: LineID, at toldAt: Timestamp, bundleID: String? = nil,
    request: Request? = nil, account: AccountKey? = nil, outcome: Outcome,
    deliveryStatus: String? = nil
  ) {
    self.line = line
    self.kind = kind
    self.toldAt = toldAt
    self.bundleID = bundleID
    self.request = request
    self.account = account
    self.outcome = outcome
    self.deliveryStatus = deliveryStatus
  }
}

extension AppleTelling {
  /// Appends it.
  var insert: SQL {
    let refusal = outcome.refusal
    return """
      INSERT INTO tenure.apple_telling (environment, original_transaction_id, kind, told_at,
        bundle_id, transaction_id, notification_id, account_key, outcome, reason, http_status,
        error_code, delivery_status)
      VALUES (\(line.environment), \(line.originalTransactionID), \(kind), \(toldAt), \(bundleID),
        \(request?.transactionID), \(request?.notificationID), \(account), \(outcome.name),
        \(outcome.reason), \(refusal.httpStatus), \(refusal.code), \(deliveryStatus))
      """
  }

  /// The columns that ``tellings(from:)`` understands.
  static let columns: SQL = """
    telling_id, environment, original_transaction_id, kind, told_at, bundle_id, transaction_id,
    notification_id, account_key, outcome, reason, http_status, error_code, delivery_status
    """

  static func tellings(from rows: Rows) throws -> [(id: Int64, telling: AppleTelling)] {
    try rows.decode(
      Int64.self, Environment.self, OriginalTransactionID.self, Kind.self, Timestamp.self,
      String?.self, TransactionID?.self, String?.self, AccountKey?.self, String.self,
      Reason?.self, Int?.self, Int64?.self, String?.self
    ).map {
      id, environment, line, kind, toldAt, bundleID, transaction, notification, account, outcome,
      reason, httpStatus, code, deliveryStatus in
      var request: Request?
      if let transaction, let notification {
        request = Request(transactionID: transaction, notificationID: notification)
      }
      let came: Outcome =
        if let reason {
          .skipped(reason)
        } else if outcome == Outcome.accepted.name {
          .accepted
        } else {
          .refused(httpStatus: httpStatus, code: code)
        }
      return (
        id,
        AppleTelling(
          kind, of: LineID(environment, line), at: toldAt, bundleID: bundleID, request: request,
          account: account, outcome: came, deliveryStatus: deliveryStatus)
      )
    }
  }
}
