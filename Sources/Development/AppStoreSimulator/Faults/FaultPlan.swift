import AppStore
package import JSONText
package import Subscriptions

/// The faults of requests to the simulated App Store.
///
/// In this order: an outage until a given time, faults for the next requests in sequence, and a
/// random share of all requests.
package struct FaultPlan: Sendable {
  /// Until then, every request meets ``outage``.
  package var outageEnd: Timestamp?
  package var outage = SimulatedFault.unavailable
  /// Faults of the next requests, one each.
  package var next: [SimulatedFault] = []
  /// The share of requests with a random fault, from 0 to 1.
  package var rate = 0.0
  /// Random faults; repeated ones are likelier.
  package var kinds: [SimulatedFault] = FaultPlan.usualKinds

  private var random: SplitMix64

  package init(seed: UInt64) {
    random = SplitMix64(seed: seed)
  }

  /// Faults reported by verifyReceipt clients, without those that last until the client's timeout.
  package static let usualKinds: [SimulatedFault] = [
    .reset, .cutOff, .unavailable, .html, .truncated, .tooManyRequests(retryAfterSeconds: 1),
    .status(21002), .status(21005), .status(21009),
    .internalError(21100, isRetryable: true, asNumber: true),
    .internalError(21199, isRetryable: true, asNumber: false), .slow(milliseconds: 50),
  ]

  /// The same for the App Store Server API.
  package static let usualServerKinds: [SimulatedFault] = [
    .reset, .cutOff, .unavailable, .html, .truncated, .tooManyRequests(retryAfterSeconds: 1),
    .serverError(5_000_000), .serverError(5_000_001), .serverError(4_040_002),
    .slow(milliseconds: 50),
  ]

  /// The fault of a request at `moment`; nil for none.
  package mutating func takeFault(at moment: Timestamp) -> SimulatedFault? {
    if let outageEnd {
      if moment < outageEnd { return outage }
      self.outageEnd = nil
    }
    if !next.isEmpty { return next.removeFirst() }
    guard rate > 0, random.chance(rate) else { return nil }
    return random.choice(of: kinds)
  }
}

/// A response of the simulated App Store and how it is delivered.
package struct SimulatedAnswer: Hashable, Sendable {
  package enum Delivery: Hashable, Sendable {
    case whole
    /// No byte ever arrives.
    case never
    /// The connection is reset before the first byte.
    case reset
    /// The connection closes after this many bytes of the body.
    case cutOff(afterBytes: Int)
  }

  package var httpStatus: Int
  package var contentType: String
  /// The `Retry-After` header: seconds or, for the App Store Server API, milliseconds since 1970.
  package var retryAfter: String?
  package var body: [UInt8]
  package var delivery = Delivery.whole
  package var delay = Duration.zero  // In real time

  package init(httpStatus: Int = 200, contentType: String = "application/json", body: [UInt8]) {
    self.httpStatus = httpStatus
    self.contentType = contentType
    self.body = body
  }

  /// 200 with a JSON body.
  package init(_ json: JSONValue) {
    self.init(body: json.bytes)
  }

  /// A response with only a status.
  package init(status: Int) {
    self.init(["status": .integer(Int64(status))])
  }
}

extension SimulatedAnswer {
  private static let page = Array(
    """
    <html><head><title>503 Service Unavailable</title></head>
    <body><h1>Service Unavailable</h1><p>Reference&#32;&#35;11.5e0e1402</p></body></html>
    """.utf8)

