import AppStore
import JSONText
import Subscriptions
import Testing

/// The signed parts of answers, each believed for itself.
struct ServerAPIPartTests {
  private static let app = "com.example.app"

  private static func signed(_ payload: JSONValue) throws -> JSONValue {
    .string(try DraftJWS(payload).text)
  }

  @Test func `a part that is refused does not cost the others`() async throws {
    let parts: [(JSONValue, SignedDataError.Reason?)] = [
      (try Self.signed(Signed.transaction), nil),
      (.string(try DraftJWS(Signed.transaction).with { $0.leaf = .forger }.text), .untrustedChain),
      ("signed_transaction_value", .notThreeSegments),
      (try Self.signed(Signed.transaction.with(["environment": "Sandbox"])), .otherEnvironment),
      (try Self.signed(Signed.transaction.with(["bundleId": "com.example.other"])), .otherApp),
      (try Self.signed(Signed.transaction.with(["bundleId": "com.elsewhere"])), .wrongBundleID),
      (try Self.signed(Signed.transaction.with(["transactionId": "12"])), nil),
    ]
    let api = ScriptedServerAPI(
      .api(["revision": "1", "hasMore": false, "signedTransactions": .array(parts.map(\.0))]))
    let pages = try api.client().transactionHistoryPages(
      of: "10", in: Self.app, environment: .production)
    let page = try #require(try await pages.first { _ in true }).content
    #expect(page.transactions.map { $0.refusal?.reason } == parts.map(\.1))
    #expect(page.transactions.map { JSONValue.string($0.jws) } == parts.map(\.0))
    #expect(page.transactions.compactMap { $0.value?.payload.transactionID } == ["11", "12"])
    #expect(page.evidence.count == 2)
    #expect(page.transactions[0].description == "verified")
    #expect(page.transactions[1].description.hasPrefix("refused: The signed transaction "))
  }

  @Test func `one transaction, verified or not`() async throws {
    for (payload, reason) in [
      (Signed.transaction, nil),
      (Signed.transaction.with(["environment": "Sandbox"]), .otherEnvironment),
    ] as [(JSONValue, SignedDataError.Reason?)] {
      let api = ScriptedServerAPI(.api(["signedTransactionInfo": try Self.signed(payload)]))
      let part = try await api.client().transactionInfo("11", of: Self.app, in: .production).content
      #expect(part.refusal?.reason == reason)
      #expect((part.value?.record.key.transactionID == "11") == (reason == nil))
    }
    let empty = try ScriptedServerAPI(.api([:])).client()
    let error = await serverAPIError { try await empty.transactionInfo("11", of: Self.app) }
    #expect(error?.kind == .unexpectedAnswer)
  }

  @Test func `statuses come with their meaning`() async throws {
    let grace = Signed.renewalInfo.with([
      "gracePeriodExpiresDate": .integer((Signed.now + .days(16)).milliseconds),
      "isInBillingRetryPeriod": true, "renewalDate": 1_748_779_100_000,
    ])
    let transaction = Signed.transaction.with(["expiresDate": 1_748_779_100_000])
    let api = ScriptedServerAPI(
      .api([
        "environment": "Production", "bundleId": "com.example.app", "appAppleId": 41234,
        "data": [
          [
            "subscriptionGroupIdentifier": "20000001",
            "lastTransactions": [
              [
                "originalTransactionId": "10", "status": 4,
                "signedTransactionInfo": try Self.signed(transaction),
                "signedRenewalInfo": try Self.signed(grace),
              ],
              [
                "originalTransactionId": "77", "status": 1,
                "signedTransactionInfo": try Self.signed(transaction),
                "signedRenewalInfo": try Self.signed(grace),
              ],
            ],
          ]
        ],
      ]))
    let statuses = try await api.client().subscriptionStatuses(of: "10", in: Self.app).content
    let lines = try #require(statuses.groups.first).lines
    #expect(statuses.groups.map(\.identifier) == ["20000001"])
    #expect(lines.map(\.status) == [.gracePeriod, .active])
    #expect(lines[0].transaction?.refusal == nil && lines[0].renewalInfo?.refusal == nil)
    let line = OriginalTransactionKey(.production, "10")
    #expect(statuses.evidence.map(\.line) == [line, line])
    guard case .renewalStatus(let status, _)? = statuses.evidence.last else {
      Issue.record("no renewal status")
      return
    }
    #expect(status.phase == .gracePeriod(until: Signed.now + .days(16)))
    // From another line than the response names.
    #expect(lines[1].transaction?.refusal?.reason == .otherOriginalTransaction)
    #expect(lines[1].renewalInfo?.refusal?.reason == .otherOriginalTransaction)
  }

  @Test func `an app transaction is of the app and the environment that was asked`() async throws {
    let table: [(JSONValue, SignedDataError.Reason?)] = [
      (Signed.appTransaction, nil),
      (Signed.appTransaction.with(["receiptType": "Sandbox"]), .otherEnvironment),
      (Signed.appTransaction.with(["bundleId": "com.example.other"]), .otherApp),
      (Signed.appTransaction.with(["appAppleId": 1]), .wrongAppAppleID),
    ]
    for (payload, reason) in table {
      let api = ScriptedServerAPI(.api(["signedAppTransactionInfo": try Self.signed(payload)]))
      let part = try await api.client().appTransactionInfo(
        of: "11", in: Self.app, environment: .production
      ).content
      #expect(part.refusal?.reason == reason)
    }
  }

  @Test func `a test notification's outcome`() async throws {
    let payload = try Signed.notification(
      "TEST", transaction: nil, renewalInfo: nil, data: ["status": nil])
    let api = ScriptedServerAPI { asked in
      asked.method == "POST"
        ? .api(["testNotificationToken": "t"])
        : .api([
          "signedPayload": try Self.signed(payload),
          "sendAttempts": [["attemptDate": 1000, "sendAttemptResult": "SUCCESS"]],
        ])
    }
    let client = try api.client()
    let token = try await client.requestTestNotification(of: Self.app, in: .production).content
    let outcome = try await client.testNotificationStatus(token, of: Self.app, in: .production)
    #expect(outcome.content.notification?.value?.notificationType == .test)
    #expect(outcome.content.attempts.map(\.sendAttemptResult) == ["SUCCESS"])
    let elsewhere = try await client.testNotificationStatus(token, of: Self.app, in: .sandbox)
    #expect(elsewhere.content.notification?.refusal?.reason == .otherEnvironment)
  }

  @Test func `an order's transactions`() async throws {
    let api = ScriptedServerAPI(
      .api(["status": 0, "signedTransactions": [try Self.signed(Signed.transaction)]]))
    let order = try await api.client().orderLookup("MQ1", in: Self.app).content
    #expect(order.status == 0)
    #expect(order.transactions.map { $0.value?.record.key.transactionID } == ["11"])
    let unknown = try ScriptedServerAPI(.api(["status": 1])).client()
    let none = try await unknown.orderLookup("MQ1", in: Self.app).content
    #expect(none.status == 1 && none.transactions.isEmpty)
  }
}
