import AppStore
import AsyncHTTPClient
import Foundation
import Secrets
import Subscriptions
import Testing

/// Network failures, each as it happens on a socket.
struct TransportTests {
  private static let good = """
    {"status": 0, "environment": "Production", "receipt": {"bundle_id": "com.example.app", \
    "in_app": [{"product_id": "coins", "transaction_id": "1", "purchase_date_ms": "1"}]}}
    """

  private func verify(
    timeout: Duration = patience,
    answerLimitBytes: Int = HTTPClientTransport.answerLimitBytes,
    _ actions: @escaping @Sendable (StandInApple.Request) -> [StandInApple.Action]
  ) async throws -> ReceiptVerification {
    try await StandInApple.serving(actions) { apple in
      try await HTTPClient.withApple { client in
        try await ReceiptVerifier(
          HTTPClientTransport(client: client, answerLimitBytes: answerLimitBytes),
          apps: try apps("com.example.app"), endpoints: apple.endpoints, timeout: timeout
        ).verify("cmVjZWlwdA==")
      }
    }
  }

  /// A fault, and the text expected in the retry's reason.
  struct Fault: CustomTestStringConvertible, Sendable {
    var name: String
    var actions: [StandInApple.Action]
    var reason: String
    /// The part of the response that the exchange keeps.
    var kept: (status: Int?, bytes: Int)
    var testDescription: String { name }
  }

  static let html = "<html><body><h1>503 Service Unavailable</h1></body></html>"

