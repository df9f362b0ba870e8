import AppStore
import ArgumentParser
import Foundation
import JSONText
import Subscriptions

struct SetAppAccountTokenCommand: AppStoreQuery {
  static let configuration = CommandConfiguration(
    commandName: "set-app-account-token",
    abstract: "Sets the app account token of a customer's current and later transactions.",
    discussion: """
      Replaces an existing token. Past transactions keep theirs, and Apple refuses family-shared \
      ones. Without --environment, queries production, then the sandbox if the ID is unknown there.
      """)

  @Argument(help: "An original transaction ID.")
  var originalID: String

  @Argument(help: "The account's token (UUID).", transform: ArgumentText.uuid)
  var token: UUID

  @OptionGroup var options: AppStoreOptions

  func report(_ clients: AppStoreClients) async throws -> AppStoreReport {
    let answer = try await clients.api.setAppAccountToken(
      token, on: OriginalTransactionID(originalID), of: clients.bundleID, in: clients.environment)
    return AppStoreReport(
      answer.environment,
      [
        "originalTransactionId": .string(originalID),
        "appAccountToken": .string(token.text),
      ], remark: "Apple accepted the request.")
  }
}

struct ExtensionOptions: ParsableArguments {
  @Option(help: "Number of days, 1 to 90.")
  var days: Int64

  @Option(help: "The reason.")
  var reason: ExtendReasonCode

  @Option(help: "Request ID (UUID). (default: a new ID)")
  var requestID: String?

  var body: ExtendRenewalDateRequest {
    var body = ExtendRenewalDateRequest()
    body.extendByDays = days
    body.extendReasonCode = reason
    body.requestIdentifier = requestID ?? UUID().text
    return body
  }

  func validate() throws {
    guard (1...90).contains(days) else { throw ValidationError("--days must be from 1 to 90.") }
    if let requestID, UUID(uuidString: requestID) == nil {
      throw ValidationError("--request-id is not a UUID.")
    }
  }
}

struct ExtendCommand: AppStoreQuery {
  static let configuration = CommandConfiguration(
    commandName: "extend", abstract: "Extends a subscription for free.",
    discussion: """
      At most twice in 365 days, and only active, paid subscriptions. Without --environment, \
      queries production, then the sandbox if the ID is unknown there.
      """)

  @Argument(help: "An original transaction ID.")
  var originalID: String

  @OptionGroup var request: ExtensionOptions
  @OptionGroup var options: AppStoreOptions

  func report(_ clients: AppStoreClients) async throws -> AppStoreReport {
    let body = request.body
    let answer = try await clients.api.extendRenewalDate(
      body, of: OriginalTransactionID(originalID), in: clients.bundleID,
      environment: clients.environment)
    return AppStoreReport(
      answer.environment, ["requestIdentifier": body.requestIdentifier.map { .string($0) }],
      membersOf: answer.content.json,
      failure: answer.content.success == true
        ? nil : CommandFailure(description: "Apple has not extended the subscription"))
  }
}

struct ExtendAllCommand: AppStoreQuery {
  static let configuration = CommandConfiguration(
    commandName: "extend-all", abstract: "Extends all active subscriptions to a product for free.",
    discussion: """
      Runs in the background: Apple reports the result by a notification, and `tenure app-store \
      extension-status` queries it. Without --environment, extends in production.
      """)

  @Argument(help: "A product ID.")
  var productID: String

  @Option(help: "Only this storefront, such as USA; repeatable.")
  var storefront: [String] = []

  @OptionGroup var request: ExtensionOptions
  @OptionGroup var options: AppStoreOptions

  func report(_ clients: AppStoreClients) async throws -> AppStoreReport {
    var body = request.body
    body.productID = productID
    if !storefront.isEmpty { body.storefrontCountryCodes = storefront }
    let answer = try await clients.api.extendRenewalDates(
      body, in: clients.bundleID, environment: clients.environmentOrProduction)
    return AppStoreReport(
      answer.environment, membersOf: answer.content.json,
      remark: "Apple has started the extension.")
  }
}

