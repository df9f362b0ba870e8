import Foundation
import LedgerStorage
import Subscriptions

/// What Apple has sent without being asked, and what it was told.
extension ExportCommand {
  func exportNotifications(of ledger: Ledger) async throws {
    var rows = try RowWriter(
      to: output, format, guardsFormulas: guardFormulas,
      columns: [
        "notification_id", "version", "received_at", "arrival", "signed_at", "notification_type",
        "subtype", "environment", "bundle_id", "original_transaction_id", "transaction_id",
        "processed_at", "outcome", "problem", "aged_out_at", "bytes", "sha256", "body",
      ])
    try await Self.eachPage { (last: String?) in
      try await ledger.exportNotifications(after: last)
    } write: { page in
      for row in page {
        try rows.write([
          row.id, "\(row.version)", row.receivedAt.description, row.arrival,
          row.signedAt?.description, row.notificationType, row.subtype,
          row.environment?.rawValue, row.bundleID, row.originalTransactionID, row.transactionID,
          row.processedAt?.description, row.outcome, row.problem, row.agedOutAt?.description,
          "\(row.bytes)", row.sha256, row.body,
        ])
      }
    }
    try rows.finish()
  }

  func exportTellings(of ledger: Ledger) async throws {
    var rows = try RowWriter(
      to: output, format, guardsFormulas: guardFormulas,
      columns: [
        "environment", "original_transaction_id", "telling_id", "kind", "told_at", "bundle_id",
        "transaction_id", "notification_id", "account_id", "outcome", "reason", "http_status",
        "error_code", "delivery_status",
      ])
    try await Self.eachPage(ledger.exportTellings) { page in
      for row in page {
        let telling = row.telling
        let refusal = telling.outcome.refusal
        try rows.write(
          Self.fields(telling.line) + [
            "\(row.id)", telling.kind.rawValue, telling.toldAt.description, telling.bundleID,
            telling.request?.transactionID.rawValue, telling.request?.notificationID,
            row.accountID, telling.outcome.name, telling.outcome.reason?.rawValue,
            refusal.httpStatus?.description, refusal.code?.description, telling.deliveryStatus,
          ])
      }
    }
    try rows.finish()
  }
}
