import AppStore
import Foundation
import JSONText
import Subscriptions
import Testing

/// The method, path, query and body of each call.
struct ServerAPIRequestTests {
  private static let app = "com.example.app"

  struct Call: Sendable, CustomTestStringConvertible {
    var request: String
    var body: JSONValue?
    var ask: @Sendable (AppStoreServerAPI) async throws -> Void
    var testDescription: String { request }

    init(
      _ request: String, body: JSONValue? = nil,
      _ ask: @escaping @Sendable (AppStoreServerAPI) async throws -> Void
    ) {
      self.request = request
      self.body = body
      self.ask = ask
    }
  }

  private static let token = "7e3fb20b-4cdb-47cc-936d-99d65f608138"

  static let calls: [Call] = [
    Call("GET /inApps/v1/transactions/12") {
      _ = try await $0.transactionInfo("12", of: app)
    },
    Call("GET /inApps/v2/history/12?sort=ASCENDING") {
      _ = try await $0.transactionHistoryPages(of: "12", in: app).first { _ in true }
    },
    Call(
      "GET /inApps/v2/history/12?startDate=1&endDate=2&productId=a.b&productId=c%26d"
        + "&productType=AUTO_RENEWABLE&productType=CONSUMABLE&sort=DESCENDING"
        + "&subscriptionGroupIdentifier=7&inAppOwnershipType=FAMILY_SHARED&revoked=false"
        + "&revision=1_%2B%2F%3D%20x"
    ) {
      var query = TransactionHistoryQuery()
      query.startDate = Timestamp(milliseconds: 1)
      query.endDate = Timestamp(milliseconds: 2)
      query.productIDs = ["a.b", "c&d"]
      query.productTypes = [.autoRenewable, .consumable]
      query.order = .descending
      query.subscriptionGroupIdentifiers = ["7"]
      query.inAppOwnershipType = .familyShared
      query.revoked = false
      _ = try await $0.transactionHistoryPages(
        of: "12", in: app, query: query, after: "1_+/= x"
      ).first { _ in true }
    },
    Call("GET /inApps/v2/refund/lookup/12") {
      _ = try await $0.refundHistoryPages(of: "12", in: app).first { _ in true }
    },
    Call("GET /inApps/v2/refund/lookup/12?revision=r") {
      _ = try await $0.refundHistoryPages(of: "12", in: app, after: "r").first { _ in true }
    },
    Call("GET /inApps/v1/subscriptions/12") {
      _ = try await $0.subscriptionStatuses(of: "12", in: app)
    },
    Call("GET /inApps/v1/subscriptions/12?status=1&status=4") {
      _ = try await $0.subscriptionStatuses(of: "12", in: app, only: [.active, .gracePeriod])
    },
    Call("GET /inApps/v1/transactions/appTransactions/12") {
      _ = try await $0.appTransactionInfo(of: "12", in: app)
    },
    Call("GET /inApps/v1/lookup/MQ1%2Fa") { _ = try await $0.orderLookup("MQ1/a", in: app) },
    Call(
      "POST /inApps/v1/notifications/history", body: ["startDate": 1, "endDate": 2]
    ) {
      let query = NotificationHistoryQuery(
        startDate: Timestamp(milliseconds: 1), endDate: Timestamp(milliseconds: 2))
      _ = try await $0.notificationHistoryPages(query, of: app, in: .production).first { _ in true }
    },
    Call(
      "POST /inApps/v1/notifications/history",
      body: [
        "startDate": 1, "endDate": 2, "notificationType": "EXPIRED",
        "notificationSubtype": "VOLUNTARY", "onlyFailures": true,
      ]
    ) {
      var query = NotificationHistoryQuery(
        startDate: Timestamp(milliseconds: 1), endDate: Timestamp(milliseconds: 2))
      query.subject = .type(.expired, subtype: .init(rawValue: "VOLUNTARY"))
      query.onlyFailures = true
      _ = try await $0.notificationHistoryPages(query, of: app, in: .production).first { _ in true }
    },
    Call(
      "POST /inApps/v1/notifications/history",
      body: ["startDate": 1, "endDate": 2, "transactionId": "12"]
    ) {
      var query = NotificationHistoryQuery(
        startDate: Timestamp(milliseconds: 1), endDate: Timestamp(milliseconds: 2))
      query.subject = .transaction("12")
      _ = try await $0.notificationHistoryPages(query, of: app, in: .production).first { _ in true }
    },
    Call("POST /inApps/v1/notifications/test") {
      _ = try await $0.requestTestNotification(of: app, in: .production)
    },
    Call("GET /inApps/v1/notifications/test/\(token)_1") {
      _ = try await $0.testNotificationStatus("\(token)_1", of: app, in: .production)
    },
    Call(
      "PUT /inApps/v1/transactions/10/appAccountToken",
      body: ["appAccountToken": .string(token)]
    ) {
      let token = try #require(UUID(uuidString: token.uppercased()))
      _ = try await $0.setAppAccountToken(token, on: "10", of: app)
    },
    Call(
      "PUT /inApps/v1/subscriptions/extend/10",
      body: ["extendByDays": 90, "extendReasonCode": 3, "requestIdentifier": "r"]
    ) {
      var request = ExtendRenewalDateRequest()
      request.extendByDays = 90
      request.extendReasonCode = .serviceIssueOrOutage
      request.requestIdentifier = "r"
      _ = try await $0.extendRenewalDate(request, of: "10", in: app)
    },
    Call(
      "POST /inApps/v1/subscriptions/extend/mass",
      body: [
        "extendByDays": 1, "extendReasonCode": 0, "requestIdentifier": "r",
        "storefrontCountryCodes": ["USA"], "productId": "monthly",
      ]
    ) {
      var request = ExtendRenewalDateRequest()
      request.extendByDays = 1
      request.extendReasonCode = .undeclared
      request.requestIdentifier = "r"
      request.storefrontCountryCodes = ["USA"]
      request.productID = "monthly"
      _ = try await $0.extendRenewalDates(request, in: app, environment: .production)
    },
    Call("GET /inApps/v1/subscriptions/extend/mass/monthly/r") {
      _ = try await $0.extensionStatus(
        of: "r", productID: "monthly", in: app, environment: .production)
    },
    Call(
      "PUT /inApps/v2/transactions/consumption/12",
      body: [
        "customerConsented": true, "consumptionPercentage": 42_500, "deliveryStatus": "DELIVERED",
        "refundPreference": "GRANT_PRORATED", "sampleContentProvided": false,
      ]
    ) {
      var request = ConsumptionRequest()
      request.customerConsented = true
      request.consumptionPercentage = 42_500
      request.deliveryStatus = .delivered
      request.refundPreference = .grantProrated
      request.sampleContentProvided = false
      _ = try await $0.sendConsumptionInformation(request, on: "12", of: app)
    },
  ]

  @Test(arguments: calls)
  func `each call has its request`(call: Call) async throws {
    let api = ScriptedServerAPI(
      .api([
        "signedTransactionInfo": "a.b.c", "signedAppTransactionInfo": "a.b.c",
        "testNotificationToken": "t",
      ]))
    try await call.ask(api.client())
    let asked = try #require(api.asked.first)
    #expect(api.asked.count == 1)
    #expect("\(asked.method) \(asked.target)" == call.request)
    if let body = call.body {
      #expect(try JSONValue(parsing: asked.body).sorted == body.sorted)
    } else {
      #expect(asked.body.isEmpty)
    }
    let names = asked.headers.map(\.name)
    #expect(names.contains("Authorization") && names.contains("Accept"))
    #expect(names.contains("Content-Type") == (call.body != nil))
  }

  @Test func `an acknowledgement can have any body, or none`() async throws {
    for response in [
      AppStoreResponse(status: 202, body: []), AppStoreResponse(status: 200, body: [1, 2]),
    ] {
      let client = try ScriptedServerAPI(response).client()
      let answer = try await client.sendConsumptionInformation(.init(), on: "1", of: Self.app)
      #expect(answer.environment == .production)
    }
  }
}
