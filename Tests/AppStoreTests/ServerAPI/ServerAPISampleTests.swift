import Foundation
import JSONText
import Subscriptions
import Testing

@testable import AppStore

/// The bodies that Apple publishes with its library: nothing of them is lost.
struct ServerAPISampleTests {
  private static func sample(_ name: String) throws -> JSONValue {
    let url = try #require(
      Bundle.module.url(
        forResource: name, withExtension: "json", subdirectory: "Samples/app-store-server"))
    return try JSONValue(parsing: try Data(contentsOf: url))
  }

  /// Reads and writes a body, and names the fields missing from its list.
  struct Body: Sendable {
    var name: String
    var roundTrip: @Sendable (JSONValue) throws -> (json: JSONValue, unknown: [String])

    init<Fields>(
      _ name: String, _ type: JSONPayload<Fields>.Type,
      _ inner: @escaping @Sendable (JSONPayload<Fields>) -> [JSONValue.Member] = { _ in [] }
    ) {
      self.name = name
      roundTrip = { json in
        let payload = try JSONPayload<Fields>(json: json)
        return (payload.json, (payload.unknownFields + inner(payload)).map(\.key.rawValue))
      }
    }
  }

  // swift-format-ignore
  static let bodies: [Body] = [
    Body("apiException",                          ServerAPIErrorBody.self),
    Body("apiTooManyRequestsException",           ServerAPIErrorBody.self),
    Body("apiUnknownError",                       ServerAPIErrorBody.self),
    Body("extendSubscriptionRenewalDateResponse", ExtendRenewalDateResponse.self),
    Body("familyTransactionNotSupportedError",    ServerAPIErrorBody.self),
    Body("getAllSubscriptionStatusesResponse",    StatusResponse.self) { response in
      let groups = response.data ?? []
      return groups.flatMap(\.unknownFields)
        + groups.flatMap { $0.lastTransactions ?? [] }.flatMap(\.unknownFields)
    },
    Body("getNotificationHistoryResponse",        NotificationHistoryResponse.self) { response in
      let items = response.notificationHistory ?? []
      return items.flatMap(\.unknownFields)
        + items.flatMap { $0.sendAttempts ?? [] }.flatMap(\.unknownFields)
    },
    Body("getRefundHistoryResponse",              HistoryResponse.self),
    Body("invalidAppAccountTokenUUIDError",       ServerAPIErrorBody.self),
    Body("invalidTransactionIdError",             ServerAPIErrorBody.self),
    Body("lookupOrderIdResponse",                 OrderLookupResponse.self),
    Body("requestTestNotificationResponse",       SingleTextResponse.self),
    Body("transactionHistoryResponse",            HistoryResponse.self),
    Body("transactionHistoryResponseWithMalformedEnvironment", HistoryResponse.self),
    Body("transactionIdNotFoundError",            ServerAPIErrorBody.self),
    Body("transactionIdNotOriginalTransactionId", ServerAPIErrorBody.self),
    Body("transactionInfoResponse",               SingleTextResponse.self),
  ]

  @Test(arguments: bodies)
  func `every field is known, and the body encodes back to the same JSON`(body: Body) throws {
    let sample = try Self.sample(body.name)
    let (json, unknown) = try body.roundTrip(sample)
    #expect(unknown == [])
    #expect(json.sorted == sample.sorted)
    // The same with a field that Apple adds tomorrow, and one that is null.
    let tomorrow = sample.with(["tomorrow": ["a": [1, 2.5, .null]], "nothing": .null])
    let kept = try body.roundTrip(tomorrow)
    #expect(Set(kept.unknown) == ["tomorrow", "nothing"])
    #expect(kept.json.sorted == tomorrow.sorted)
  }

  @Test func `an unknown environment is kept as it is written`() throws {
    let sample = try Self.sample("transactionHistoryResponseWithMalformedEnvironment")
    let response = try HistoryResponse(json: sample)
    #expect(response.environment?.rawValue == "LocalTestingxxx")
    #expect(response.environment?.environment == nil)
  }

  @Test func `an Apple ID that is no number is refused, and the field is named`() throws {
    let sample = try Self.sample("transactionHistoryResponseWithMalformedAppAppleId")
    let error = #expect(throws: JSONError.self) { try HistoryResponse(json: sample) }
    #expect(error?.description == "has a field appAppleId that is not an integer")
  }

  @Test func `what the samples say is found in their fields`() throws {
    let history = try HistoryResponse(json: Self.sample("transactionHistoryResponse"))
    #expect(history.revision == "revision_output")
    #expect(history.hasMore == true)
    #expect(history.appAppleID == 323_232)
    #expect(history.signedTransactions?.count == 2)
    let statuses = try StatusResponse(json: Self.sample("getAllSubscriptionStatusesResponse"))
    let items = (statuses.data ?? []).flatMap { $0.lastTransactions ?? [] }
    #expect(items.map(\.status) == [.active, .revoked, .expired])
    #expect(items.map(\.originalTransactionID) == ["3749183", "5314314134", "3413453"])
    let notifications = try NotificationHistoryResponse(
      json: Self.sample("getNotificationHistoryResponse"))
    let attempts = (notifications.notificationHistory ?? []).flatMap { $0.sendAttempts ?? [] }
    #expect(
      attempts.map(\.sendAttemptResult)
        == ["NO_RESPONSE", "SUCCESS", "CIRCULAR_REDIRECT"])
    #expect(try OrderLookupResponse(json: Self.sample("lookupOrderIdResponse")).status == 1)
    let extended = try ExtendRenewalDateResponse(
      json: Self.sample("extendSubscriptionRenewalDateResponse"))
    #expect(extended.effectiveDate == Timestamp(milliseconds: 1_698_148_900_000))
    let unknown = try ServerAPIErrorBody(json: Self.sample("apiUnknownError"))
    #expect(unknown.errorCode?.rawValue == 9_990_000)
  }
}

extension JSONPayload {
  /// Members that the fields do not name, and null members.
  var unknownFields: [JSONValue.Member] {
    members.filter {
      $0.value == .null || Fields.schema.field(of: $0) == nil
    }
  }
}
