/// What one round of a benchmark found.
struct Measurement: Sendable {
  /// How many a second.
  var rate: Double
  /// The time within which half of them were done; nil where it was not measured.
  var p50: Duration?
  /// The time within which 99 of a hundred were done.
  var p99: Duration?
}

/// A benchmark's result beside its limit, both measured in the same run, round after round.
struct BenchResult: Sendable, Encodable {
  let name: String
  let limitName: String
  /// The share of the limit that is aimed at; nil for what is measured for comparison.
  let goal: Double?
  /// In bytes: the most that the measured process needed; nil where that says nothing.
  let memory: Int?
  /// In bytes: how large the database is; nil where that says nothing.
  let database: Int?
  private let rounds: [Round]

  private struct Round: Sendable, Encodable {
    var perSecond: Double
    var limitPerSecond: Double
    var p50Milliseconds: Double?
    var p99Milliseconds: Double?

    enum CodingKeys: String, CodingKey {
      case perSecond = "per_second"
      case limitPerSecond = "limit_per_second"
      case p50Milliseconds = "p50_ms"
      case p99Milliseconds = "p99_ms"
    }
  }

  /// - Parameters:
  ///   - name: What was measured.
  ///   - limitName: What it is compared with.
  ///   - goal: The share of the limit that is aimed at, if any is.
  ///   - rounds: Each round's figure and limit; at least one.
  ///   - memory: In bytes, if it was measured.
  ///   - database: In bytes, if it was measured.
  init(
    name: String, limitName: String, goal: Double?,
    rounds: [(measured: Measurement, limit: Measurement)], memory: Int? = nil,
    database: Int? = nil
  ) {
    precondition(!rounds.isEmpty, "A result has at least one round.")
    self.name = name
    self.limitName = limitName
    self.goal = goal
    self.memory = memory
    self.database = database
    self.rounds = rounds.map { measured, limit in
      Round(
        perSecond: measured.rate, limitPerSecond: limit.rate,
        p50Milliseconds: measured.p50.map { $0 / .milliseconds(1) },
        p99Milliseconds: measured.p99.map { $0 / .milliseconds(1) })
    }
  }

  var perSecond: Double { median(rounds.map(\.perSecond)) }
  var limitPerSecond: Double { median(rounds.map(\.limitPerSecond)) }
  var ratio: Double { perSecond / limitPerSecond }
  /// Nil where nothing is aimed at.
  var isMet: Bool? { goal.map { ratio >= $0 } }
  var p50Milliseconds: Double? { median(rounds.compactMap(\.p50Milliseconds)) }
  var p99Milliseconds: Double? { median(rounds.compactMap(\.p99Milliseconds)) }

  enum CodingKeys: String, CodingKey {
    case name, limit, goal, ratio, met, rounds
    case perSecond = "per_second"
    case limitPerSecond = "limit_per_second"
    case p50Milliseconds = "p50_ms"
    case p99Milliseconds = "p99_ms"
    case memory = "memory_bytes"
    case database = "database_bytes"
  }

  func encode(to encoder: any Encoder) throws {
    var result = encoder.container(keyedBy: CodingKeys.self)
    try result.encode(name, forKey: .name)
    try result.encode(perSecond, forKey: .perSecond)
    try result.encode(limitName, forKey: .limit)
    try result.encode(limitPerSecond, forKey: .limitPerSecond)
    try result.encode(ratio, forKey: .ratio)
    try result.encodeIfPresent(goal, forKey: .goal)
    try result.encodeIfPresent(isMet, forKey: .met)
    try result.encodeIfPresent(p50Milliseconds, forKey: .p50Milliseconds)
    try result.encodeIfPresent(p99Milliseconds, forKey: .p99Milliseconds)
    try result.encodeIfPresent(memory, forKey: .memory)
    try result.encodeIfPresent(database, forKey: .database)
    try result.encode(rounds, forKey: .rounds)
  }
}

/// The middle one, or the mean of the two in the middle.
private func median(_ values: [Double]) -> Double {
  let sorted = values.sorted()
  let middle = sorted.count / 2
  return sorted.count.isMultiple(of: 2) ? (sorted[middle - 1] + sorted[middle]) / 2 : sorted[middle]
}

private func median(_ values: [Double]) -> Double? {
  values.isEmpty ? nil : median(values) as Double
}
