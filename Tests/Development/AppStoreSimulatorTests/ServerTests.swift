import AppStore
import AppStoreSimulator
import JSONText
import Logging
import ServiceLifecycle
import Subscriptions
import Testing

/// The server as clients see it, on a real port.
@Suite(.timeLimit(.minutes(10)))
struct ServerTests {
  private let stage: Stage
  private let server: AppStoreSimulatorServer
  private let logger: Logger

  init() throws {
    stage = try Stage()
    try stage.simulation.buy("monthly", on: "phone")
    var logger = Logger(label: "test")
    logger.logLevel = .critical
    self.logger = logger
    server = AppStoreSimulatorServer(simulation: stage.simulation, logger: logger)
  }

  /// Runs the server while `work` talks to its port.
  private func serving(
    on other: AppStoreSimulatorServer? = nil,
    _ work: @Sendable @escaping (Int) async throws -> Void
  ) async throws {
    let server = other ?? server
    try await withThrowingTaskGroup(of: Void.self) { group in
      group.addTask { try? await server.run() }
      try await work(try await server.port)
      group.cancelAll()
    }
  }

  private func request() throws -> [UInt8] {
    Stage.body(try stage.simulation.receipt(on: "phone"))
  }

  private func json(_ outcome: RawHTTP.Outcome, status: Int = 200) throws -> JSONValue {
    guard case .response(status, _, let body) = outcome else {
      Issue.record("Not an answer with \(status): \(outcome)")
      return .null
    }
    return try JSONValue(parsing: Array(body.utf8))
  }

  @Test func bothEndpoints() async throws {
    let body = try request()
    try await serving { port in
      let production = try json(try await RawHTTP.send("POST", "/verifyReceipt", body, port: port))
      #expect(production.status == 0)
      #expect(production.latest.count == 1)
      let sandbox = try json(
        try await RawHTTP.send("POST", "/sandbox/verifyReceipt", body, port: port))
      #expect(sandbox.status == 21008)
      let get = try json(try await RawHTTP.send("GET", "/verifyReceipt", port: port))
      #expect(get.status == 21000)
    }
  }

  @Test func faultsOverHTTP() async throws {
    let body = try request()
    let simulation = stage.simulation
    try await serving { port in
      func ask(_ fault: SimulatedFault) async throws -> RawHTTP.Outcome {
        simulation.setFaults { $0.next = [fault] }
        // Only silence is waited out: everything else comes, on a busy machine late.
        return try await RawHTTP.send(
          "POST", "/verifyReceipt", body, port: port,
          patience: fault == .timeout ? .milliseconds(700) : RawHTTP.patience)
      }
      #expect(try await ask(.reset) == .reset)
      #expect(try await ask(.timeout) == .silence)
      guard case .cutOff(let received, let announced) = try await ask(.cutOff) else {
        Issue.record("The answer was not cut off.")
        return
      }
      #expect(received == announced / 2)

      guard case .response(503, let headers, let page) = try await ask(.unavailable) else {
        Issue.record("No 503.")
        return
      }
      #expect(headers["content-type"] == "text/html")
      #expect(page.hasPrefix("<html>"))
      guard case .response(200, _, let html) = try await ask(.html) else {
        Issue.record("No page.")
        return
      }
      #expect(html.hasPrefix("<html>"))
      guard case .response(200, _, let truncated) = try await ask(.truncated) else {
        Issue.record("No truncated answer.")
        return
      }
      #expect(throws: (any Error).self) { try JSONValue(parsing: Array(truncated.utf8)) }
      #expect(truncated.hasPrefix(#"{"environment":"#))
      guard
        case .response(429, let limited, _) = try await ask(.tooManyRequests(retryAfterSeconds: 7))
      else {
        Issue.record("No 429.")
        return
      }
      #expect(limited["retry-after"] == "7")

      #expect(try json(try await ask(.status(21005))).status == 21005)
      let number = try json(try await ask(.internalError(21100, isRetryable: true, asNumber: true)))
      #expect(number["is-retryable"] == 1)
      let bool = try json(try await ask(.internalError(21101, isRetryable: false, asNumber: false)))
      #expect(bool["is-retryable"] == false)

      let before = ContinuousClock.now
      #expect(try json(try await ask(.slow(milliseconds: 300))).status == 0)
      #expect(ContinuousClock.now - before >= .milliseconds(300))
      #expect(try json(try await ask(.large(bytes: 10_000_000))).status == 0)
      // The faults are used up.
      let good = try await RawHTTP.send("POST", "/verifyReceipt", body, port: port)
      #expect(try json(good).status == 0)
    }
  }