  static let faults = [
    Fault(
      name: "reset before the answer", actions: [.reset], reason: "connection to Apple was lost",
      kept: (nil, 0)),
    Fault(
      name: "closed before the answer", actions: [], reason: "connection to Apple was lost",
      kept: (nil, 0)),
    Fault(
      name: "closed in the middle",
      actions: [.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"status\": 0")],
      reason: "connection to Apple was lost", kept: (200, 12)),
    Fault(
      name: "reset in the middle",
      actions: [
        .send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"status\": 0"),
        .pause(.milliseconds(200)), .reset,
      ], reason: "connection to Apple was lost", kept: (200, 12)),
    Fault(
      name: "truncated without a length",
      actions: [.send("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{\"status\": 0, \"rec")],
      reason: "broken or incomplete JSON: 18 bytes", kept: (200, 18)),
    Fault(
      name: "empty", actions: [.answer("")], reason: "response is empty", kept: (200, 0)),
    Fault(
      name: "HTML with 200", actions: [.answer(html, type: "text/html; charset=utf-8")],
      reason: "bytes of text/html instead of a JSON object", kept: (200, html.utf8.count)),
    Fault(
      name: "HTML with 503", actions: [.answer(html, status: 503, type: "text/html")],
      reason: "HTTP 503 with \(html.utf8.count) bytes of text/html",
      kept: (503, html.utf8.count)),
    Fault(
      name: "500", actions: [.answer(good, status: 500)], reason: "HTTP 500",
      kept: (500, good.utf8.count)),
    Fault(
      name: "another protocol", actions: [.send("SSH-2.0-OpenSSH_9.2\r\n")],
      reason: "connection to Apple was lost", kept: (nil, 0)),
    Fault(
      name: "an array", actions: [.answer("[1, 2]")], reason: "instead of a JSON object",
      kept: (200, 6)),
    Fault(
      name: "JSON of another shape", actions: [.answer("{\"errorCode\": 5000000}")],
      reason: "unexpected JSON structure: status is missing", kept: (200, 22)),
    Fault(
      name: "status 0 without a receipt", actions: [.answer("{\"status\": 0}")],
      reason: "unexpected JSON structure: receipt is missing", kept: (200, 13)),
  ]

  @Test(arguments: faults)
  func `a fault is retried, and what arrived is kept`(_ fault: Fault) async throws {
    let verification = try await verify { _ in fault.actions }
    let retry = try #require(verification.verdict.retry, "\(verification.verdict)")
    #expect(retry.reason.contains(fault.reason), "\(retry.reason)")
    #expect(retry.limit == nil)
    #expect(retry.notBefore == nil)
    let exchange = try #require(verification.exchanges.first)
    #expect(verification.exchanges.count == 1)
    #expect(exchange.httpStatus == fault.kept.status)
    #expect(exchange.answer.count == fault.kept.bytes)
  }

  @Test func `no answer in time`() async throws {
    let verification = try await verify(timeout: .milliseconds(200)) { _ in
      [.pause(.seconds(600)), .answer(Self.good)]
    }
    #expect(verification.verdict.retry?.reason.contains("did not respond in time") == true)
    let exchange = try #require(verification.exchanges.first)
    #expect(exchange.duration >= .milliseconds(200))
    #expect(exchange.startedAt == answeredAt)
  }

  /// The time is that of the whole answer: one byte now and then doesn't prolong it.
  @Test func `an answer that trickles is not waited for`() async throws {
    // On a busy machine nothing may have come in so short a time: then it is tried again.
    for seconds in [2, 8, 32] {
      let verification = try await verify(timeout: .seconds(seconds)) { _ in
        [.send("HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n")]
          + Array(repeating: [.send(" "), .pause(.milliseconds(100))], count: 10_000).joined()
      }
      #expect(verification.verdict.retry?.reason.contains("did not respond in time") == true)
      let exchange = try #require(verification.exchanges.first)
      #expect(exchange.duration < .seconds(600))
      guard exchange.httpStatus == 200, !exchange.answer.isEmpty else { continue }
      #expect(exchange.answer.count < 10_000)
      return
    }
    Issue.record("Nothing of the answer was kept.")
  }

  @Test func `a slow answer is waited for`() async throws {
    let verification = try await verify { _ in
      [.pause(.milliseconds(300)), .answer(Self.good)]
    }
    #expect(try verification.verdict.receipt.records.count == 1)
    #expect(try #require(verification.exchanges.first).duration >= .milliseconds(300))
  }

  @Test(arguments: ["text/html", "text/plain", "application/octet-stream", nil])
  func `an answer is believed under any content type`(type: String?) async throws {
    let verification = try await verify { _ in [.answer(Self.good, type: type)] }
    #expect(try verification.verdict.receipt.records.count == 1)
  }

  @Test func `an answer of ten megabytes is read whole`() async throws {
    let items = (1...38_000).map { number in
      """
      {"quantity": "1", "product_id": "com.example.app.monthly", "transaction_id": "\(number)", \
      "original_transaction_id": "1", "web_order_line_item_id": "\(number + 500_000)", \
      "purchase_date_ms": "\(number)000", "expires_date_ms": "\(number + 1)000", \
      "is_trial_period": "false", "is_in_intro_offer_period": "false"}
      """
    }
    let body = Array(
      """
      {"status": 0, "environment": "Production", "receipt": {"bundle_id": "com.example.app", \
      "request_date_ms": "99000000", "in_app": []}, \
      "latest_receipt_info": [\(items.joined(separator: ", "))]}
      """.utf8)
    #expect(body.count > 10 * 1024 * 1024)
    let verification = try await verify(timeout: patience) { _ in [.answer(body)] }
    #expect(try verification.verdict.receipt.records.count == 38_000)
    let isWhole = verification.exchanges.first?.answer == body
    #expect(isWhole)
  }

  @Test(arguments: ["Content-Length: 2000\r\n", "Transfer-Encoding: chunked\r\n"])
  func `an answer above the limit is given up`(framing: String) async throws {
    let bytes = framing.hasPrefix("Content") ? "" : "7d0\r\n"
    let verification = try await verify(answerLimitBytes: 1000) { _ in
      [
        .send("HTTP/1.1 200 OK\r\n\(framing)\r\n\(bytes)"),
        .send(String(repeating: " ", count: 2000)), .pause(.seconds(600)),
      ]
    }
    let retry = try #require(verification.verdict.retry)
    #expect(retry.reason.contains("too large: more than 1000 bytes"), "\(retry.reason)")
    #expect(try #require(verification.exchanges.first).duration < .seconds(300))
  }

  @Test(arguments: [301, 302, 307, 308, 401, 403, 404, 405, 407, 410])
  func `an HTTP status of a wrong URL is our configuration`(status: Int) async throws {
    let verification = try await verify { request in
      request.path == "/verifyReceipt"
        ? [.answer("", status: status, headers: ["Location: /elsewhere"])] : [.answer(Self.good)]
    }
    let fault = try #require(verification.verdict.misconfiguration)
    #expect(fault.reason.contains("HTTP \(status)"))
    #expect(verification.exchanges.count == 1)
  }

  @Test func `429 is retried after the time that Apple names`() async throws {
    for header in ["Retry-After: 90", "retry-after: \(answeredAt.milliseconds + 90_500)"] {
      let verification = try await verify { _ in [.answer("", status: 429, headers: [header])] }
      let retry = try #require(verification.verdict.retry)
      #expect(retry.reason.contains("429 (too many requests)"))
      let notBefore = try #require(retry.notBefore)
      #expect((.seconds(90) ..< .seconds(600)).contains(notBefore - answeredAt))
    }
  }

  @Test func `a port without a listener`() async throws {
    let port = try await StandInApple.serving({ _ in [] }) { $0.port }
    try await HTTPClient.withApple { client in
      let start = ContinuousClock.now
      let error = await #expect(throws: AppStoreTransportError.self) {
        try await HTTPClientTransport(client: client).send(request("http://localhost:\(port)/"))
      }
      #expect(error?.kind == .connectionFailed)
      // One sentence, however many addresses there are.
      let detail = try #require(error?.detail)
      #expect(detail.hasPrefix("localhost:\(port), addresses tried: "), "\(detail)")
      #expect(detail.components(separatedBy: "refused").count == 2, "\(detail)")
      #expect(ContinuousClock.now - start < .seconds(300))
    }
  }

  @Test func `a name that leads nowhere`() async throws {
    // Longer than a label can be: no resolver is asked, on whatever machine this runs.
    let name = String(repeating: "a", count: 64) + ".invalid"
    try await HTTPClient.withApple { client in
      let error = await #expect(throws: AppStoreTransportError.self) {
        try await HTTPClientTransport(client: client).send(request("http://\(name)/"))
      }
      #expect(error?.kind == .nameNotResolved, "\(String(describing: error))")
    }
  }

  @Test func `a server that doesn't speak TLS`() async throws {
    try await StandInApple.serving({ _ in [] }) { apple in
      try await HTTPClient.withApple { client in
        let error = await #expect(throws: AppStoreTransportError.self) {
          try await HTTPClientTransport(client: client).send(
            request("https://127.0.0.1:\(apple.port)/"))
        }
        #expect(error?.kind == .tlsFailed, "\(String(describing: error))")
      }
    }
  }

  @Test func `a URL that cannot be asked`() async throws {
    try await HTTPClient.withApple { client in
      let error = await #expect(throws: AppStoreTransportError.self) {
        try await HTTPClientTransport(client: client).send(request("verifyReceipt"))
      }
      #expect(error?.kind == .invalidURL, "\(String(describing: error))")
    }
  }

  @Test func `a cancelled request ends at once and is distinguished from a fault`() async throws {
    try await StandInApple.serving({ _ in [.pause(.seconds(600))] }) { apple in
      try await HTTPClient.withApple { client in
        let start = ContinuousClock.now
        await withThrowingTaskGroup(of: AppStoreResponse.self) { group in
          group.addTask {
            try await HTTPClientTransport(client: client).send(request(apple.productionURL))
          }
          try? await Task.sleep(for: .milliseconds(200))
          group.cancelAll()
          await #expect(throws: CancellationError.self) { _ = try await group.next() }
        }
        #expect(ContinuousClock.now - start < .seconds(300))
      }
    }
  }

  @Test func `the request is what Apple documents`() async throws {
    try await StandInApple.serving({ request in [.answer(request.body)] }) { apple in
      try await HTTPClient.withApple { client in
        let app = try AppStoreApp(bundleID: "com.example.app", sharedSecret: "5ec4e7")
        let verification = await ReceiptVerifier(
          HTTPClientTransport(client: client), apps: try AppStoreApps([app]),
          endpoints: try apple.endpoints
        ).verify("a/b+c==")
        let echo = String(decoding: verification.exchanges[0].answer, as: UTF8.self)
        #expect(
          echo == """
            {"password":"5ec4e7","receipt-data":"a/b+c=="}
            """)
      }
    }
  }
}

/// How long is waited where the time is not the point: a busy machine is no fault of Apple's.
private let patience: Duration = .seconds(240)

private func request(_ url: String) -> AppStoreRequest {
  AppStoreRequest(method: "POST", url: url, headers: [], body: [123, 125], timeout: patience)
}
