import Crypto
package import Foundation
import Postgres
package import Subscriptions

package struct Submission: Sendable {
  package enum Status: String, CaseIterable, Sendable {
    /// Not decided yet, or Apple could not be asked.
    case pending
    case verified
    case rejected
  }

  package let id: UUID
  package internal(set) var account: AccountKey
  package internal(set) var accountID: String
  package let receivedAt: Timestamp
  package let transactionID: TransactionID?
  package let orderID: UUID?
  package let isRestore: Bool
  package let bundleID: String?
  /// Receipt or signed transactions; nil once the payload was erased.
  package let kind: EntrySource.Kind?
  package let status: Status
  package let environment: Environment?
  package let decidedAt: Timestamp?
  /// The next attempt; nil for a pending submission whose job is parked.
  package let retryAt: Timestamp?
  package let attempts: Int
  package let problem: SubmissionProblem?
  /// The decision in Intake's encoding; nil while pending.
  package let outcome: String?

  /// Nil before the decision, and for an outcome that only a newer version can read.
  package var decided: SubmissionOutcome? {
    outcome.flatMap { try? JSONDecoder().decode(SubmissionOutcome.self, from: Data($0.utf8)) }
  }

  /// Whether it will be verified again: it is pending, or a named transaction is looked for.
  package var isOpen: Bool { Self.isOpen(status, retryAt: retryAt) }

  static func isOpen(_ status: Status, retryAt: Timestamp?) -> Bool {
    status == .pending || status == .verified && retryAt != nil
  }
}

package struct SubmissionProblem: Error, Hashable {
  /// A stable code.
  package let code: String
  package let detail: String
  package let appleStatus: Int?

  /// Shortens the detail and removes control characters.
  package init(code: String, detail: String, appleStatus: Int? = nil) {
    self.code = code
    self.detail = detail.storedSentence
    self.appleStatus = appleStatus
  }
}

/// A request to Apple about a submission or notification, and the response.
package struct SubmissionExchange: Hashable, Sendable {
  package var endpoint: String
  package var askedAt: Timestamp
  package var duration: Duration
  /// Nil if there was no response.
  package var httpStatus: Int?
  package var answer: [UInt8]?
  package let fault: String?
  /// The remains of a pruned response.
  package internal(set) var prunedPayload: PrunedPayload?

  /// Shortens the fault and removes control characters.
  package init(
    endpoint: String, askedAt: Timestamp, duration: Duration, httpStatus: Int?,
    answer: [UInt8]?, fault: String?
  ) {
    self.endpoint = endpoint
    self.askedAt = askedAt
    self.duration = duration
    self.httpStatus = httpStatus
    self.answer = answer
    self.fault = fault?.storedSentence
  }
}

/// An exchange to be stored, with its body, so that none is compressed in a database transaction.
struct NewExchange: Sendable {
  fileprivate let exchange: SubmissionExchange
  fileprivate let body: NewBody?
  /// The date that was taken out of the answer, and the digest of the answer with it.
  fileprivate let datedAt: Timestamp?
  fileprivate let answerDigest: [UInt8]?

  init(_ exchange: SubmissionExchange) {
    self.exchange = exchange
    let dated = exchange.answer.flatMap(RequestDates.split)
    body = (dated?.template ?? exchange.answer).map { NewBody($0, at: exchange.askedAt) }
    datedAt = dated?.at
    answerDigest = dated.flatMap { _ in exchange.answer }.map { Array(SHA256.hash(data: $0)) }
  }
}

/// A response of Apple's that is short enough to be a status only.
package typealias ShortAnswer = (askedAt: Timestamp, answer: [UInt8])

/// The stored exchanges about a submission or a notification, numbered from 1.
struct ExchangeLog: Sendable {
  private let table: SQL
  private let subject: SQL
  private let id: SQL

  static func of(submission id: UUID) -> ExchangeLog {
    ExchangeLog(table: "tenure.submission_exchange", subject: "submission_id", id: "\(id)")
  }

  static func of(notification id: String) -> ExchangeLog {
    ExchangeLog(table: "tenure.notification_exchange", subject: "notification_id", id: "\(id)")
  }

