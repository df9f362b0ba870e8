/// One way in which Apple fails to answer, or answers wrongly.
package enum SimulatedFault: Hashable, Sendable {
  /// No answer ever; the connection stays open until the client gives up.
  case timeout
  /// The connection is reset instead of an answer.
  case reset
  /// The connection closes in the middle of the body.
  case cutOff
  /// 503 with the page of Apple's front server.
  case unavailable
  /// 200 with a page instead of JSON.
  case html
  /// 200 whose JSON ends in the middle.
  case truncated
  case tooManyRequests(retryAfterSeconds: Int)
  /// Apple's status alone, for example 21002, 21005 or 21009.
  case status(Int)
  /// Of the App Store Server API: 4000017, 4040002, 4040004, 4040006, 4040007, 5000000 or 5000001.
  case serverError(Int64)
  /// A status from 21100 to 21199, with `is-retryable` as a number or as a boolean.
  case internalError(Int, isRetryable: Bool, asNumber: Bool)
  /// The right answer, late by so much real time.
  case slow(milliseconds: Int)
  /// The right answer, blown up to about so many bytes.
  case large(bytes: Int)
}

extension SimulatedFault {
  /// Reads the words of the control interface.
  ///
  /// `timeout`, `reset`, `cut_off`, `unavailable`, `html`, `truncated`, `429` or `429:SECONDS`,
  /// an error of the App Store Server API as `5000001`, a status as `21005`, `21100:retryable` and
  /// `21100:final` (`:0` and `:1` for numbers), `slow:MILLISECONDS`, `large:BYTES`.
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

  /// An hour: no client waits for longer.
  private static let longestDelayMilliseconds = 3_600_000

  /// Enough for every limit a client may have, and no danger to the machine.
  private static let largestAnswerBytes = 100_000_000
}
