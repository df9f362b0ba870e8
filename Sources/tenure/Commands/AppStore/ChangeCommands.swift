import AppStore
import ArgumentParser
import Foundation
import JSONText
import Subscriptions

/// `tenure app-store set-app-account-token`: whose a line's purchases are, as Apple tells it.
struct SetAppAccountTokenCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "set-app-account-token",
    abstract: "Marks a customer's purchases with an app account token, from the current one on.",
    discussion: """
      It replaces the token that is there. Past transactions keep theirs, and Apple refuses what \
      the family shares. Without --environment production is asked, and the sandbox if the id is \
      unknown there.
      """)

  @Argument(help: "An original transaction id.")
  var originalID: String

  @Argument(help: "The account's token, a UUID.")
  var token: String

  @OptionGroup var options: AppStoreOptions

  func validate() throws {
    guard UUID(uuidString: token) != nil else {
      throw ValidationError("The app account token is no UUID.")
    }
  }

  func run() async throws {
    guard let token = UUID(uuidString: token) else { return }
    try await options.report { desk in
      let answer = try await desk.api.setAppAccountToken(
        token, on: OriginalTransactionID(originalID), of: desk.bundleID, in: desk.environment)
      var report = AppStoreReport(answer.environment)
      report.show("originalTransactionId", .string(originalID))
      report.show("appAccountToken", .string(token.uuidString.lowercased()))
      report.blocks.append(.line("Apple has accepted it."))
      return report
    }
  }
}

/// The flags of what extends subscriptions.
struct ExtensionOptions: ParsableArguments {
  @Option(help: "By how many days, 1 to 90.")
  var days: Int64

  @Option(help: "Why.")
  var reason: Reason

  @Option(help: "A name for the request, a UUID; made if it is left out.")
  var requestID: String?

  enum Reason: String, CaseIterable, ExpressibleByArgument {
    case undeclared
    case customerSatisfaction = "customer-satisfaction"
    case other
    case serviceIssue = "service-issue"

    var apple: ExtendReasonCode {
      switch self {
      case .undeclared: .undeclared
      case .customerSatisfaction: .customerSatisfaction
      case .other: .other
      case .serviceIssue: .serviceIssueOrOutage
      }
    }
  }

  var requestIdentifier: String { requestID ?? UUID().uuidString.lowercased() }

  func validate() throws {
    guard (1...90).contains(days) else { throw ValidationError("--days is from 1 to 90.") }
    if let requestID, UUID(uuidString: requestID) == nil {
      throw ValidationError("--request-id is no UUID.")
    }
  }
}

/// `tenure app-store extend`: free days for one subscription.
struct ExtendCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "extend", abstract: "Extends one subscription for free.",
    discussion: """
      At most twice in 365 days, and only where it is active and paid for. Without --environment \
      production is asked, and the sandbox if the id is unknown there.
      """)

  @Argument(help: "An original transaction id.")
  var originalID: String

  @OptionGroup var request: ExtensionOptions
  @OptionGroup var options: AppStoreOptions

  func run() async throws {
    try await options.report { desk in
      var body = ExtendRenewalDateRequest()
      body.extendByDays = request.days
      body.extendReasonCode = request.reason.apple
      body.requestIdentifier = request.requestIdentifier
      let answer = try await desk.api.extendRenewalDate(
        body, of: OriginalTransactionID(originalID), in: desk.bundleID,
        environment: desk.environment)
      var report = AppStoreReport(answer.environment)
      report.show("requestIdentifier", body.requestIdentifier.map { .string($0) })
      report.show(members: answer.content.json)
      if answer.content.success != true { report.failure = NotExtended() }
      return report
    }
  }

  /// What the exit status is non-zero for.
  struct NotExtended: Error, CustomStringConvertible {
    let description = "Apple has not extended the subscription"
  }
}

/// `tenure app-store extend-all`: free days for everybody who subscribes to a product.
struct ExtendAllCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "extend-all",
    abstract: "Begins to extend every active subscription to a product for free.",
    discussion: """
      Apple tells the outcome by a notification; app-store extension-status asks for it. Without \
      --environment, in production.
      """)

  @Argument(help: "A product id.")
  var productID: String

  @Option(help: "Only this storefront, as in USA; can be given several times.")
  var storefront: [String] = []

  @OptionGroup var request: ExtensionOptions
  @OptionGroup var options: AppStoreOptions

  func run() async throws {
    try await options.report { desk in
      var body = MassExtendRenewalDateRequest()
      body.extendByDays = request.days
      body.extendReasonCode = request.reason.apple
      body.requestIdentifier = request.requestIdentifier
      body.productID = productID
      if !storefront.isEmpty { body.storefrontCountryCodes = storefront }
      let answer = try await desk.api.extendRenewalDates(
        body, in: desk.bundleID, environment: desk.environmentOrProduction)
      var report = AppStoreReport(answer.environment)
      report.show(members: answer.content.json)
      report.blocks.append(.line("Apple has begun."))
      return report
    }
  }
}

