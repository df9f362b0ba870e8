import AppStore
import JSONText
import Subscriptions
import Testing

/// Lists that come twenty at a time.
struct ServerAPIPageTests {
  private static let app = "com.example.app"

  /// A history of so many pages, in the sandbox; the revision is the number of the next page.
  private static func history(pages: Int) -> ScriptedServerAPI {
    ScriptedServerAPI { asked in
      guard asked.environment == .sandbox else { return .refusal(404, code: 4_040_010) }
      let page = asked.target.split(separator: "revision=").dropFirst().first.flatMap { Int($0) }
      let next = (page ?? 0) + 1
      let id = JSONValue.string("\(next)")
      let transaction = Signed.transaction.with(["environment": "Sandbox", "transactionId": id])
      return .api([
        "revision": id, "hasMore": .bool(next < pages), "environment": "Sandbox",
        "bundleId": "com.example.app",
        "signedTransactions": [.string(try DraftJWS(transaction).text)],
      ])
    }
  }

  @Test func `every page is asked for with the same query, where the first one was`() async throws {
    let api = Self.history(pages: 3)
    var query = TransactionHistoryQuery()
    query.productTypes = [.autoRenewable]
    var ids: [String?] = []
    var revision: String?
    let pages = try api.client().transactionHistoryPages(of: "1", in: Self.app, query: query)
    for try await page in pages {
      #expect(page.environment == .sandbox)
      ids += page.content.transactions.map { $0.value?.payload.transactionID }
      revision = page.content.revision
    }
    #expect(ids == ["1", "2", "3"])
    #expect(revision == "3")
    let path = "/inApps/v2/history/1?productType=AUTO_RENEWABLE&sort=ASCENDING"
    #expect(
      api.asked.map(\.target) == [path, path, path + "&revision=1", path + "&revision=2"])
    #expect(api.asked.map(\.environment) == [.production, .sandbox, .sandbox, .sandbox])
  }

  @Test func `later, only changes are requested`() async throws {
    let api = Self.history(pages: 4)
    let pages = try api.client().transactionHistoryPages(
      of: "1", in: Self.app, environment: .sandbox, after: "2")
    var ids: [String?] = []
    for try await page in pages {
      ids += page.content.transactions.map { $0.value?.payload.transactionID }
    }
    #expect(ids == ["3", "4"])
  }

  @Test func `an error ends the list after what came before it`() async throws {
    let api = ScriptedServerAPI { asked in
      asked.target.contains("revision")
        ? .refusal(500, code: 5_000_001) : .api(["revision": "1", "hasMore": true])
    }
    var iterator = try api.client().refundHistoryPages(
      of: "1", in: Self.app, environment: .production
    ).makeAsyncIterator()
    #expect(try await iterator.next()?.content.revision == "1")
    await #expect(throws: AppStoreServerAPIError.self) { try await iterator.next() }
    #expect(try await iterator.next() == nil)
  }

  @Test(arguments: [nil, "1"] as [String?])
  func `a list that stands still is left`(revision: String?) async throws {
    let api = ScriptedServerAPI(
      .api(["hasMore": true, "revision": revision.map { .string($0) } ?? .null]))
    var count = 0
    let error = await serverAPIError {
      for try await _ in try api.client().refundHistoryPages(
        of: "1", in: Self.app, environment: .production, after: "1")
      { count += 1 }
    }
    #expect(error?.kind == .unexpectedAnswer)
    #expect(count == 1)
    #expect(api.asked.count == 1)
  }

  @Test func `notifications are listed by their own token`() async throws {
    let signed = try DraftJWS(Signed.notification()).text
    let api = ScriptedServerAPI { asked in
      let isLast = asked.target.hasSuffix("=p%3D")
      return .api([
        "paginationToken": isLast ? .null : "p=", "hasMore": .bool(!isLast),
        "notificationHistory": [
          [
            "signedPayload": .string(signed),
            "sendAttempts": [["attemptDate": 1000, "sendAttemptResult": "NO_RESPONSE"]],
          ]
        ],
      ])
    }
    let query = NotificationHistoryQuery(startDate: Signed.now - .days(7), endDate: Signed.now)
    var notifications: [SentNotification] = []
    for try await page in try api.client().notificationHistoryPages(
      query, of: Self.app, in: .production)
    { notifications += page.content.notifications }
    #expect(notifications.count == 2)
    #expect(notifications[0].attempts.map(\.sendAttemptResult) == ["NO_RESPONSE"])
    let notification = try #require(notifications[0].notification?.value)
    #expect(notification.notificationType == .didRenew)
    #expect(notification.transaction?.record.key.transactionID == "11")
    #expect(Set(api.asked.map(\.body)).count == 1)
  }
}
