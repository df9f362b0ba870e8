import ArgumentParser
import BackgroundJobs
import Bootstrap
import Foundation
import Intake
import LedgerStorage
import Subscriptions

struct ExportCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "export", abstract: "Exports data as CSV or JSON lines.",
    discussion: """
      owners: the account of each original transaction, as `tenure import` reads it. entitlements: \
      the current entitlements of all accounts, as `tenure compare` reads them. charges: all \
      charges with owner, order and time of delivery. orders and grants: purchase intents, and \
      granted entitlements. unverified: imported original transactions that Apple has not \
      confirmed, with the reason if Tenure gave up.

      Source data: products: all versions of the catalogue. rates and commissions: exchange rates, \
      and Apple's commission. accounts: keys, tokens and consents. submissions: submissions of app servers, without \
      receipts. notifications: Apple's notifications with retained bodies and all hashes. \
      write-backs: owners and consumption data sent to Apple. ledger and checkpoints: all entries \
      with their hashes, and the digests that audits noted. actions: administrator actions with \
      their reasons.

      Reads page by page while programs run; rows that change during the export appear in their \
      old or new state.
      """)

  enum Subject: String, CaseIterable, ExpressibleByArgument {
    case owners, entitlements, charges, orders, grants, unverified
    case products, rates, commissions, accounts, submissions, notifications
    case writeBacks = "write-backs"
    case ledger, checkpoints
    case administratorActions = "actions"
  }

  @OptionGroup var options: SettingOptions

  @Argument(help: "Data to export.")
  var subject = Subject.owners

  @Option(help: "Output format: csv or jsonl.")
  var format = RowFormat.csv

  @Flag(
    help: ArgumentHelp(
      "Prefix text that a spreadsheet would evaluate (=, +, -, @) with an apostrophe.",
      discussion: "Off by default: `tenure import` and `tenure compare` read the files unchanged."))
  var guardFormulas = false

  @Option(name: .shortAndLong, help: "Output file. (default: standard output)")
  var output: String?

  func validate() throws {
    guard !guardFormulas || format == .csv else {
      throw ValidationError("--guard-formulas requires --format csv.")
    }
  }

  func run() async throws {
    try await options.useDatabase { database, settings, logger in
      let ledger = Ledger(database: database)
      if let table = Self.tables[subject] { return try await export(table, of: ledger) }
      switch subject {
      case .products: try await exportProducts(of: ledger)
      case .administratorActions: try await exportAdministratorActions(of: ledger)
      default:
        let reader = EntitlementReader(
          ledger: ledger, catalogue: try await CatalogueCache(ledger: ledger, logger: logger),
          sandboxAccess: settings.sandboxAccess)
        try await exportEntitlements(of: ledger, reader, at: settings.clock.now())
      }
    }
  }

  private static let tables: [Subject: ExportTable] = [
    .owners: .owners, .charges: .charges, .orders: .orders, .grants: .grants,
    .unverified: .unverified, .rates: .rates, .commissions: .commissions, .accounts: .accounts,
    .submissions: .submissions, .notifications: .notifications, .writeBacks: .writeBacks,
    .ledger: .entries, .checkpoints: .checkpoints,
  ]

  // MARK: Subjects

  private func export(_ table: ExportTable, of ledger: Ledger) async throws {
    try await export(table.columns) {
      try await ledger.exports.page(of: table, after: $0)
    } fields: {
      $0
    }
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
      try await ledger.exports.exportAccounts(after: last, limit: EntitlementReader.maximumBatch)
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

  /// All versions of all products, older ones first.
  private func exportProducts(of ledger: Ledger) async throws {
    var rows = try RowWriter(
      to: output, format, guardsFormulas: guardFormulas,
      columns: [
        "product_id", "valid_from", "type", "entitlements", "subscription_group", "level",
        "period", "price_milliunits", "currency", "display_name",
      ])
    for product in try await ledger.products.catalogue().allVersions {
      try rows.write([
        product.id.rawValue, product.validFrom.description, product.type.rawValue,
        RowWriter.list(product.entitlements.map(\.rawValue)), product.subscriptionGroup,
        product.level?.description, product.period?.description,
        product.priceMilliunits?.description, product.currency, product.displayName,
      ])
    }
    try rows.finish()
  }

  /// Latest action first.
  private func exportAdministratorActions(of ledger: Ledger) async throws {
    try await export(
      [
        "action_id", "acted_at", "administrator", "action", "subject", "reason", "account_id",
        "previous_account_id", "data",
      ], ledger.exports.exportAdministratorActions
    ) { action in
      [
        "\(action.id)", action.actedAt.description, action.administrator, action.action,
        action.subject, action.reason, action.accountID, action.previousAccountID, action.data,
      ]
    }
  }

  // MARK: Pages and rows

  static func eachPage<Row: Sendable, Place: Sendable>(
    _ read: (Place?) async throws -> ExportPage<Row, Place>, write: ([Row]) async throws -> Void
  ) async throws {
    var place: Place?
    repeat {
      let page = try await read(place)
      try await write(page.rows)
      place = page.next
    } while place != nil
  }

  private func export<Row: Sendable, Place: Sendable>(
    _ columns: [String], _ read: (Place?) async throws -> ExportPage<Row, Place>,
    fields: (Row) -> [String?]
  ) async throws {
    var rows = try RowWriter(to: output, format, guardsFormulas: guardFormulas, columns: columns)
    try await Self.eachPage(read) { page in
      for row in page { try rows.write(fields(row)) }
    }
    try rows.finish()
  }
}

extension RowFormat: ExpressibleByArgument {}
