package import Subscriptions

/// A job as it stands in the queue, for people to look at.
package struct StoredJob: Sendable {
  /// What a job waits for.
  package enum State: String, Sendable {
    /// Its time has not come.
    case waiting
    /// A worker could begin it.
    case due
    /// A worker is at it.
    case running
    /// It was given up, and waits for somebody to start it again.
    case parked
  }

  package let id: Int64
  package let kind: String
  package let subject: String
  package let lane: Job.Lane
  package let priority: Int
  package let state: State
  package let runAt: Timestamp
  /// How often it was begun since it was last put into the queue, done, or started again.
  package let attempts: Int
  /// Who is at it.
  package let worker: String?
  package let lockedUntil: Timestamp?
  package let parkedAt: Timestamp?
  /// What happened last; nil: nothing went wrong.
  package let lastError: String?
  package let createdAt: Timestamp
}

/// How many jobs of a kind there are.
package struct JobCount: Sendable {
  package let kind: String
  package let lane: Job.Lane
  package let due: Int
  package let waiting: Int
  package let running: Int
  package let parked: Int
  /// How many are neither parked nor done, and failed when they were last tried.
  package let failing: Int
  /// Since when the oldest due one could have been begun.
  package let dueSince: Timestamp?
}

/// Which jobs to start again.
package enum JobSelection: Sendable {
  /// These, parked or waiting, each by its number or by what it is about.
  case named([String])
  /// Those of a kind that were given up.
  case parked(kind: String)
  /// Those of these numbers that were given up.
  case parkedNumbers([Int64])
  /// All that were given up.
  case allParked
}
