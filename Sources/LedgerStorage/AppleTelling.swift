import Postgres
package import Subscriptions

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
