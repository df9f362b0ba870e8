import AppStore
import JSONText
import Subscriptions
import Synchronization
import Testing

/// How many requests an app sends: never more than Apple allows it.
struct ServerAPIRateLimitTests {
  private static let app = "com.example.app"

  private static let tokenAnswer: AppStoreResponse = .api(["testNotificationToken": "t"])

  /// How many requests of one kind go out at once, before anyone waits.
  private func burst(
    _ environment: Environment, limit: Int,
    _ ask: (AppStoreServerAPI) async throws -> Void
  ) async throws -> Int {
    let api = ScriptedServerAPI(.api(["testNotificationToken": "t", "signedTransactionInfo": "a"]))
    let client = try api.client(patience: .zero)
    while api.asked.count <= limit {
      let count = api.asked.count
      let error = await serverAPIError { try await ask(client) }
      if api.asked.count == count {
        #expect(error?.kind == .rateLimited)
        #expect(error?.httpStatus == nil)
        #expect(error.flatMap(\.notBefore) ?? api.now > api.now)
        break
      }
    }
    #expect(api.asked.allSatisfy { $0.environment == environment })
    return api.asked.count
  }

  /// A minute's worth of Apple's table, a tenth of it in the sandbox.
  @Test func `a minute's worth can go at once`() async throws {
    let info = try await burst(.production, limit: 3000) {
      _ = try await $0.transactionInfo("1", of: Self.app, in: .production)
    }
    #expect(info == 50 * 60)
    let token = try await burst(.sandbox, limit: 200) {
      _ = try await $0.extendRenewalDate(.init(), of: "1", in: Self.app, environment: .sandbox)
    }
    #expect(token == 20 * 6)
    let order = try await burst(.production, limit: 1000) {
      _ = try await $0.orderLookup("1", in: Self.app)
    }
    #expect(order == 10 * 60)
    let test = try await burst(.production, limit: 100) {
      _ = try await $0.requestTestNotification(of: Self.app, in: .production)
    }
    #expect(test == 60)
    let mass = try await burst(.sandbox, limit: 100) {
      _ = try await $0.extendRenewalDates(.init(), in: Self.app, environment: .sandbox)
    }
    #expect(mass == 6)
  }

  @Test func `calls, environments and apps are counted apart`() async throws {
    let api = ScriptedServerAPI(Self.tokenAnswer)
    let client = try api.client(patience: .zero)
    func isSent(_ app: String, _ environment: Environment) async -> Bool {
      let count = api.asked.count
      _ = try? await client.requestTestNotification(of: app, in: environment)
      return api.asked.count > count
    }
    while await isSent(Self.app, .sandbox) {}
    #expect(await isSent(Self.app, .production))
    #expect(await isSent("com.example.other", .sandbox))
    #expect(await isSent(Self.app, .sandbox) == false)
    _ = try? await client.testNotificationStatus("t", of: Self.app, in: .sandbox)
    #expect(api.asked.last?.target == "/inApps/v1/notifications/test/t")
  }

  @Test(arguments: 1...4 as ClosedRange<UInt64>)
  func `no hour has more requests than Apple allows, however they come`(
    seed: UInt64
  ) async throws {
    var random = SplitMix64(seed: seed)
    let most = try await mostInAnHour { api in
      // Mostly at once, at times after a pause.
      if random.next() % 300 == 0 { api.pass(.seconds(Int(random.next() % 900))) }
    }
    #expect(most <= 360, "seed \(seed)")
  }

  @Test func `a caller that goes on asking gets all that Apple allows`() async throws {
    // The last of an hour comes at its end, or a millisecond later.
    #expect((359...360).contains(try await mostInAnHour { _ in }))
  }

  /// Asks for something of which there may be 360 in an hour, and counts.
  private func mostInAnHour(pause: (ScriptedServerAPI) -> Void) async throws -> Int {
    let api = ScriptedServerAPI(Self.tokenAnswer)
    let client = try api.client(patience: .minutes(2))
    for _ in 0..<1500 {
      _ = try? await client.requestTestNotification(of: Self.app, in: .sandbox)
      pause(api)
    }
    let moments = api.asked.map(\.at.milliseconds)
    var (first, most) = (0, 0)
    for (last, moment) in moments.enumerated() {
      while moment - moments[first] >= 3_600_000 { first += 1 }
      most = max(most, last - first + 1)
    }
    return most
  }