struct ExtensionStatusCommand: AppStoreQuery {
  static let configuration = CommandConfiguration(
    commandName: "extension-status",
    abstract: "Shows the progress of extending all subscriptions to a product.")

  @Argument(help: "The request's product ID.")
  var productID: String

  @Argument(help: "The request ID that extend-all printed.")
  var requestID: String

  @OptionGroup var options: AppStoreOptions

  func report(_ clients: AppStoreClients) async throws -> AppStoreReport {
    let answer = try await clients.api.extensionStatus(
      of: requestID, productID: ProductID(productID), in: clients.bundleID,
      environment: clients.environmentOrProduction)
    return AppStoreReport(answer.environment, membersOf: answer.content.json)
  }
}

struct ConsumptionCommand: AppStoreQuery {
  static let configuration = CommandConfiguration(
    commandName: "consumption",
    abstract: "Sends consumption information about a purchase for which a refund is requested.",
    discussion: """
      Answers a CONSUMPTION_REQUEST notification, within twelve hours. Without --environment, \
      queries production, then the sandbox if the ID is unknown there.
      """)

  @Argument(help: "The notification's transaction ID.")
  var id: String

  @Flag(help: "The customer has consented to sharing the data with Apple (required).")
  var customerConsented = false

  @Option(help: "Delivery status of the purchase.")
  var delivery: DeliveryStatus

  @Flag(help: "The customer could try the content, or read about it, before buying.")
  var sampleContentProvided = false

  @Option(help: "Consumed percentage; omit it if unknown.")
  var consumed: Double?

  @Option(help: "The refund that you prefer.")
  var preference: RefundPreference?

  @OptionGroup var options: AppStoreOptions

  func validate() throws {
    guard customerConsented else {
      throw ValidationError("--customer-consented is required: nothing is sent without consent.")
    }
    guard let consumed else { return }
    guard (0...100).contains(consumed) else {
      throw ValidationError("--consumed must be from 0 to 100.")
    }
    guard delivery == .delivered || consumed == 0 else {
      throw ValidationError("--consumed must be 0 if the purchase was not delivered.")
    }
  }

  func report(_ clients: AppStoreClients) async throws -> AppStoreReport {
    var body = ConsumptionRequest()
    body.customerConsented = customerConsented
    body.deliveryStatus = delivery
    body.sampleContentProvided = sampleContentProvided
    body.consumptionPercentage = consumed.map { Int64(($0 * 1000).rounded()) }
    body.refundPreference = preference
    let answer = try await clients.api.sendConsumptionInformation(
      body, on: TransactionID(id), of: clients.bundleID, in: clients.environment)
    return AppStoreReport(
      answer.environment, ["transactionId": .string(id)], membersOf: body.json,
      remark: "Apple accepted the request.")
  }
}

/// Apple's values that have different names on the command line.
protocol NamedArgument: ExpressibleByArgument, RawRepresentable
where RawValue: ExpressibleByArgument {
  static var names: KeyValuePairs<String, Self> { get }
}

extension NamedArgument {
  init?(argument: String) {
    guard let named = Self.names.first(where: { $0.key == argument }) else { return nil }
    self = named.value
  }

  static var allValueStrings: [String] { names.map(\.key) }
  static var defaultCompletionKind: CompletionKind { .list(allValueStrings) }
}

extension ExtendReasonCode: NamedArgument {
  static let names: KeyValuePairs<String, Self> = [
    "undeclared": .undeclared, "customer-satisfaction": .customerSatisfaction, "other": .other,
    "service-issue": .serviceIssueOrOutage,
  ]
}

extension DeliveryStatus: NamedArgument {
  static let names: KeyValuePairs<String, Self> = [
    "delivered": .delivered, "quality-issue": .undeliveredQualityIssue,
    "wrong-item": .undeliveredWrongItem, "server-outage": .undeliveredServerOutage,
    "other": .undeliveredOther,
  ]
}

extension RefundPreference: NamedArgument {
  static let names: KeyValuePairs<String, Self> = [
    "decline": .decline, "grant-full": .grantFull, "grant-prorated": .grantProrated,
  ]
}
