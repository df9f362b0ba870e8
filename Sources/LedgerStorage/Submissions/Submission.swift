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
  package let account: AccountKey
  package let accountID: String
  package let receivedAt: Timestamp
  package let transactionID: TransactionID?
  package let orderID: UUID?
  package let isRestore: Bool
  package let bundleID: String?
  package let status: Status
  package let environment: Environment?
  /// The next attempt; nil for a pending submission whose job is parked.
  package let retryAt: Timestamp?
  package let attempts: Int
  package let problem: SubmissionProblem?
  /// The decision in Intake's encoding; nil while pending.
  package let outcome: String?

  /// Whether it will be verified again: it is pending, or a named transaction is looked for.
  package var isOpen: Bool { Self.isOpen(status, retryAt: retryAt) }

  static func isOpen(_ status: Status, retryAt: Timestamp?) -> Bool {
    status == .pending || status == .verified && retryAt != nil
  }
}

package struct SubmissionProblem: Hashable, Sendable {
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

  var exchanges: Query<[SubmissionExchange]> {
    Query(
      """
      SELECT endpoint, asked_at, duration_ms, http_status, answer, fault, pruned_at, sha256, bytes
      FROM \(table) WHERE \(subject) = \(id) ORDER BY number
      """
    ) {
      try $0.decode(
        String.self, Timestamp.self, Int64.self, Int?.self, [UInt8]?.self, String?.self,
        Timestamp?.self, [UInt8]?.self, Int64?.self
      ).map {
        var exchange = SubmissionExchange(
          endpoint: $0, askedAt: $1, duration: .milliseconds($2), httpStatus: $3, answer: $4,
          fault: $5)
        exchange.prunedPayload = PrunedPayload(at: $6, sha256: $7, bytes: $8)
        return exchange
      }
    }
  }

  /// Apple's responses that are short enough to be a status only.
  var shortAnswers: Query<[(askedAt: Timestamp, answer: [UInt8])]> {
    Query(
      """
      SELECT asked_at, answer FROM \(table)
      WHERE \(subject) = \(id) AND octet_length(answer) <= 10000
      """
    ) { try $0.decode(Timestamp.self, [UInt8].self).map { (askedAt: $0, answer: $1) } }
  }

  /// The number of the last exchange; 0 for none.
  var lastNumber: Query<Int> {
    Query("SELECT coalesce(max(number), 0) FROM \(table) WHERE \(subject) = \(id)") {
      try $0.decodeOnly(Int.self)
    }
  }

  func insert(_ exchanges: [SubmissionExchange], after lastNumber: Int) -> [SQL] {
    exchanges.enumerated().map { index, exchange in
      """
      INSERT INTO \(table) (\(subject), number, endpoint, asked_at, duration_ms, http_status,
        answer, fault)
      VALUES (\(id), \(lastNumber + index + 1), \(exchange.endpoint), \(exchange.askedAt),
        \(exchange.duration.inMilliseconds), \(exchange.httpStatus), \(exchange.answer),
        \(exchange.fault))
      """
    }
  }
}

package enum SubmissionPayload: Hashable, Sendable {
  /// A receipt in Base64.
  case receipt(String)
  /// StoreKit 2's signed transactions and renewal infos, each a JWS.
  case signedData(transactions: [String], renewalInfo: [String])

  func insert(for submission: UUID) -> SQL {
    switch self {
    case .receipt(let data):
      """
      INSERT INTO tenure.submission_payload (submission_id, receipt_data)
      VALUES (\(submission), \(data))
      """
    case .signedData(let transactions, let renewalInfo):
      """
      INSERT INTO tenure.submission_payload (submission_id, signed_transactions,
        signed_renewal_info)
      VALUES (\(submission), \(transactions), \(renewalInfo))
      """
    }
  }
}

extension SubmissionStore {
  /// Reads the submitted data; nil if it was pruned or erased.
  package func payload(of submission: UUID) async throws -> SubmissionPayload? {
    let rows = try await database.query(
      """
      SELECT receipt_data, signed_transactions, signed_renewal_info
      FROM tenure.submission_payload
      WHERE submission_id = \(submission) AND pruned_at IS NULL
      """)
    guard
      let (receiptData, transactions, renewalInfo) = try rows.decodeFirst(
        String?.self, [String]?.self, [String]?.self)
    else { return nil }
    if let receiptData { return .receipt(receiptData) }
    guard let transactions, let renewalInfo else {
      preconditionFailure("The table allows a receipt or signed data only.")
    }
    return .signedData(transactions: transactions, renewalInfo: renewalInfo)
  }

  /// The remains of a pruned payload; nil if it was not pruned.
  package func prunedPayload(of submission: UUID) async throws -> PrunedPayload? {
    try await database.query(
      """
      SELECT pruned_at, sha256, bytes FROM tenure.submission_payload
      WHERE submission_id = \(submission)
      """
    ).decodeFirst(Timestamp?.self, [UInt8]?.self, Int64?.self)
      .flatMap { PrunedPayload(at: $0, sha256: $1, bytes: $2) }
  }
}
