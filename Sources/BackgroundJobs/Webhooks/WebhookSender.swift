import AsyncHTTPClient
import CoreMetrics
import Crypto
import Foundation
import Instrumentation
import NIOCore
import NIOHTTP1
import NIOPosix
import NIOSSL
import Secrets
package import Subscriptions

package struct WebhookSender: Sendable {
  /// The time from the DNS lookup to the response; slow receivers should store events first.
  package static let timeout: Duration = .seconds(10)
  /// The bytes of a response that are read so that its connection can be reused.
  private static let answerLimitBytes = 64 * 1024
  /// The number of addresses of a host that are tried.
  private static let addressLimit = 3

  private let receiver: WebhookReceiver
  private let timeout: Duration
  private let addresses: HostAddresses
  private let clients: WebhookClients

  /// - Parameter addresses: Resolves the host; nil: the system's resolver.
  package init(
    to receiver: WebhookReceiver, timeout: Duration = Self.timeout, addresses: HostAddresses? = nil
  ) {
    self.receiver = receiver
    self.timeout = timeout
    self.addresses = addresses ?? systemAddresses
    clients = WebhookClients(host: receiver.host)
  }

  package func shutDown() async { await clients.shutDown() }

  /// Sends an event once, and returns why that failed, as a sentence without the URL.
  package func send(_ body: String, at now: Timestamp) async throws -> String? {
    let body = Array(body.utf8)
    let signature = WebhookSignature.value(of: body, secrets: receiver.secrets, at: now)
    let silence = "The receiver did not respond within \(timeout)."
    return try await withThrowingTaskGroup(of: (isTimeout: Bool, failure: String?).self) { group in
      group.addTask { (false, await push(body, signature: signature)) }
      group.addTask {
        try await Task.sleep(for: timeout)
        return (true, silence)
      }
      defer { group.cancelAll() }
      guard let first = try await group.next() else { return silence }
      try Task.checkCancellation()
      guard first.isTimeout else { return first.failure }
      group.cancelAll()
      // It may have responded and still be sending its body.
      guard let push = try await group.next(), push.failure == nil else { return silence }
      return nil
    }
  }

  /// Checks with a `HEAD` request whether the receiver can be reached, and returns its HTTP status.
  package func reach() async -> Result<Int, Unreachable> {
    await firstStatus { address in
      try await clients.withClient(for: address) { client in
        let request = makeRequest(.HEAD, [:])
        return Int(try await client.execute(request, timeout: limit).status.code)
      }
    }
  }

  /// The reason is a sentence without the URL.
  package struct Unreachable: Error {
    package let reason: String
  }

  private struct HeaderInjector: Injector {
    func inject(_ value: String, forKey key: String, into headers: inout HTTPHeaders) {
      headers.replaceOrAdd(name: key, value: value)
    }
  }

  private func push(_ body: [UInt8], signature: String) async -> String? {
    let pushed = await firstStatus { address in
      try await clients.withClient(for: address) { client in
        var request = makeRequest(
          .POST,
          ["Content-Type": "application/json", WebhookSignature.field: signature])
        request.body = .bytes(body)
        if let trace = InstrumentationContext.current {
          InstrumentationSystem.instrument.inject(
            trace, into: &request.headers, using: HeaderInjector())
        }
        let answer = try await client.execute(request, timeout: limit + .seconds(1))
        // Reading the body only lets the connection be reused.
        _ = try? await answer.body.collect(upTo: Self.answerLimitBytes)
        return Int(answer.status.code)
      }
    }
    switch pushed {
    case .success(200..<300): return nil
    case .success(let status) where (300..<400).contains(status):
      return "The receiver responded with HTTP \(status); redirects are not followed."
    case .success(let status): return "The receiver responded with HTTP \(status)."
    case .failure(let fault): return fault.reason
    }
  }

  private var limit: TimeAmount { .milliseconds(timeout.components.seconds * 1000) }

  private func makeRequest(_ method: HTTPMethod, _ headers: HTTPHeaders) -> HTTPClientRequest {
    var request = HTTPClientRequest(url: receiver.url.revealed)
    (request.method, request.headers) = (method, headers)
    request.headers.add(name: "User-Agent", value: "Tenure")
    return request
  }

  /// The status that the first reachable address responds with.
  private func firstStatus(
    _ send: (_ address: String) async throws -> Int
  ) async -> Result<Int, Unreachable> {
    var fault = "The receiver's host name has no address."
    do {
      for address in try await checkedAddresses().prefix(Self.addressLimit) {
        do {
          return .success(try await send(address))
        } catch  where Self.isNotConnected(error) && !Task.isCancelled {
          fault = Self.sentence(error)
        }
      }
      return .failure(Unreachable(reason: fault))
    } catch let unreachable as Unreachable {
      return .failure(unreachable)
    } catch {
      return .failure(Unreachable(reason: Self.sentence(error)))
    }
  }

  /// The receiver's addresses, IPv4 first; one that is not allowed makes all of them suspect.
  private func checkedAddresses() async throws -> [String] {
    let found = try await addresses(receiver.host).map { text in
      guard let address = IPAddress(text) else {
        throw Unreachable(reason: "The receiver's address is invalid.")
      }
      guard address.isPublic || receiver.allowsPrivateAddresses else {
        throw Unreachable(
          reason:
            "The receiver's host name resolves to the private address \(text); to allow this, "
            + "set TENURE_WEBHOOK_ALLOW_PRIVATE to on.")
      }
      return (text: text, length: address.bytes.count)
    }
    return found.filter { $0.length == 4 }.map(\.text) + found.filter { $0.length > 4 }.map(\.text)
  }

  /// Whether the event can't have arrived, so that another address may be tried.
  private static func isNotConnected(_ error: any Error) -> Bool {
    switch error {
    case let error as HTTPClientError: error == .connectTimeout
    case is NIOConnectionError, ChannelError.connectTimeout: true
    case let error as IOError:
      [ECONNREFUSED, EHOSTUNREACH, ENETUNREACH, EADDRNOTAVAIL].contains(error.errnoCode)
    default: false
    }
  }

  private static func sentence(_ error: any Error) -> String {
    switch error {
    case let error where isNotConnected(error): "Can't connect to the receiver: \(error)."
    case is NIOSSLError, is NIOSSLExtraError, is BoringSSLError:
      "Can't establish a trusted connection to the receiver: \(error)."
    case is HTTPClientError, is ChannelError, is IOError, is HTTPParserError:
      "The connection to the receiver was lost: \(error)."
    default: "The request to the receiver failed: \(error)."
    }
  }
}

