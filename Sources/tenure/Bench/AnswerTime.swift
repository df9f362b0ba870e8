/// How long something that people wait for takes: they are answered in time, or told that it takes
/// longer.
struct AnswerTime: Sendable, Encodable {
  /// Nobody looks at an empty page for longer, and what the network takes is not measured here.
  static let limit: Duration = .seconds(2)
  /// The server says that it works when the limit is over: a moment later that is here.
  private static let tolerance: Duration = .milliseconds(300)

  let name: String
  let cold: Duration
  let warm: Duration
  /// The first time it was only said that it is being worked on.
  let wasWorking: Bool
  /// When it was there at last.
  let answeredAfter: Duration
  /// What was wrong; nil: nothing.
  let fault: String?

  /// Whether somebody who asks for the first time hears something in time.
  var isMet: Bool { fault == nil && cold <= Self.limit + (wasWorking ? Self.tolerance : .zero) }

  /// What came of it, in a word.
  var outcome: String { fault ?? (wasWorking ? "working" : isMet ? "answered" : "too late") }

  enum CodingKeys: String, CodingKey {
    case name, outcome, met
    case cold = "cold_ms"
    case warm = "warm_ms"
    case answeredAfter = "answered_after_ms"
    case limit = "limit_ms"
  }

  func encode(to encoder: any Encoder) throws {
    var answer = encoder.container(keyedBy: CodingKeys.self)
    try answer.encode(name, forKey: .name)
    try answer.encode(cold / .milliseconds(1), forKey: .cold)
    try answer.encode(warm / .milliseconds(1), forKey: .warm)
    try answer.encode(answeredAfter / .milliseconds(1), forKey: .answeredAfter)
    try answer.encode(Self.limit / .milliseconds(1), forKey: .limit)
    try answer.encode(outcome, forKey: .outcome)
    try answer.encode(isMet, forKey: .met)
  }
}