  func exchanges(in database: some StatementRunner) async throws -> [SubmissionExchange] {
    let rows = try await database.query(
      """
      SELECT endpoint, asked_at, duration_ms, http_status, fault, body_sha256, dated_at,
        answer_sha256
      FROM \(table) WHERE \(subject) = \(id) ORDER BY number
      """
    ).decode(
      String.self, Timestamp.self, Int64.self, Int?.self, String?.self, [UInt8]?.self,
      Timestamp?.self, [UInt8]?.self
    ).map { $0 }
    let bodies = try await database.bodies(Set(rows.compactMap(\.5)))
    return try rows.map { endpoint, askedAt, duration, status, fault, digest, datedAt, whole in
      let body = digest.flatMap { bodies[$0] }
      var exchange = SubmissionExchange(
        endpoint: endpoint, askedAt: askedAt, duration: .milliseconds(duration),
        httpStatus: status, answer: try Self.answer(body, datedAt, whole), fault: fault)
      if let remains = body?.remains {
        exchange.prunedPayload = PrunedPayload(
          at: remains.at, sha256: whole ?? remains.sha256, bytes: remains.bytes)
      }
      return exchange
    }
  }

  /// The answer as Apple sent it; nil if it was pruned or there is none.
  private static func answer(
    _ body: StoredBody?, _ datedAt: Timestamp?, _ digest: [UInt8]?
  ) throws -> [UInt8]? {
    guard let bytes = body?.bytes, let datedAt, let digest else { return body?.bytes }
    guard let answer = RequestDates.join(bytes, at: datedAt),
      SHA256.hash(data: answer).elementsEqual(digest)
    else { throw LedgerError.unreadableBody(sha256: digest) }
    return answer
  }

  func shortAnswers(in database: some StatementRunner) async throws -> [ShortAnswer] {
    let rows = try await database.query(
      """
      SELECT asked_at, body_sha256, dated_at, answer_sha256 FROM \(table)
      WHERE \(subject) = \(id) AND body_sha256 IS NOT NULL
      """
    ).decode(Timestamp.self, [UInt8].self, Timestamp?.self, [UInt8]?.self).map { $0 }
    let bodies = try await database.bodies(Set(rows.map(\.1)), noLongerThan: 10_000)
    return try rows.compactMap { askedAt, digest, datedAt, whole in
      try Self.answer(bodies[digest], datedAt, whole).map { (askedAt, $0) }
    }
  }

  /// - Parameter attempts: The number of earlier attempts; there are no exchanges before the first.
  func insert(
    _ exchanges: [NewExchange], after attempts: Int, in transaction: Transaction
  ) async throws -> [SQL] {
    guard !exchanges.isEmpty else { return [] }
    let lastNumber =
      attempts == 0
      ? 0
      : try await transaction.query(
        "SELECT coalesce(max(number), 0) FROM \(table) WHERE \(subject) = \(id)"
      ).decodeOnly(Int.self)
    let inserts = exchanges.enumerated().map { index, new -> SQL in
      let exchange = new.exchange
      return """
        INSERT INTO \(table) (\(subject), number, endpoint, asked_at, duration_ms, http_status,
          fault, body_sha256, dated_at, answer_sha256)
        VALUES (\(id), \(lastNumber + index + 1), \(exchange.endpoint), \(exchange.askedAt),
          \(exchange.duration.inMilliseconds), \(exchange.httpStatus), \(exchange.fault),
          \(new.body?.digest), \(new.datedAt), \(new.answerDigest))
        """
    }
    return exchanges.compactMap(\.body).store + inserts
  }
}

package enum SubmissionPayload: Hashable, Sendable {
  /// A receipt in Base64.
  case receipt(String)
  /// StoreKit 2's signed transactions and renewal infos, each a JWS, without line feeds.
  case signedData(transactions: [String], renewalInfo: [String])

  /// The receipt, or the transactions and the renewal infos joined by line feeds.
  var body: String {
    switch self {
    case .receipt(let data): data
    case .signedData(let transactions, let renewalInfo):
      (transactions + renewalInfo).joined(separator: "\n")
    }
  }

  var kind: EntrySource.Kind { signedTransactions == nil ? .receipt : .signedTransaction }

  /// The number of signed transactions; nil for a receipt.
  var signedTransactions: Int? {
    if case .signedData(let transactions, _) = self { transactions.count } else { nil }
  }

  init(_ body: String, signedTransactions count: Int?) {
    guard let count else {
      self = .receipt(body)
      return
    }
    let parts = body.split(separator: "\n", omittingEmptySubsequences: false).map(String.init)
    self = .signedData(
      transactions: Array(parts.prefix(count)), renewalInfo: Array(parts.dropFirst(count)))
  }
}

extension SubmissionStore {
  /// Reads the submitted data; nil if it was pruned or erased.
  package func payload(of submission: UUID) async throws -> SubmissionPayload? {
    try await storedPayload(of: submission).payload
  }

