import AppStore
import ArgumentParser
import JSONText
import Subscriptions

/// `tenure app-store transaction`: one transaction.
struct TransactionCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "transaction", abstract: "Shows one transaction as Apple has it now.",
    discussion: "Without --environment production is asked, and the sandbox if it is unknown there."
  )

  @Argument(help: "A transaction id.")
  var id: String

  @OptionGroup var options: AppStoreOptions

  func run() async throws {
    try await options.report { desk in
      let answer = try await desk.api.transactionInfo(
        TransactionID(id), of: desk.bundleID, in: desk.environment)
      var report = AppStoreReport(answer.environment)
      report.show(answer.content, as: "transaction") { $0.payload.json }
      return report
    }
  }
}

/// `tenure app-store history`: everything that a customer has bought.
struct HistoryCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "history", abstract: "Lists everything that a customer has bought in an app.",
    discussion: """
      In the order of the last change. What is printed as revision brings, with the same other \
      flags and --revision, the news alone. Without --environment production is asked, and the \
      sandbox if the id is unknown there.
      """)

  @Argument(help: "A transaction id, original transaction id or app transaction id.")
  var id: String

  @Option(help: "Only what has changed since the listing that ended with this revision.")
  var revision: String?

  @Option(help: "Purchased then or later: a date or an RFC 3339 time.")
  var from: Moment?

  @Option(help: "Purchased earlier: a date or an RFC 3339 time.")
  var to: Moment?

  @Option(help: "Only this product; can be given several times.")
  var product: [String] = []

  @Option(help: "Only this type of product; can be given several times.")
  var type: [TransactionHistoryQuery.ProductType] = []

  @Option(help: "Only this subscription group; can be given several times.")
  var group: [String] = []

  @Option(help: "Only what was bought, or only what the family shares.")
  var ownership: Ownership?

  @Option(help: "true: only what was revoked; false: only what was not.")
  var revoked: Bool?

  @Flag(help: "The latest change first; its revision brings older ones.")
  var newestFirst = false

  @OptionGroup var options: AppStoreOptions

  enum Ownership: String, CaseIterable, ExpressibleByArgument {
    case purchased
    case familyShared = "family-shared"

    var apple: InAppOwnershipType { self == .purchased ? .purchased : .familyShared }
  }

  private var query: TransactionHistoryQuery {
    var query = TransactionHistoryQuery()
    query.startDate = from?.timestamp
    query.endDate = to?.timestamp
    query.productIDs = product.map { ProductID($0) }
    query.productTypes = type
    query.subscriptionGroupIdentifiers = group
    query.inAppOwnershipType = ownership?.apple
    query.revoked = revoked
    query.order = newestFirst ? .descending : .ascending
    return query
  }

  func run() async throws {
    try await options.report { desk in
      let pages = desk.api.transactionHistoryPages(
        of: id, in: desk.bundleID, environment: desk.environment, query: query, after: revision)
      return try await AppStoreReport.transactions(pages)
    }
  }
}

/// `tenure app-store refunds`: what a customer got money back for.
struct RefundsCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "refunds", abstract: "Lists a customer's refunded transactions of an app.",
    discussion: "Without --environment production is asked, and the sandbox if it is unknown there."
  )

  @Argument(help: "A transaction id, original transaction id or app transaction id.")
  var id: String

  @Option(help: "Only what has changed since the listing that ended with this revision.")
  var revision: String?

  @OptionGroup var options: AppStoreOptions

  func run() async throws {
    try await options.report { desk in
      let pages = desk.api.refundHistoryPages(
        of: id, in: desk.bundleID, environment: desk.environment, after: revision)
      return try await AppStoreReport.transactions(pages)
    }
  }
}

/// `tenure app-store statuses`: where a customer's subscriptions stand.
struct StatusesCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "statuses", abstract: "Shows where a customer's subscriptions in an app stand.",
    discussion: "Without --environment production is asked, and the sandbox if it is unknown there."
  )

  @Argument(help: "A transaction id, original transaction id or app transaction id.")
  var id: String

  @Option(
    help: """
      Only this status; can be given several times. 1: active, 2: expired, 3: billing retry, \
      4: grace period, 5: revoked.
      """)
  var status: [Int64] = []

  @OptionGroup var options: AppStoreOptions

  func run() async throws {
    try await options.report { desk in
      let answer = try await desk.api.subscriptionStatuses(
        of: id, in: desk.bundleID, environment: desk.environment,
        only: status.map { SubscriptionStatus(rawValue: $0) })
      var report = AppStoreReport(answer.environment)
      report.show(answer.content)
      return report
    }
  }
}

/// `tenure app-store app-transaction`: a customer's download of an app.
struct AppTransactionCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "app-transaction", abstract: "Shows a customer's download of an app.",
    discussion: "Without --environment production is asked, and the sandbox if it is unknown there."
  )

  @Argument(help: "A transaction id, original transaction id or app transaction id.")
  var id: String

  @OptionGroup var options: AppStoreOptions

  func run() async throws {
    try await options.report { desk in
      let answer = try await desk.api.appTransactionInfo(
        of: id, in: desk.bundleID, environment: desk.environment)
      var report = AppStoreReport(answer.environment)
      report.show(answer.content, as: "appTransaction") { $0.json }
      return report
    }
  }
}

/// `tenure app-store order`: what was bought with an order.
struct OrderCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "order", abstract: "Shows what was bought with an order of Apple's.",
    discussion: """
      The order id stands in the mail with which Apple confirms a purchase. Apple answers for \
      production only.
      """)

  @Argument(help: "An order id, as in Apple's mail to the customer.")
  var id: String

  @OptionGroup var options: AppStoreOptions

  func run() async throws {
    try await options.report { desk in
      let answer = try await desk.api.orderLookup(
        id, in: desk.bundleID, environment: desk.environmentOrProduction)
      var report = AppStoreReport(answer.environment)
      let status = answer.content.status
      report.add("status", status?.json)
      report.blocks.append(
        .fields([("order", status == .valid ? "valid" : "not one of this app's")]))
      report.show(answer.content.transactions)
      return report
    }
  }
}

extension AppStoreReport {
  /// Reads a list to its end, or to where it breaks off: what came until then is shown.
  fileprivate static func transactions(
    _ pages: ServerAPIPages<TransactionPage>
  ) async throws -> AppStoreReport {
    let progress = Progress("transactions read")
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
    var report = AppStoreReport(last.environment)
    report.show(transactions)
    report.show("revision", last.content.revision.map { .string($0) })
    report.failure = failure
    return report
  }
}

extension TransactionHistoryQuery.ProductType: ExpressibleByArgument {
  /// Apple's word, in small letters and with hyphens.
  init?(argument: String) {
    self.init(rawValue: argument.uppercased().replacing("-", with: "_"))
  }

  static var allValueStrings: [String] {
    allCases.map { $0.rawValue.lowercased().replacing("_", with: "-") }
  }
}
