/// A place in the log of PostgreSQL.
struct LogPosition: Hashable, Sendable {
  /// Bytes from its beginning.
  var bytes: Int64
  /// The history that it is a place in: each failover begins another one, in which the same number
  /// is another place.
  var timeline: Int32
}

/// What a standby is known to have, and what reads of it have to have; without any I/O.
struct ReplicaProgress: Sendable {
  typealias Instant = ContinuousClock.Instant

  /// How far the primary's log went when it was asked: what was committed before is in it.
  private struct Question {
    var at: Instant
    var end: LogPosition
  }

  private let staleness: Duration
  /// The oldest first; those that no answer needs any more are dropped.
  private var questions: [Question] = []
  /// Whatever was committed before this the standby has; nil: nothing is known of it.
  private(set) var knownUntil: Instant?

  init(staleness: Duration) {
    self.staleness = staleness
  }

  /// The primary was asked, and its log went so far.
  mutating func asked(at moment: Instant, end: LogPosition) {
    questions.append(Question(at: moment, end: end))
    // All but the last one of those that are too old to be of use.
    while questions.count > 1, moment - questions[1].at > staleness { questions.removeFirst() }
  }

  /// The standby has applied the log so far; nil: it has not answered, or is none.
  ///
  /// One that is left behind in an older history may be far ahead in that: it has nothing of this
  /// one.
  mutating func applied(_ position: LogPosition?) {
    knownUntil = position.flatMap { position in
      questions.last { $0.end.timeline == position.timeline && $0.end.bytes <= position.bytes }?.at
    }
  }

  /// Whether what the standby is known to have is new enough for anybody.
  func isCurrent(at now: Instant) -> Bool { isKnown(until: now - staleness) }

  /// Until when the standby has to know of commits, to be asked about what was changed then.
  func needed(since changes: [Instant?], at now: Instant) -> Instant {
    changes.compactMap(\.self).reduce(now - staleness, max)
  }

  func isKnown(until moment: Instant) -> Bool { knownUntil.map { $0 >= moment } ?? false }

  /// How old what the standby has may be; nil: nothing is known of it.
  func age(at now: Instant) -> Duration? { knownUntil.map { now - $0 } }
}