  /// Reads the submitted data, or the remains if it was pruned; neither if it was erased.
  package func storedPayload(
    of submission: UUID
  ) async throws -> (payload: SubmissionPayload?, remains: PrunedPayload?) {
    let row = try await database.query(
      """
      SELECT body_sha256, signed_transactions FROM tenure.submission
      WHERE submission_id = \(submission)
      """
    ).decodeFirst([UInt8]?.self, Int?.self)
    guard let (digest, count) = row, let digest, let body = try await database.body(digest) else {
      return (nil, nil)
    }
    return (body.text.map { SubmissionPayload($0, signedTransactions: count) }, body.remains)
  }
}

/// A warning to the sender of a verified submission.
package enum SubmissionWarning: String, Codable, CaseIterable, Sendable {
  /// The submission lacks the named transaction; if it was a receipt, the transaction is looked for
  /// again later.
  case transactionNotInReceipt = "transaction_not_in_receipt"
  /// Something in it is dated after the submission was received, and so not claimed; it is looked
  /// at again later.
  case purchasedLater = "purchased_later"
  case ownedByAnotherAccount = "owned_by_another_account"
  case orderUnknown = "order_unknown"
  /// The named order, or the purchase submitted for it, belongs to another account.
  case orderAccountMismatch = "order_account_mismatch"
  /// No charge in the submission pays for the named order's product.
  case orderProductMismatch = "order_product_mismatch"
  /// The named order is fulfilled by another charge, or the charge fulfils another named order.
  case orderAlreadyFulfilled = "order_already_fulfilled"
  /// A transaction that is newer than the readable ones can't be read; a receipt is verified again
  /// later.
  case unreadableTransaction = "unreadable_transaction"
  case unknownProduct = "unknown_product"
  case sandboxNotGranted = "sandbox_not_granted"
  case noTransactions = "no_transactions"
  case appAccountTokenOfAnotherAccount = "app_account_token_of_another_account"
}

/// The stored answer to a verified submission, so that asking for it again gives the same.
package struct SubmissionOutcome: Codable, Sendable {
  /// The transactions that it claimed.
  package private(set) var selected: [TransactionKey]
  /// Those of them that its account came to own by it, one of each charge.
  package private(set) var newlyOwned: [TransactionKey]
  package private(set) var warnings: [SubmissionWarning]
  /// The order that it named or fulfilled.
  package private(set) var orderID: UUID?

  /// JSON.
  var text: String {
    get throws { String(decoding: try JSONEncoder().encode(self), as: UTF8.self) }
  }
}

extension SubmissionOutcome {
  init(
    _ recording: Recording, _ orders: OrderMatching,
    of verified: SubmissionStore.VerifiedSubmission, terms: AccessTerms
  ) {
    let submission = verified.submission
    selected = verified.selected
    orderID = orders.fulfilledOrder ?? submission.orderID
    newlyOwned = []
    var found = verified.warnings
    switch orders.namedOrder {
    case nil, .fulfilled: break
    case .unknown:
      found.insert(.orderUnknown)
      orderID = orders.fulfilledOrder
    case .accountMismatch: found.insert(.orderAccountMismatch)
    case .productMismatch: found.insert(.orderProductMismatch)
    case .alreadyFulfilled: found.insert(.orderAlreadyFulfilled)
    }

    // Aliases are one charge, which is delivered once.
    var seen: Set<Charge.ID> = []
    for key in selected {
      guard let original = recording.original(of: key),
        let (charge, recorded) = original.charge(of: key)
      else { continue }
      if recorded.decision.owner != submission.account, recorded.decision.owner != nil {
        found.insert(.ownedByAnotherAccount)
      }
      if let holder = original.line.history.holder(of: charge.appAccountToken),
        holder != submission.account
      {
        found.insert(.appAccountTokenOfAnotherAccount)
      }
      if terms.catalogue[charge.productID] == nil { found.insert(.unknownProduct) }
      if !terms.sandboxAccess.grants(key.line.environment, to: submission.accountID) {
        found.insert(.sandboxNotGranted)
      }
      // A notification may have given it to the account by its token before.
      let isNewlyOwned =
        recorded.decision.owner == submission.account
        && (original.changes.contains {
          $0.charge == charge.id && ($0.changesOwner || $0.action == .claimed)
        }
          || recorded.decision.rule == .appAccountToken
            && original.hasFirstClaim(by: submission.account, on: charge))
      if seen.insert(charge.id).inserted, isNewlyOwned { newlyOwned.append(key) }
    }
    warnings = SubmissionWarning.allCases.filter(found.contains)
  }
}