/// The signature of an event: `t=UNIX,v1=HEX`, with one `v1` for each secret.
///
/// `t`: the second of sending; `v1`: the HMAC-SHA-256 of that second, a full stop and the body.
enum WebhookSignature {
  static let field = "Tenure-Signature"

  static func value(of body: [UInt8], secrets: [Secret<String>], at now: Timestamp) -> String {
    let second = "\(now.milliseconds / 1000)"
    let signatures = secrets.map { secret in
      var code = HMAC<SHA256>(key: SymmetricKey(data: Data(secret.revealed.utf8)))
      code.update(data: Data((second + ".").utf8))
      code.update(data: body)
      return "v1="
        + code.finalize().map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
    }
    return (["t=" + second] + signatures).joined(separator: ",")
  }
}

/// HTTP clients of one checked address each: resolving the name again would void the check.
actor WebhookClients {
  private struct Entry {
    let client: HTTPClient
    var users = 0
  }

  private static let connectLimit: TimeAmount = .seconds(5)

  private let host: String
  private var entries: [String: Entry] = [:]

  init(host: String) { self.host = host }

  func withClient<Value: Sendable>(
    for address: String, _ body: @Sendable (HTTPClient) async throws -> Value
  ) async throws -> Value {
    let client = entries[address]?.client ?? makeClient(for: address)
    entries[address, default: Entry(client: client)].users += 1
    do {
      let value = try await body(client)
      await release(address, closingOthers: true)
      return value
    } catch {
      await release(address, closingOthers: false)
      throw error
    }
  }

  func shutDown() async {
    let clients = entries.values.map(\.client)
    entries = [:]
    for client in clients { try? await client.shutdown() }
  }

  private func makeClient(for address: String) -> HTTPClient {
    // A redirect would bypass the checks and send the event elsewhere.
    var configuration = HTTPClient.Configuration(redirectConfiguration: .disallow)
    // A host that is an address is not pinned; its certificate is checked as one of an address.
    if IPAddress(host) == nil { configuration.dnsOverride = [host: address] }
    configuration.httpVersion = .http1Only
    // The span is `EventDelivery`'s.
    configuration.tracing.tracer = nil
    configuration.timeout.connect = Self.connectLimit
    configuration.connectionPool.retryConnectionEstablishment = false
    return HTTPClient(eventLoopGroupProvider: .singleton, configuration: configuration)
  }

  /// Keeps only the connections of the address that was used last, unless it failed.
  private func release(_ address: String, closingOthers: Bool) async {
    entries[address]?.users -= 1
    let old = entries.filter { ($0.key != address) == closingOthers && $0.value.users == 0 }
    for address in old.keys { entries[address] = nil }
    for entry in old.values { try? await entry.client.shutdown() }
  }
}

final class WebhookMetrics: Sendable {
  let delivered: Counter
  let failed: Counter
  let parked: Counter
  private let duration: CoreMetrics.Timer
  private let delay: CoreMetrics.Timer

  init() {
    func pushes(_ outcome: String) -> Counter {
      Counter(label: "tenure_webhook_pushes_total", dimensions: [("outcome", outcome)])
    }
    delivered = pushes("delivered")
    failed = pushes("failed")
    parked = pushes("parked")
    duration = CoreMetrics.Timer(label: "tenure_webhook_push_duration_seconds")
    delay = CoreMetrics.Timer(label: "tenure_webhook_delay_seconds")
  }

  func took(_ time: Duration) {
    duration.recordNanoseconds(Int64(time / .nanoseconds(1)))
  }

  func delivered(dueSince moment: Timestamp, at now: Timestamp) {
    delivered.increment()
    delay.recordMilliseconds(max(0, now.milliseconds - moment.milliseconds))
  }
}