  @Test func outageUntilAMoment() async throws {
    let body = try request()
    let simulation = stage.simulation
    try await serving { port in
      simulation.setFaults {
        $0.outageEnd = Stage.start + .hours(1)
        $0.outage = .status(21005)
      }
      let during = try await RawHTTP.send("POST", "/verifyReceipt", body, port: port)
      #expect(try json(during).status == 21005)
      simulation.advance(by: .hours(1))
      let after = try await RawHTTP.send("POST", "/verifyReceipt", body, port: port)
      #expect(try json(after).status == 0)
    }
  }

  @Test func wholeStoryWithCurl() async throws {
    try await serving { port in
      func post(_ action: String, _ fields: JSONValue) async throws -> JSONValue {
        try json(try await RawHTTP.send("POST", "/simulator/\(action)", fields.bytes, port: port))
      }
      func get(_ path: String) async throws -> JSONValue {
        try json(try await RawHTTP.send("GET", "/simulator/\(path)", port: port))
      }
      _ = try await post(
        "add-app",
        [
          "bundle_id": "com.example.other", "shared_secret": "s", "grace_days": 3,
          "products": [
            [
              "product_id": "gold", "type": "auto_renewable", "group": "7", "level": 1,
              "period": "P1W",
            ],
            ["product_id": "gem", "type": "consumable"],
          ],
        ])
      _ = try await post("add-apple-id", ["apple_id": "eve"])
      _ = try await post("add-device", ["device": "eve's phone", "apple_id": "eve"])
      _ = try await post("log-in", ["device": "eve's phone", "account": "E"])
      let bought = try await post("buy", ["device": "eve's phone", "product_id": "gold"])
      #expect(bought["kind"] == "subscribed")
      let line = try #require(bought["original_transaction_id"])
      _ = try await post("auto-renew", ["original_transaction_id": line, "on": false])
      _ = try await post("auto-renew", ["original_transaction_id": line, "on": true])
      let advanced = try await post("advance", ["by": "P2W"])
      #expect(advanced["now"] == "2026-01-15T00:00:00.000Z")
      #expect(advanced["events"]?.array?.contains { $0["kind"] == "renewed" } == true)
      let receipt = try await get("receipt?device=eve's%20phone&bundle_id=com.example.other")
      let answer = try json(
        try await RawHTTP.send(
          "POST", "/verifyReceipt",
          Stage.body(try #require(receipt.text("receipt_data")), "s"), port: port))
      #expect(answer.latest.count == 3)
      let truth = try await get("truth?transaction_id=\(bought.text("transaction_id") ?? "")")
      #expect(truth["account"] == "E")
      #expect(try await get("truth")["charges"]?.array?.count == 4)
      _ = try await post("refund", ["transaction_id": try #require(bought["transaction_id"])])
      let last = try await get("events?after=0")["events"]?.array?.last
      #expect(last?["kind"] == "refunded")
      _ = try await post("faults", ["next": ["21005", 21009, "reset"], "rate": 0.5])
      _ = try await post("faults", [:])
      _ = try await post("quirks", ["quirks": ["shuffled", "empty_in_app"]])
      _ = try await post("answer-lag", ["seconds": 60])
      #expect(try await get("clock")["now"] == "2026-01-15T00:00:00.000Z")
    }
  }

  @Test func serverAPIOverHTTP() async throws {
    let bought = try #require(stage.simulation.truth().first).transactionID
    let token = "Bearer \(try stage.token())"
    try await serving { port in
      func get(_ path: String, _ authorization: String? = token) async throws -> RawHTTP.Outcome {
        try await RawHTTP.send("GET", path, authorization: authorization, port: port)
      }
      let info = try json(try await get("/inApps/v1/transactions/\(bought)"))
      #expect(try SignedParts(try #require(info.text("signedTransactionInfo"))).isSigned)
      let history = try json(
        try await get("/inApps/v2/history/\(bought)?productType=CONSUMABLE&productId=a%2Eb"))
      #expect(history["signedTransactions"] == [])
      let wrong = try json(
        try await get("/inApps/v2/history/\(bought)?productType=COIN"), status: 400)
      #expect(wrong["errorCode"] == 4_000_022)
      let sandbox = try json(
        try await get("/sandbox/inApps/v1/transactions/\(bought)"), status: 404)
      #expect(sandbox["errorCode"] == 4_040_010)
      let body: JSONValue = ["appAccountToken": "x"]
      let put = try json(
        try await RawHTTP.send(
          "PUT", "/inApps/v1/transactions/\(bought)/appAccountToken", body.bytes,
          authorization: token, port: port), status: 400)
      #expect(put["errorCode"] == 4_000_183)
      let post = try json(
        try await RawHTTP.send(
          "POST", "/inApps/v1/notifications/test", authorization: token, port: port), status: 404)
      #expect(post["errorCode"] == 4_040_007)
      guard
        case .response(401, _, let refusal) = try await get("/inApps/v1/transactions/1", nil),
        case .response(404, _, _) = try await get("/inApps/v9/transactions/1")
      else {
        Issue.record("No 401, or no 404.")
        return
      }
      #expect(!refusal.contains("{"))
    }
    stage.simulation.setRateLimitScale(0)
    try await serving(on: AppStoreSimulatorServer(simulation: stage.simulation, logger: logger)) {
      port in
      guard
        case .response(429, let headers, _) = try await RawHTTP.send(
          "GET", "/inApps/v1/transactions/\(bought)", authorization: token, port: port)
      else {
        Issue.record("No 429.")
        return
      }
      #expect(headers["retry-after"] == String((Stage.start + .hours(1)).milliseconds))
    }
  }

  @Test func deliversWhileItRuns() async throws {
    let app = StandInServer()
    let server = AppStoreSimulatorServer(
      simulation: stage.simulation,
      sender: NotificationSender(simulation: stage.simulation, transport: app), logger: logger)
    let simulation = stage.simulation
    try await serving(on: server) { port in
      func post(_ action: String, _ fields: JSONValue) async throws -> JSONValue {
        try json(try await RawHTTP.send("POST", "/simulator/\(action)", fields.bytes, port: port))
      }
      _ = try await post("notify", ["url": .string(Stage.url), "version": "both"])
      _ = try await post("notification-faults", ["next": ["doubled", "late:60"]])
      let line = try #require(simulation.truth().first).originalTransactionID
      let switched = try await post(
        "auto-renew", ["original_transaction_id": .string(line.rawValue), "on": false])
      #expect(switched["kind"] == "auto_renew_turned_off")
      _ = try await post("advance", ["seconds": 60])
      // Version 1 twice, version 2 late: three times altogether.
      while app.requests.count < 3 { try await Task.sleep(for: .milliseconds(5)) }
      let written = try json(
        try await RawHTTP.send("GET", "/simulator/notifications", port: port))
      let list = try #require(written["notifications"]?.array)
      #expect(list.map { $0.text("version") } == ["v1", "v2"])
      #expect(list.map { $0["attempts"]?.array?.count } == [2, 1])
      #expect(list[1]["attempts"]?.array?.first?.text("result") == "SUCCESS")
      let test = try await post("send-test", [:])
      #expect(test["type"] == "TEST")
      while app.requests.count < 4 { try await Task.sleep(for: .milliseconds(5)) }
      _ = try await post("notify", [:])
      let wrong = try json(
        try await RawHTTP.send("POST", "/simulator/send-test", port: port), status: 400)
      #expect(wrong["error"] == "not_possible")
    }
  }

  @Test func signedDataWithCurl() async throws {
    let simulation = stage.simulation
    let event = try #require(simulation.events().first)
    try await serving { port in
      func get(_ path: String) async throws -> JSONValue {
        try json(try await RawHTTP.send("GET", "/simulator/\(path)", port: port))
      }
      func post(_ action: String, _ fields: JSONValue) async throws -> JSONValue {
        try json(try await RawHTTP.send("POST", "/simulator/\(action)", fields.bytes, port: port))
      }
      #expect(try await get("root-certificate").text("pem") == simulation.rootCertificatePEM)
      let key = try await get("api-key")
      #expect(key.text("issuer_id") == simulation.apiKey.issuerID)
      #expect(key.text("key_id") == simulation.apiKey.keyID)
      #expect(key.text("private_key") == simulation.apiKey.privateKeyPEM)
      let id: JSONValue = .string(event.transactionID.rawValue)
      let line: JSONValue = .string(event.originalTransactionID.rawValue)
      let signed = try await get("signed-transaction?transaction_id=\(event.transactionID)")
      #expect(
        try SignedParts(try #require(signed.text("signed_transaction"))).payload["transactionId"]
          == id)
      let info = try await get(
        "signed-renewal-info?original_transaction_id=\(event.originalTransactionID)")
      #expect(try SignedParts(try #require(info.text("signed_renewal_info"))).isSigned)
      let device = try await get("signed-transactions?device=phone")
      for list in ["signed_transactions", "current_entitlements", "signed_renewal_infos"] {
        #expect(device[list]?.array?.count == 1)
      }
      let requested = try await post("request-refund", ["transaction_id": id, "reason": "OTHER"])
      #expect(requested["kind"] == "refund_requested")
      #expect(requested["reason"] == "OTHER")
      #expect(try await post("decline-refund", ["transaction_id": id])["kind"] == "refund_declined")
      let reports = try await get("consumption-reports?transaction_id=\(event.transactionID)")
      #expect(reports["reports"] == [])
      let extended = try await post("extend", ["original_transaction_id": line, "days": 3])
      #expect(extended["days"] == 3)
      let migrated = try await post("migrate", ["original_transaction_id": line])
      #expect(migrated["previous_original_transaction_id"] == line)
      _ = try await post("api-faults", ["next": ["5000001", 4_040_002], "rate": 0.1])
      _ = try await post("rate-limits", ["scale": 0.5])
      _ = try await post("rate-limits", [:])
    }
  }

  @Test func helpNamesEveryAction() async throws {
    try await serving { port in
      guard
        case .response(200, _, let help) = try await RawHTTP.send("GET", "/simulator", port: port)
      else {
        Issue.record("No help.")
        return
      }
      for action in [
        "buy", "advance", "refund", "restore", "faults", "truth", "receipt", "signed-transaction",
        "extend", "migrate", "request-refund", "notify", "send-test", "api-key", "rate-limits",
      ] {
        #expect(help.contains("/simulator/\(action) "))
      }
    }
  }

  @Test(arguments: [
    ("buy", "not json", "invalid_request", "JSON object"),
    ("buy", "{}", "invalid_request", "product_id is missing"),
    (
      "buy", #"{"product_id": 5, "device": "phone"}"#, "invalid_request", "product_id is not a text"
    ),
    (
      "buy", #"{"product": "monthly", "device": "phone"}"#, "invalid_request",
      "Unknown field product;"
    ),
    ("buy", #"{"product_id": "gold", "device": "phone"}"#, "unknown_product", "gold"),
    (
      "buy", #"{"product_id": "premium", "device": "phone", "app_account_token": "x"}"#,
      "invalid_request", "not a UUID"
    ),
    ("advance", #"{"by": "a month"}"#, "invalid_request", "by is not a period"),
    ("advance", #"{"by": "P9999Y"}"#, "invalid_request", "by is not a period"),
    ("advance", #"{"seconds": 9223372036854775807}"#, "invalid_request", "seconds is not a number"),
    ("advance", #"{"seconds": -1}"#, "invalid_request", "seconds is not a number"),
    ("advance", #"{"by": "P99Y", "seconds": 99999999}"#, "invalid_request", "a hundred years"),
    ("advance", #"{"to": "9999-12-31T23:59:59Z"}"#, "invalid_request", "a hundred years"),
    (
      "answer-lag", #"{"seconds": 9223372036854775807}"#, "invalid_request",
      "seconds is not a number"
    ),
    ("answer-lag", "{}", "invalid_request", "seconds is missing"),
    (
      "faults", #"{"next": ["slow:9223372036854775807"]}"#, "invalid_request",
      "next is not a list of faults"
    ),
    ("add-apple-id", #"{"apple_id": ""}"#, "invalid_request", "apple_id is not"),
    (
      "add-apple-id", #"{"apple_id": "x", "environment": "xcode"}"#, "invalid_request",
      "production, sandbox"
    ),
    ("faults", #"{"next": ["boom"]}"#, "invalid_request", "next is not a list of faults"),
    ("notify", #"{"url": "http://a", "version": "v3"}"#, "invalid_request", "version is not v1"),
    ("notification-faults", #"{"next": ["boom"]}"#, "invalid_request", "next is not a list"),
    ("rate-limits", #"{"scale": -1}"#, "invalid_request", "scale is not a number"),
    ("extend", #"{"original_transaction_id": "1", "days": 1}"#, "unknown_line", "transaction 1"),
    ("migrate", #"{"original_transaction_id": "1"}"#, "unknown_line", "transaction 1"),
    ("send-test", "{}", "not_possible", "No App Store Server Notification URL"),
    ("faults", #"{"rate": 2}"#, "invalid_request", "rate is not a number from 0 to 1"),
    ("quirks", #"{"quirks": ["tidy"]}"#, "invalid_request", "quirks is not a list"),
    ("refund", #"{"transaction_id": "1"}"#, "unknown_transaction", "no transaction 1"),
    (
      "card", #"{"apple_id": "ada", "works": "yes"}"#, "invalid_request",
      "works is not true or false"
    ),
    (
      "add-app",
      #"{"bundle_id": "b", "shared_secret": "s", "products": [{"product_id": "p", "type": "x"}]}"#,
      "invalid_request", "type is not one of"
    ),
  ])
  func wrongInput(_ action: String, _ body: String, _ code: String, _ detail: String) async throws {
    try await serving { port in
      let outcome = try await RawHTTP.send(
        "POST", "/simulator/\(action)", Array(body.utf8), port: port)
      let answer = try json(outcome, status: 400)
      #expect(answer["error"] == .string(code))
      #expect(answer.text("detail")?.contains(detail) == true, "\(answer)")
    }
  }

  @Test func shutsDownGracefullyWhileARequestHangs() async throws {
    let body = try request()
    stage.simulation.setFaults { $0.next = [.timeout] }
    let server = server
    let group = ServiceGroup(
      configuration: ServiceGroupConfiguration(services: [server], logger: logger))
    try await withThrowingTaskGroup(of: Void.self) { tasks in
      tasks.addTask { try await group.run() }
      let port = try await server.port
      tasks.addTask {
        let outcome = try await RawHTTP.send("POST", "/verifyReceipt", body, port: port)
        #expect(outcome != .silence)
      }
      try await Task.sleep(for: .milliseconds(200))
      let before = ContinuousClock.now
      await group.triggerGracefulShutdown()
      try await tasks.waitForAll()
      // Far less than the 300 seconds for which an unanswered request is otherwise kept.
      #expect(ContinuousClock.now - before < RawHTTP.patience)
    }
  }

  @Test func aTakenPortIsAnError() async throws {
    let logger = logger
    try await serving { port in
      let second = AppStoreSimulatorServer(
        simulation: stage.simulation, configuration: .init(port: port), logger: logger)
      await #expect(throws: (any Error).self) { try await second.run() }
      await #expect(throws: (any Error).self) { try await second.port }
    }
  }
}