/// `tenure app-store extension-status`: how far Apple has come with extending.
struct ExtensionStatusCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "extension-status",
    abstract: "Shows how far Apple has come with extending every subscription to a product.")

  @Argument(help: "The product id of the request.")
  var productID: String

  @Argument(help: "The request's identifier, as extend-all has printed it.")
  var requestID: String

  @OptionGroup var options: AppStoreOptions

  func run() async throws {
    try await options.report { desk in
      let answer = try await desk.api.extensionStatus(
        of: requestID, productID: ProductID(productID), in: desk.bundleID,
        environment: desk.environmentOrProduction)
      var report = AppStoreReport(answer.environment)
      report.show(members: answer.content.json)
      return report
    }
  }
}

/// `tenure app-store consumption`: what Apple asks before it refunds.
struct ConsumptionCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "consumption",
    abstract: "Tells Apple what a customer had of a purchase that a refund is asked for.",
    discussion: """
      The answer to a notification CONSUMPTION_REQUEST, within twelve hours. Without --environment \
      production is asked, and the sandbox if the id is unknown there.
      """)

  @Argument(help: "The transaction id of the notification.")
  var id: String

  @Flag(help: "The customer has agreed that Apple is told; without it nothing is sent.")
  var customerConsented = false

  @Option(help: "Whether the purchase was delivered, or why not.")
  var delivery: Delivery

  @Flag(help: "The customer could try it, or learn what it is, before buying.")
  var sampleContentProvided = false

  @Option(help: "How much of it was consumed, in percent; leave it out if it can't be said.")
  var consumed: Double?

  @Option(help: "What the refund should be, in the developer's opinion.")
  var preference: Preference?

  @OptionGroup var options: AppStoreOptions

  enum Delivery: String, CaseIterable, ExpressibleByArgument {
    case delivered
    case qualityIssue = "quality-issue"
    case wrongItem = "wrong-item"
    case serverOutage = "server-outage"
    case other

    var apple: DeliveryStatus {
      switch self {
      case .delivered: .delivered
      case .qualityIssue: .undeliveredQualityIssue
      case .wrongItem: .undeliveredWrongItem
      case .serverOutage: .undeliveredServerOutage
      case .other: .undeliveredOther
      }
    }
  }

  enum Preference: String, CaseIterable, ExpressibleByArgument {
    case decline
    case grantFull = "grant-full"
    case grantProrated = "grant-prorated"

    var apple: RefundPreference {
      switch self {
      case .decline: .decline
      case .grantFull: .grantFull
      case .grantProrated: .grantProrated
      }
    }
  }

  func validate() throws {
    guard customerConsented else {
      throw ValidationError(
        "--customer-consented is missing: without the customer's consent Apple is told nothing.")
    }
    guard let consumed else { return }
    guard (0...100).contains(consumed) else {
      throw ValidationError("--consumed is from 0 to 100.")
    }
    guard delivery == .delivered || consumed == 0 else {
      throw ValidationError("--consumed is 0 for what was not delivered.")
    }
  }

  func run() async throws {
    var body = ConsumptionRequest()
    body.customerConsented = customerConsented
    body.deliveryStatus = delivery.apple
    body.sampleContentProvided = sampleContentProvided
    body.consumptionPercentage = consumed.map { Int64(($0 * 1000).rounded()) }
    body.refundPreference = preference?.apple
    try await options.report { [body] desk in
      let answer = try await desk.api.sendConsumptionInformation(
        body, on: TransactionID(id), of: desk.bundleID, in: desk.environment)
      var report = AppStoreReport(answer.environment)
      report.show("transactionId", .string(id))
      report.show(members: body.json)
      report.blocks.append(.line("Apple has accepted it."))
      return report
    }
  }
}

extension AppStoreReport {
  /// Every member of an object, in the JSON and in the text.
  fileprivate mutating func show(members json: JSONValue) {
    guard case .object(let members) = json else { return }
    for member in members where !self.members.contains(where: { $0.key == member.key }) {
      show(member.key.rawValue, member.value)
    }
  }
}