  @Test func `after a 429 nothing is sent until the moment that Apple names`() async throws {
    let reopens = Signed.now + .minutes(30)
    let header = HTTPHeader("Retry-After", "\(reopens.milliseconds)")
    let api = ScriptedServerAPI { asked in
      asked.at < reopens ? .refusal(429, code: 4_290_000, headers: [header]) : Self.tokenAnswer
    }
    let client = try api.client()
    for _ in 0..<3 {
      let error = await serverAPIError {
        try await client.requestTestNotification(of: Self.app, in: .production)
      }
      #expect(error?.kind == .rateLimited)
      #expect(error?.isRetryable == true)
      #expect(error?.notBefore == reopens)
    }
    // The first has found out; the others were not sent.
    #expect(api.asked.count == 1)
    // Another call is another limit.
    _ = try? await client.transactionInfo("1", of: Self.app, in: .production)
    #expect(api.asked.count == 2)
    api.pass(.minutes(30))
    _ = try await client.requestTestNotification(of: Self.app, in: .production)
    #expect(api.asked.count == 3)
  }

  @Test func `a short wait is waited for, and the request is sent again`() async throws {
    let reopens = Signed.now + .seconds(7)
    let header = HTTPHeader("Retry-After", "\(reopens.milliseconds)")
    let api = ScriptedServerAPI { asked in
      asked.at < reopens ? .refusal(429, code: 4_290_000, headers: [header]) : Self.tokenAnswer
    }
    _ = try await api.client().requestTestNotification(of: Self.app, in: .production)
    #expect(api.asked.map(\.at) == [Signed.now, reopens])
    let impatient = try ScriptedServerAPI(
      .refusal(429, code: 4_290_000, headers: [header])
    ).client(patience: .seconds(6))
    let error = await serverAPIError {
      try await impatient.requestTestNotification(of: Self.app, in: .production)
    }
    #expect(error?.notBefore == reopens)
  }

  @Test func `a server that never opens is not asked for ever`() async throws {
    let api = ScriptedServerAPI { asked in
      let header = HTTPHeader("Retry-After", "\((asked.at + .seconds(1)).milliseconds)")
      return .refusal(429, code: 4_290_000, headers: [header])
    }
    let client = try api.client()
    let error = await serverAPIError {
      try await client.requestTestNotification(of: Self.app, in: .production)
    }
    #expect(error?.kind == .rateLimited)
    #expect(api.asked.count == 4)
  }

  @Test func `without a moment a 429 closes for a minute`() async throws {
    let client = try ScriptedServerAPI(.refusal(429)).client()
    let error = await serverAPIError {
      try await client.requestTestNotification(of: Self.app, in: .production)
    }
    #expect(error?.notBefore == Signed.now + .minutes(1))
  }

  @Test func `waiting for a turn ends when the task is cancelled`() async throws {
    let api = ScriptedServerAPI(Self.tokenAnswer)
    let client = try api.client(patience: .hours(1)) { _ in throw CancellationError() }
    for _ in 0..<6 {
      _ = try await client.requestTestNotification(of: Self.app, in: .sandbox)
    }
    await #expect(throws: CancellationError.self) {
      try await client.requestTestNotification(of: Self.app, in: .sandbox)
    }
    #expect(api.asked.count == 6)
  }

  @Test func `a request that waits for its turn learns of a 429`() async throws {
    let reopens = Signed.now + .hours(1)
    let header = HTTPHeader("Retry-After", "\(reopens.milliseconds)")
    let api = ScriptedServerAPI { asked in
      asked.at == Signed.now
        ? Self.tokenAnswer : .refusal(429, code: 4_290_000, headers: [header])
    }
    let other = Mutex<AppStoreServerAPI?>(nil)
    let isFirst = Mutex(true)
    let client = try api.client(patience: .minutes(1)) { duration in
      api.pass(duration)
      let client = isFirst.withLock { isFirst in
        defer { isFirst = false }
        return isFirst ? other.withLock { $0 } : nil
      }
      // While the first sleeps, a second one is refused.
      _ = try? await client?.requestTestNotification(of: Self.app, in: .sandbox)
    }
    other.withLock { $0 = client }
    for _ in 0..<6 {
      _ = try await client.requestTestNotification(of: Self.app, in: .sandbox)
    }
    let error = await serverAPIError {
      try await client.requestTestNotification(of: Self.app, in: .sandbox)
    }
    #expect(error?.notBefore == reopens)
    #expect(api.asked.count == 7)
  }
}
