import ArgumentParser
import BackgroundJobs
import LedgerStorage
import Logging
import Subscriptions

/// `tenure export`: what Tenure knows, for other programs.
struct ExportCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "export",
    abstract: "Writes what Tenure knows as CSV or JSON lines.",
    discussion: """
      owners: whose each original transaction is, as `tenure import` reads it. entitlements: what \
      each account may use now, as `tenure compare` reads it. charges: every charge with its \
      owner. unverified: what was imported and Apple has not told of yet, with the reason where \
      it was given up.

      The tables are read page by page while the programs go on: what changes meanwhile is told \
      as it was or as it is.
      """)

  /// What can be exported.
  enum Subject: String, CaseIterable, ExpressibleByArgument {
    case owners, entitlements, charges, unverified
  }

  @OptionGroup var options: SettingOptions

  @Argument(help: "owners, entitlements, charges or unverified.")
  var subject = Subject.owners

  @Option(help: "csv or jsonl.")
  var format = RowFormat.csv

  @Option(name: .shortAndLong, help: "A file; instead of standard output.")
  var output: String?

  func run() async throws {
    let settings = try await options.settings()
    let logger = Logger.bootstrapTenure(level: settings.logLevel)
    let now = settings.clock.now()
    try await withDatabase(settings, logger: logger) { database in
      let ledger = Ledger(database: database)
      switch subject {
      case .owners: try await exportOwners(of: ledger)
      case .entitlements:
        let reader = EntitlementReader(
          ledger: ledger, catalogue: try await CatalogueCache(ledger: ledger, logger: logger),
          sandboxAccess: settings.sandboxAccess)
        try await exportEntitlements(of: ledger, reader, at: now)
      case .charges: try await exportCharges(of: ledger)
      case .unverified: try await exportUnverified(of: ledger)
      }
    }
  }

  // MARK: Subjects

  private func exportOwners(of ledger: Ledger) async throws {
    var rows = try RowWriter(
      to: output, format, columns: ["environment", "original_transaction_id", "account_id"])
    var place: LineID?
    repeat {
      let page = try await ledger.exportOwners(after: place)
      for row in page.rows { try rows.write(Self.fields(row.line) + [row.accountID]) }
      place = page.next
    } while place != nil
    try rows.finish()
  }

  private func exportUnverified(of ledger: Ledger) async throws {
    var rows = try RowWriter(
      to: output, format,
      columns: [
        "environment", "original_transaction_id", "account_id", "given_up_at", "reason",
      ])
    var place: LineID?
    repeat {
      let page = try await ledger.exportUnverified(after: place)
      for row in page.rows {
        try rows.write(
          Self.fields(row.line) + [row.accountID, row.givenUpAt?.description, row.reason])
      }
      place = page.next
    } while place != nil
    try rows.finish()
  }

  private func exportEntitlements(
    of ledger: Ledger, _ reader: EntitlementReader, at now: Timestamp
  ) async throws {
    var rows = try RowWriter(
      to: output, format,
      columns: [
        "account_id", "entitlement", "active", "until", "state", "product_id", "environment",
        "original_transaction_id", "source",
      ])
    var place: String?
    repeat {
      let page = try await ledger.exportAccounts(
        after: place, limit: EntitlementReader.maximumBatch)
      let all = try await reader.entitlements(of: page.rows, now: now)
      for (account, entitlements) in zip(page.rows, all) {
        for entitlement in entitlements {
          try rows.write([
            account, entitlement.name, "\(entitlement.isActive)",
            entitlement.accessEndsAt?.description, entitlement.state.rawValue,
            entitlement.productID?.rawValue, entitlement.environment?.rawValue,
            entitlement.originalTransactionID?.rawValue, entitlement.source.rawValue,
          ])
        }
      }
      place = page.next
    } while place != nil
    try rows.finish()
  }

  private func exportCharges(of ledger: Ledger) async throws {
    var rows = try RowWriter(
      to: output, format,
      columns: [
        "environment", "original_transaction_id", "transaction_id", "product_id", "purchased_at",
        "expires_at", "revoked_at", "account_id", "rule",
      ])
    var place: TransactionKey?
    repeat {
      let page = try await ledger.exportCharges(after: place)
      for row in page.rows {
        try rows.write(
          Self.fields(row.key.line) + [
            row.key.transactionID.rawValue, row.key.productID.rawValue,
            row.purchasedAt.description, row.expiresAt?.description, row.revokedAt?.description,
            row.accountID, row.rule.rawValue,
          ])
      }
      place = page.next
    } while place != nil
    try rows.finish()
  }

  private static func fields(_ line: LineID) -> [String?] {
    [line.environment.rawValue, line.originalTransactionID.rawValue]
  }
}

extension RowFormat: ExpressibleByArgument {}
