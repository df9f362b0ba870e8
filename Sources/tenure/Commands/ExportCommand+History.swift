import Foundation
import LedgerStorage
import Subscriptions

/// What everything else follows from, and who did what.
extension ExportCommand {
  func exportLedger(of ledger: Ledger) async throws {
    var rows = try RowWriter(
      to: output, format, guardsFormulas: guardFormulas,
      columns: [
        "environment", "original_transaction_id", "number", "recorded_at", "kind",
        "evidence_date", "source", "source_id", "format", "body", "hash", "stored_at",
      ])
    try await Self.eachPage(ledger.exportEntries) { page in
      for row in page {
        try rows.write(
          Self.fields(row.line) + [
            "\(row.number)", row.recordedAt.description, row.kind,
            row.evidenceDate?.description, row.source, row.sourceID, "\(row.format)", row.body,
            row.hash, row.storedAt.description,
          ])
      }
    }
    try rows.finish()
  }

  func exportCheckpoints(of ledger: Ledger) async throws {
    var rows = try RowWriter(
      to: output, format, guardsFormulas: guardFormulas,
      columns: ["checkpoint_id", "stored_before", "entries", "digest"])
    try await Self.eachPage(ledger.exportCheckpoints) { page in
      for row in page {
        try rows.write(["\(row.id)", row.storedBefore.description, "\(row.entries)", row.digest])
      }
    }
    try rows.finish()
  }

  func exportRates(of ledger: Ledger) async throws {
    var rows = try RowWriter(
      to: output, format, guardsFormulas: guardFormulas,
      columns: ["reporting_currency", "currency", "valid_from", "rate", "recorded_at"])
    try await Self.eachPage(ledger.exportRates) { page in
      for row in page {
        try rows.write([
          row.reportingCurrency, row.currency, row.validFrom, row.rate, row.recordedAt,
        ])
      }
    }
    try rows.finish()
  }

  func exportAccounts(of ledger: Ledger) async throws {
    var rows = try RowWriter(
      to: output, format, guardsFormulas: guardFormulas,
      columns: [
        "account_key", "account_id", "app_account_token", "created_at", "erased_at",
        "merged_into_key", "consumption_consent", "consent_decided_at",
      ])
    try await Self.eachPage(ledger.exportAllAccounts) { page in
      for row in page {
        try rows.write([
          row.key.rawValue.uuidString.lowercased(), row.id,
          row.appAccountToken.uuidString.lowercased(), row.createdAt?.description,
          row.erasedAt?.description, row.mergedInto?.rawValue.uuidString.lowercased(),
          row.hasConsumptionConsent?.description, row.consentDecidedAt?.description,
        ])
      }
    }
    try rows.finish()
  }

  func exportSubmissions(of ledger: Ledger) async throws {
    var rows = try RowWriter(
      to: output, format, guardsFormulas: guardFormulas,
      columns: [
        "submission_id", "account_id", "received_at", "restore", "transaction_id", "order_id",
        "bundle_id", "status", "environment", "decided_at", "problem",
      ])
    try await Self.eachPage(ledger.exportSubmissions) { page in
      for row in page {
        try rows.write([
          row.id.uuidString.lowercased(), row.accountID, row.receivedAt.description,
          "\(row.isRestore)", row.transactionID, row.orderID?.uuidString.lowercased(),
          row.bundleID, row.status, row.environment?.rawValue, row.decidedAt?.description,
          row.problem,
        ])
      }
    }
    try rows.finish()
  }

  /// Every version of every product, the older one first.
  func exportProducts(of ledger: Ledger) async throws {
    var rows = try RowWriter(
      to: output, format, guardsFormulas: guardFormulas,
      columns: [
        "product_id", "valid_from", "type", "entitlements", "subscription_group", "level",
        "period", "price_milliunits", "currency", "display_name",
      ])
    for product in try await ledger.catalogue().allVersions {
      try rows.write([
        product.id.rawValue, product.validFrom.description, product.type.rawValue,
        RowWriter.list(product.entitlements.map(\.rawValue)), product.subscriptionGroup,
        product.level?.description, product.period?.description,
        product.priceMilliunits?.description, product.currency, product.displayName,
      ])
    }
    try rows.finish()
  }

  /// What administrators did, the last act first.
  func exportActs(of ledger: Ledger) async throws {
    var rows = try RowWriter(
      to: output, format, guardsFormulas: guardFormulas,
      columns: [
        "action_id", "acted_at", "administrator", "action", "subject", "reason", "account_id",
        "previous_account_id", "data",
      ])
    try await Self.eachPage(ledger.exportActs) { page in
      for act in page {
        try rows.write([
          "\(act.id)", act.actedAt.description, act.administrator, act.action, act.subject,
          act.reason, act.accountID, act.previousAccountID, act.data,
        ])
      }
    }
    try rows.finish()
  }
}
