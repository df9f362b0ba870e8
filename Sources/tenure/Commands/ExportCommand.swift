import ArgumentParser
import BackgroundJobs
import Foundation
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
      owner, its order and when it was delivered. orders and grants: what accounts set out to buy, \
      and were given. unverified: what was imported and Apple has not told of yet, with the reason \
      where it was given up.

      What all that follows from: products and rates: the catalogue with its past, and exchange \
      rates. accounts: their keys, tokens and consents. submissions: what app servers sent, \
      without the receipts. notifications: what Apple sent, with the bodies that are still kept, \
      and the hashes of all. tellings: what Apple was told. ledger and checkpoints: every entry \
      with its hash, and what audits noted of them. acts: what administrators did, and why.

      The tables are read page by page while the programs go on: what changes meanwhile is told \
      as it was or as it is.
      """)

  /// What can be exported.
  enum Subject: String, CaseIterable, ExpressibleByArgument {
    case owners, entitlements, charges, orders, grants, unverified
    case products, rates, accounts, submissions, notifications, tellings, ledger, checkpoints, acts
  }

  @OptionGroup var options: SettingOptions

  @Argument(help: "What to write.")
  var subject = Subject.owners

  @Option(help: "csv or jsonl.")
  var format = RowFormat.csv

  @Flag(
    help: ArgumentHelp(
      "Put an apostrophe before texts that a spreadsheet would calculate (=, +, -, @).",
      discussion: "Off by default, because `tenure import` and `tenure compare` read files back."))
  var guardFormulas = false

  @Option(name: .shortAndLong, help: "A file; instead of standard output.")
  var output: String?

  func validate() throws {
    guard !guardFormulas || format == .csv else {
      throw ValidationError("--guard-formulas is for CSV: JSON lines hold no formulas.")
    }
  }

  func run() async throws {
    let settings = try await options.settings()
    let logger = Logger.bootstrapTenure(
      level: settings.logLevel, format: settings.logFormat)
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
      case .orders: try await exportOrders(of: ledger)
      case .grants: try await exportGrants(of: ledger)
      case .unverified: try await exportUnverified(of: ledger)
      case .products: try await exportProducts(of: ledger)
      case .rates: try await exportRates(of: ledger)
      case .accounts: try await exportAccounts(of: ledger)
      case .submissions: try await exportSubmissions(of: ledger)
      case .notifications: try await exportNotifications(of: ledger)
      case .tellings: try await exportTellings(of: ledger)
      case .ledger: try await exportLedger(of: ledger)
      case .checkpoints: try await exportCheckpoints(of: ledger)
      case .acts: try await exportActs(of: ledger)
      }
    }
  }

  // MARK: Subjects

  private func exportOwners(of ledger: Ledger) async throws {
    var rows = try RowWriter(
      to: output, format, guardsFormulas: guardFormulas,
      columns: [
        "environment", "original_transaction_id", "account_id", "bundle_id", "transaction_id",
      ])
    try await Self.eachPage(ledger.exportOwners) { page in
      for row in page {
        try rows.write(
          Self.fields(row.line) + [row.accountID, row.bundleID, row.transactionID?.rawValue])
      }
    }
    try rows.finish()
  }

  private func exportUnverified(of ledger: Ledger) async throws {
    var rows = try RowWriter(
      to: output, format, guardsFormulas: guardFormulas,
      columns: [
        "environment", "original_transaction_id", "account_id", "given_up_at", "reason",
      ])
    try await Self.eachPage(ledger.exportUnverified) { page in
      for row in page {
        try rows.write(
          Self.fields(row.line) + [row.accountID, row.givenUpAt?.description, row.reason])
      }
    }
    try rows.finish()
  }

  private func exportEntitlements(
    of ledger: Ledger, _ reader: EntitlementReader, at now: Timestamp
  ) async throws {
    var rows = try RowWriter(
      to: output, format, guardsFormulas: guardFormulas,
      columns: [
        "account_id", "entitlement", "active", "until", "state", "product_id", "environment",
        "original_transaction_id", "source",
      ])
    try await Self.eachPage { (last: String?) in
      try await ledger.exportAccounts(after: last, limit: EntitlementReader.maximumBatch)
    } write: { page in
      let all = try await reader.entitlements(of: page, now: now)
      for (account, entitlements) in zip(page, all) {
        for entitlement in entitlements {
          try rows.write([
            account, entitlement.name, "\(entitlement.isActive)",
            entitlement.accessEndsAt?.description, entitlement.state.rawValue,
            entitlement.productID?.rawValue, entitlement.environment?.rawValue,
            entitlement.originalTransactionID?.rawValue, entitlement.source.rawValue,
          ])
        }
      }
    }
    try rows.finish()
  }

  private func exportCharges(of ledger: Ledger) async throws {
    var rows = try RowWriter(
      to: output, format, guardsFormulas: guardFormulas,
      columns: [
        "environment", "original_transaction_id", "transaction_id", "product_id", "purchased_at",
        "expires_at", "revoked_at", "account_id", "rule", "quantity", "ownership_type",
        "period_type", "price_milliunits", "currency", "order_id", "delivered_at",
      ])
    try await Self.eachPage(ledger.exportCharges) { page in
      for row in page {
        try rows.write(
          Self.fields(row.key.line) + [
            row.key.transactionID.rawValue, row.key.productID.rawValue,
            row.purchasedAt.description, row.expiresAt?.description, row.revokedAt?.description,
            row.accountID, row.rule.rawValue, "\(row.quantity)", row.ownershipType,
            row.periodType, row.priceMilliunits?.description, row.currency,
            row.orderID?.uuidString.lowercased(), row.deliveredAt?.description,
          ])
      }
    }
    try rows.finish()
  }

  private func exportOrders(of ledger: Ledger) async throws {
    var rows = try RowWriter(
      to: output, format, guardsFormulas: guardFormulas,
      columns: [
        "order_id", "account_id", "product_id", "status", "created_at", "fulfilled_at",
        "environment", "original_transaction_id", "transaction_id", "opened_by",
      ])
    try await Self.eachPage(ledger.exportOrders) { page in
      for row in page {
        try rows.write(
          [
            row.id.uuidString.lowercased(), row.accountID, row.productID.rawValue, row.status,
            row.createdAt.description, row.fulfilledAt?.description,
          ] + Self.fields(row.line) + [row.transactionID?.rawValue, row.openedBy])
      }
    }
    try rows.finish()
  }

  private func exportGrants(of ledger: Ledger) async throws {
    var rows = try RowWriter(
      to: output, format, guardsFormulas: guardFormulas,
      columns: [
        "grant_id", "account_id", "entitlement", "source", "starts_at", "ends_at", "revoked_at",
        "reason", "recorded_at", "submission_id", "environment", "original_transaction_id",
      ])
    try await Self.eachPage(ledger.exportGrants) { page in
      for row in page {
        try rows.write(
          [
            row.id.uuidString.lowercased(), row.accountID, row.entitlement, row.source,
            row.startsAt.description, row.endsAt?.description, row.revokedAt?.description,
            row.reason, row.recordedAt.description, row.submissionID?.uuidString.lowercased(),
          ] + Self.fields(row.line))
      }
    }
    try rows.finish()
  }

  // MARK: Pages and rows

  /// Reads page by page up to the last one.
  static func eachPage<Row: Sendable, Place: Sendable>(
    _ read: (Place?) async throws -> Ledger.ExportPage<Row, Place>,
    write: ([Row]) async throws -> Void
  ) async throws {
    var place: Place?
    repeat {
      let page = try await read(place)
      try await write(page.rows)
      place = page.next
    } while place != nil
  }

  static func fields(_ line: LineID?) -> [String?] {
    [line?.environment.rawValue, line?.originalTransactionID.rawValue]
  }
}

extension RowFormat: ExpressibleByArgument {}
