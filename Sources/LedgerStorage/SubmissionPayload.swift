package import Foundation
import Postgres
import Subscriptions

/// What was submitted, as it was sent: a receipt or signed data, never both.
package enum SubmissionPayload: Hashable, Sendable {
  /// A receipt, in base64.
  case receipt(String)
  /// Transactions that StoreKit 2 signed, and renewal infos beside them, each a JWS.
  case signedData(transactions: [String], renewalInfo: [String])
}

extension SubmissionPayload {
  /// Stores it beside its submission.
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

extension Ledger {
  /// What was submitted; nil if it was aged out or erased.
  package func payload(of submission: UUID) async throws -> SubmissionPayload? {
    let rows = try await database.query(
      """
      SELECT receipt_data, signed_transactions, signed_renewal_info
      FROM tenure.submission_payload
      WHERE submission_id = \(submission) AND aged_out_at IS NULL
      """)
    guard
      let (receiptData, transactions, renewalInfo) = try rows.decodeFirst(
        String?.self, [String]?.self, [String]?.self)
    else { return nil }
    if let receiptData { return .receipt(receiptData) }
    guard let transactions, let renewalInfo else {
      preconditionFailure("A payload is a receipt or signed data: the table sees to it.")
    }
    return .signedData(transactions: transactions, renewalInfo: renewalInfo)
  }

  /// What is left of what was submitted; nil unless it was aged out.
  package func agedOutPayload(of submission: UUID) async throws -> AgedOut? {
    try await database.query(
      """
      SELECT aged_out_at, sha256, bytes FROM tenure.submission_payload
      WHERE submission_id = \(submission)
      """
    ).decodeFirst(Timestamp?.self, [UInt8]?.self, Int64?.self)
      .flatMap { AgedOut(at: $0, sha256: $1, bytes: $2) }
  }
}
