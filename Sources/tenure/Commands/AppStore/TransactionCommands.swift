import AppStore
import ArgumentParser
import JSONText
import Subscriptions

struct TransactionCommand: AppStoreQuery {
  static let configuration = CommandConfiguration(
    commandName: "transaction", abstract: "Shows a transaction's current state at Apple.",
    discussion: "Without --environment, queries production, then the sandbox if not found.")

  @Argument(help: "A transaction ID.")
  var id: String

  @OptionGroup var options: AppStoreOptions

  func report(_ clients: AppStoreClients) async throws -> AppStoreReport {
    let answer = try await clients.api.transactionInfo(
      TransactionID(id), of: clients.bundleID, in: clients.environment)
    return AppStoreReport(answer.environment, ["transaction": answer.content.json(\.payload.json)])
  }
}

struct HistoryCommand: AppStoreQuery {
  static let configuration = CommandConfiguration(
    commandName: "history", abstract: "Lists a customer's transactions in an app.",
    discussion: """
      Ordered by last change. To list only later changes, pass the printed revision as --revision \
      with otherwise equal options. Without --environment, queries production, then the sandbox \
      if the ID is unknown there.
      """)

  @Argument(help: "A transaction ID, original transaction ID or app transaction ID.")
  var id: String

  @Option(help: "Only changes since this revision.")
  var revision: String?

  @Option(help: "Purchased at or after this date or RFC 3339 time.", transform: ArgumentText.moment)
  var from: Timestamp?

  @Option(help: "Purchased before this date or RFC 3339 time.", transform: ArgumentText.moment)
  var to: Timestamp?

  @Option(help: "Only this product; repeatable.")
  var product: [String] = []

  @Option(help: "Only this product type; repeatable.")
  var type: [TransactionHistoryQuery.ProductType] = []

  @Option(help: "Only this subscription group; repeatable.")
  var group: [String] = []

  @Option(help: "Only purchased, or only family-shared transactions.")
  var ownership: InAppOwnershipType?

  @Option(help: "true: only revoked transactions; false: only others.")
  var revoked: Bool?

  @Flag(help: "Latest change first; the revision continues with older ones.")
  var newestFirst = false

  @OptionGroup var options: AppStoreOptions

  private var query: TransactionHistoryQuery {
    var query = TransactionHistoryQuery()
    query.startDate = from
    query.endDate = to
    query.productIDs = product.map { ProductID($0) }
    query.productTypes = type
    query.subscriptionGroupIdentifiers = group
    query.inAppOwnershipType = ownership
    query.revoked = revoked
    query.order = newestFirst ? .descending : .ascending
    return query
  }

  func report(_ clients: AppStoreClients) async throws -> AppStoreReport {
    let pages = clients.api.transactionHistoryPages(
      of: id, in: clients.bundleID, environment: clients.environment, query: query, after: revision)
    return try await AppStoreReport.transactions(pages)
  }
}

struct RefundsCommand: AppStoreQuery {
  static let configuration = CommandConfiguration(
    commandName: "refunds", abstract: "Lists a customer's refunded transactions in an app.",
    discussion: "Without --environment, queries production, then the sandbox if not found.")

  @Argument(help: "A transaction ID, original transaction ID or app transaction ID.")
  var id: String

  @Option(help: "Only changes since this revision.")
  var revision: String?

  @OptionGroup var options: AppStoreOptions

  func report(_ clients: AppStoreClients) async throws -> AppStoreReport {
    let pages = clients.api.refundHistoryPages(
      of: id, in: clients.bundleID, environment: clients.environment, after: revision)
    return try await AppStoreReport.transactions(pages)
  }
}

struct StatusesCommand: AppStoreQuery {
  static let configuration = CommandConfiguration(
    commandName: "statuses", abstract: "Shows the status of a customer's subscriptions in an app.",
    discussion: "Without --environment, queries production, then the sandbox if not found.")

  @Argument(help: "A transaction ID, original transaction ID or app transaction ID.")
  var id: String

  @Option(
    help: """
      Only this status; repeatable. 1: active, 2: expired, 3: billing retry, 4: grace period, \
      5: revoked.
      """)
  var status: [Int64] = []

  @OptionGroup var options: AppStoreOptions

  func report(_ clients: AppStoreClients) async throws -> AppStoreReport {
    let answer = try await clients.api.subscriptionStatuses(
      of: id, in: clients.bundleID, environment: clients.environment,
      only: status.map { SubscriptionStatus(rawValue: $0) })
    return AppStoreReport(answer.environment, ["groups": answer.content.json])
  }
}

struct AppTransactionCommand: AppStoreQuery {
  static let configuration = CommandConfiguration(
    commandName: "app-transaction", abstract: "Shows a customer's download of an app.",
    discussion: "Without --environment, queries production, then the sandbox if not found.")

  @Argument(help: "A transaction ID, original transaction ID or app transaction ID.")
  var id: String

  @OptionGroup var options: AppStoreOptions

  func report(_ clients: AppStoreClients) async throws -> AppStoreReport {
    let answer = try await clients.api.appTransactionInfo(
      of: id, in: clients.bundleID, environment: clients.environment)
    return AppStoreReport(answer.environment, ["appTransaction": answer.content.json(\.json)])
  }
}

struct OrderCommand: AppStoreQuery {
  static let configuration = CommandConfiguration(
    commandName: "order", abstract: "Shows the transactions of an Apple order.",
    discussion: """
      The order ID is in Apple's email receipt. Apple supports this in production only.
      """)

  @Argument(help: "The order ID from Apple's email receipt.")
  var id: String

  @OptionGroup var options: AppStoreOptions

  func report(_ clients: AppStoreClients) async throws -> AppStoreReport {
    let answer = try await clients.api.orderLookup(
      id, in: clients.bundleID, environment: clients.environmentOrProduction)
    let status = answer.content.status
    return AppStoreReport(
      answer.environment,
      ["status": status?.json, "transactions": answer.content.transactions.json],
      remark: status == OrderLookup.found ? nil : "The order is not one of this app's.")
  }
}

extension AppStoreReport {
  /// Reads all pages; an error is reported after the pages that were read.
  fileprivate static func transactions(
    _ pages: ServerAPIPages<TransactionPage>
  ) async throws -> AppStoreReport {
    let progress = ProgressBar("transactions read")
    var transactions: [SignedPart<SignedTransaction>] = []
    var last: ServerAPIAnswer<TransactionPage>?
    var failure: (any Error)?
    do {
      for try await page in pages {
        transactions += page.content.transactions
        last = page
        progress.show(transactions.count)
      }
    } catch {
      failure = error
    }
    progress.finish()
    guard let last else { throw failure ?? CancellationError() }
    return AppStoreReport(
      last.environment,
      [
        "transactions": transactions.json,
        "revision": last.content.revision.map { .string($0) },
      ], failure: failure)
  }
}

extension InAppOwnershipType: NamedArgument {
  static let names: KeyValuePairs<String, Self> = [
    "purchased": .purchased, "family-shared": .familyShared,
  ]
}

extension TransactionHistoryQuery.ProductType: ExpressibleByArgument {
  /// Apple's name in lowercase with hyphens.
  init?(argument: String) { self.init(rawValue: argument.uppercased().replacing("-", with: "_")) }

  static var allValueStrings: [String] {
    allCases.map { $0.rawValue.lowercased().replacing("_", with: "-") }
  }
}