  /// The response modified by a fault.
  func with(_ fault: SimulatedFault) -> SimulatedAnswer {
    var answer = self
    switch fault {
    case .timeout: answer.delivery = .never
    case .reset: answer.delivery = .reset
    case .cutOff: answer.delivery = .cutOff(afterBytes: body.count / 2)
    case .unavailable:
      return SimulatedAnswer(httpStatus: 503, contentType: "text/html", body: Self.page)
    case .html: return SimulatedAnswer(contentType: "text/html", body: Self.page)
    case .truncated: answer.body.removeLast(body.count - body.count / 2)
    case .tooManyRequests(let seconds):
      answer = SimulatedAnswer(httpStatus: 429, contentType: "text/html", body: Self.page)
      answer.retryAfter = String(seconds)
    case .status(let status): return SimulatedAnswer(status: status)
    case .serverError(let code):
      let error = ServerAPIError.ofFaults.first { $0.code == code } ?? .internalError
      return error.answer
    case .internalError(let status, let isRetryable, let asNumber):
      return SimulatedAnswer([
        "status": .integer(Int64(status)),
        "is-retryable": asNumber ? .integer(isRetryable ? 1 : 0) : .bool(isRetryable),
      ])
    case .slow(let milliseconds): answer.delay = .milliseconds(milliseconds)
    case .large(let bytes):
      // White space before a JSON text only changes its size.
      let padding = max(0, bytes - body.count)
      answer.body = Array(repeating: UInt8(ascii: " "), count: padding) + body
    }
    return answer
  }
}

/// A missing or wrong response by Apple.
package enum SimulatedFault: Hashable, Sendable {
  /// No response; the connection stays open until the client gives up.
  case timeout
  /// The connection is reset instead of a response.
  case reset
  /// The connection closes in the middle of the body.
  case cutOff
  /// 503 with the page of Apple's front server.
  case unavailable
  /// 200 with an HTML page instead of JSON.
  case html
  /// 200 with truncated JSON.
  case truncated
  case tooManyRequests(retryAfterSeconds: Int)
  /// Only a status, for example 21002, 21005 or 21009.
  case status(Int)
  /// For the App Store Server API: 4000017, 4040002, 4040004, 4040006, 4040007, 5000000 or 5000001.
  case serverError(Int64)
  /// A status from 21100 to 21199, with `is-retryable` as a number or a Boolean.
  case internalError(Int, isRetryable: Bool, asNumber: Bool)
  /// The correct response, delayed in real time.
  case slow(milliseconds: Int)
  /// The correct response, padded to about this size.
  case large(bytes: Int)
}

extension SimulatedFault {
  /// Parses the control interface's faults.
  ///
  /// They are `timeout`, `reset`, `cut_off`, `unavailable`, `html`, `truncated`, `429` or
  /// `429:SECONDS`, an App Store Server API error such as `5000001`, a status such as `21005`,
  /// `21100:retryable` and `21100:final` (`:0` and `:1` for numbers), `slow:MILLISECONDS`,
  /// `large:BYTES`.
  package init?(name: String) {
    let parts = name.split(separator: ":", maxSplits: 1).map(String.init)
    guard let word = parts.first else { return nil }
    let argument = parts.count > 1 ? parts[1] : nil
    let number = argument.flatMap(Int.init)
    switch (word, argument) {
    case ("timeout", nil): self = .timeout
    case ("reset", nil): self = .reset
    case ("cut_off", nil): self = .cutOff
    case ("unavailable", nil), ("503", nil): self = .unavailable
    case ("html", nil): self = .html
    case ("truncated", nil): self = .truncated
    case ("429", nil): self = .tooManyRequests(retryAfterSeconds: 1)
    case ("429", _):
      guard let number, number >= 0 else { return nil }
      self = .tooManyRequests(retryAfterSeconds: number)
    case ("slow", _):
      guard let number, (0...Self.longestDelayMilliseconds).contains(number) else { return nil }
      self = .slow(milliseconds: number)
    case ("large", _):
      guard let number, (0...Self.largestAnswerBytes).contains(number) else { return nil }
      self = .large(bytes: number)
    case (_, nil) where ServerAPIError.ofFaults.contains { $0.code == Int64(word) }:
      self = .serverError(Int64(word) ?? 0)
    default:
      guard let status = Int(word), (21_000...21_199).contains(status) else { return nil }
      switch argument {
      case nil: self = .status(status)
      case "retryable": self = .internalError(status, isRetryable: true, asNumber: false)
      case "final": self = .internalError(status, isRetryable: false, asNumber: false)
      case "1": self = .internalError(status, isRetryable: true, asNumber: true)
      case "0": self = .internalError(status, isRetryable: false, asNumber: true)
      default: return nil
      }
    }
  }

  /// An hour; no client waits longer.
  private static let longestDelayMilliseconds = 3_600_000

  /// Enough for any client's limit, and harmless for the machine.
  private static let largestAnswerBytes = 100_000_000
}
