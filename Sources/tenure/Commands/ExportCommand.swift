import ArgumentParser
import BackgroundJobs
import Bootstrap
import Foundation
import Intake
import LedgerStorage
import Logging
import Subscriptions

struct ExportCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "export",
    abstract: "Exports data as CSV or JSON lines.",
    discussion: """
      owners: the account of each original transaction, as `tenure import` reads it. entitlements: \
      the current entitlements of all accounts, as `tenure compare` reads them. charges: all \
      charges with owner, order and time of delivery. orders and grants: purchase intents, and \
      granted entitlements. unverified: imported original transactions that Apple has not \
      confirmed, with the reason if Tenure gave up.

      Source data: products and rates: all versions of the catalogue, and exchange rates. \
      accounts: keys, tokens and consents. submissions: submissions of app servers, without \
      receipts. notifications: Apple's notifications with retained bodies and all hashes. \
      tellings: write-backs to Apple. ledger and checkpoints: all entries with their hashes, and \
      the digests that audits noted. acts: administrator actions with their reasons.

      Reads page by page while programs run; rows that change during the export appear in their \
      old or new state.
      """)

  enum Subject: String, CaseIterable, ExpressibleByArgument {
    case owners, entitlements, charges, orders, grants, unverified
    case products, rates, accounts, submissions, notifications, tellings, ledger, checkpoints, acts
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
      try await export(from: Ledger(database: database), settings, logger)
    }
  }

  /// Writes the subject's columns and rows.
  private func export(from ledger: Ledger, _ settings: Settings, _ logger: Logger) async throws {
    switch subject {
    case .owners:
      try await export(
        "environment original_transaction_id account_id bundle_id transaction_id",
        ledger.exports.exportOwners
      ) { row in
        Self.fields(row.line) + [row.accountID, row.bundleID, row.transactionID?.rawValue]
      }
    case .entitlements: try await exportEntitlements(of: ledger, settings, logger)
    case .charges:
      try await export(
        """
        environment original_transaction_id transaction_id product_id purchased_at expires_at
        revoked_at account_id rule quantity ownership_type period_type price_milliunits currency
        order_id delivered_at
        """, ledger.exports.exportCharges
      ) { row in
        Self.fields(row.key.line) + [
          row.key.transactionID.rawValue, row.key.productID.rawValue,
          row.purchasedAt.description, row.expiresAt?.description, row.revokedAt?.description,
          row.accountID, row.rule.rawValue, "\(row.quantity)", row.ownershipType,
          row.periodType, row.priceMilliunits?.description, row.currency,
          row.orderID?.uuidString.lowercased(), row.deliveredAt?.description,
        ]
      }
    case .orders:
      try await export(
        """
        order_id account_id product_id status created_at fulfilled_at environment
        original_transaction_id transaction_id opened_by
        """, ledger.exports.exportOrders
      ) { row in
        [
          row.id.uuidString.lowercased(), row.accountID, row.productID.rawValue, row.status,
          row.createdAt.description, row.fulfilledAt?.description,
        ] + Self.fields(row.line) + [row.transactionID?.rawValue, row.openedBy]
      }
    case .grants:
      try await export(
        """
        grant_id account_id entitlement source starts_at ends_at revoked_at reason recorded_at
        submission_id environment original_transaction_id
        """, ledger.exports.exportGrants
      ) { row in
        [
          row.id.uuidString.lowercased(), row.accountID, row.entitlement, row.source,
          row.startsAt.description, row.endsAt?.description, row.revokedAt?.description,
          row.reason, row.recordedAt.description, row.submissionID?.uuidString.lowercased(),
        ] + Self.fields(row.line)
      }
    case .unverified:
      try await export(
        "environment original_transaction_id account_id given_up_at reason",
        ledger.exports.exportUnverified
      ) { row in
        Self.fields(row.line) + [row.accountID, row.givenUpAt?.description, row.reason]
      }
    case .products:
      // All versions of all products, older ones first.
      var rows = try writer(
        """
        product_id valid_from type entitlements subscription_group level period price_milliunits
        currency display_name
        """)
      for product in try await ledger.products.catalogue().allVersions {
        try rows.write([
          product.id.rawValue, product.validFrom.description, product.type.rawValue,
          RowWriter.list(product.entitlements.map(\.rawValue)), product.subscriptionGroup,
          product.level?.description, product.period?.description,
          product.priceMilliunits?.description, product.currency, product.displayName,
        ])
      }
      try rows.finish()
    case .rates:
      try await export(
        "reporting_currency currency valid_from rate recorded_at",
        ledger.exports.exportRates
      ) { row in
        [row.reportingCurrency, row.currency, row.validFrom, row.rate, row.recordedAt]
      }
    case .accounts:
      try await export(
        """
        account_key account_id app_account_token created_at erased_at merged_into_key
        consumption_consent consent_decided_at
        """, ledger.exports.exportAllAccounts
      ) { row in
        [
          row.key.rawValue.uuidString.lowercased(), row.id,
          row.appAccountToken.uuidString.lowercased(), row.createdAt?.description,
          row.erasedAt?.description, row.mergedInto?.rawValue.uuidString.lowercased(),
          row.hasConsumptionConsent?.description, row.consentDecidedAt?.description,
        ]
      }
    case .submissions:
      try await export(
        """
        submission_id account_id received_at restore transaction_id order_id bundle_id status
        environment decided_at problem
        """, ledger.exports.exportSubmissions
      ) { row in
        [
          row.id.uuidString.lowercased(), row.accountID, row.receivedAt.description,
          "\(row.isRestore)", row.transactionID, row.orderID?.uuidString.lowercased(),
          row.bundleID, row.status, row.environment?.rawValue, row.decidedAt?.description,
          row.problem,
        ]
      }
    case .notifications:
      try await export(
        """
        notification_id version received_at arrival signed_at notification_type subtype environment
        bundle_id original_transaction_id transaction_id processed_at outcome problem aged_out_at
        bytes sha256 body
        """
      ) { (last: String?) in
        try await ledger.exports.exportNotifications(after: last)
      } fields: { row in
        [
          row.id, "\(row.version)", row.receivedAt.description, row.arrival,
          row.signedAt?.description, row.notificationType, row.subtype,
          row.environment?.rawValue, row.bundleID, row.originalTransactionID, row.transactionID,
          row.processedAt?.description, row.outcome, row.problem, row.agedOutAt?.description,
          "\(row.bytes)", row.sha256, row.body,
        ]
      }
    case .tellings:
      try await export(
        """
        environment original_transaction_id telling_id kind told_at bundle_id transaction_id
        notification_id account_id outcome reason http_status error_code delivery_status
        """, ledger.exports.exportWriteBacks
      ) { row in
        let writeBack = row.writeBack
        let refusal = writeBack.outcome.refusal
        return Self.fields(writeBack.line) + [
          "\(row.id)", writeBack.kind.rawValue, writeBack.toldAt.description, writeBack.bundleID,
          writeBack.request?.transactionID.rawValue, writeBack.request?.notificationID,
          row.accountID, writeBack.outcome.name, writeBack.outcome.reason?.rawValue,
          refusal.httpStatus?.description, refusal.code?.description, writeBack.deliveryStatus,
        ]
      }
    case .ledger:
      try await export(
        """
        environment original_transaction_id number recorded_at kind evidence_date source source_id
        format body hash stored_at
        """, ledger.exports.exportEntries
      ) { row in
        Self.fields(row.line) + [
          "\(row.number)", row.recordedAt.description, row.kind,
          row.evidenceDate?.description, row.source, row.sourceID, "\(row.format)", row.body,
          row.hash, row.storedAt.description,
        ]
      }
    case .checkpoints:
      try await export(
        "checkpoint_id stored_before entries digest", ledger.exports.exportCheckpoints
      ) { row in
        ["\(row.id)", row.storedBefore.description, "\(row.entries)", row.digest]
      }
    case .acts:
      // Latest action first.
      try await export(
        """
        action_id acted_at administrator action subject reason account_id previous_account_id data
        """, ledger.exports.exportActs
      ) { act in
        [
          "\(act.id)", act.actedAt.description, act.administrator, act.action, act.subject,
          act.reason, act.accountID, act.previousAccountID, act.data,
        ]
      }
    }
  }

  private func exportEntitlements(
    of ledger: Ledger, _ settings: Settings, _ logger: Logger
  ) async throws {
    let reader = EntitlementReader(
      ledger: ledger, catalogue: try await CatalogueCache(ledger: ledger, logger: logger),
      sandboxAccess: settings.sandboxAccess)
    let now = settings.clock.now()
    var rows = try writer(
      """
      account_id entitlement active until state product_id environment original_transaction_id
      source
      """)
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

  /// Writes a row for each row of all pages.
  private func export<Row: Sendable, Place: Sendable>(
    _ columns: String, _ read: (Place?) async throws -> ExportStore.ExportPage<Row, Place>,
    fields: (Row) -> [String?]
  ) async throws {
    var rows = try writer(columns)
    try await Self.eachPage(read) { page in
      for row in page { try rows.write(fields(row)) }
    }
    try rows.finish()
  }

  static func eachPage<Row: Sendable, Place: Sendable>(
    _ read: (Place?) async throws -> ExportStore.ExportPage<Row, Place>,
    write: ([Row]) async throws -> Void
  ) async throws {
    var place: Place?
    repeat {
      let page = try await read(place)
      try await write(page.rows)
      place = page.next
    } while place != nil
  }

  /// - Parameter columns: Their names, separated by white space.
  private func writer(_ columns: String) throws -> RowWriter {
    try RowWriter(
      to: output, format, guardsFormulas: guardFormulas,
      columns: columns.split(whereSeparator: \.isWhitespace).map(String.init))
  }

  private static func fields(_ line: OriginalTransactionKey?) -> [String?] {
    [line?.environment.rawValue, line?.originalTransactionID.rawValue]
  }
}

extension RowFormat: ExpressibleByArgument {}
