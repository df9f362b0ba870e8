package import Subscriptions

/// What came of doing a job once.
package enum JobOutcome: Sendable {
  /// What was done is committed, and together with it that the job is out of the queue or comes
  /// again.
  case settled
  /// There was nothing to do, or all of it is committed before: the job can go.
  case nothingLeft
  /// It is back in the queue with its next time, and is given up when the patience with it is over.
  case postponed(because: String)
  /// It can't be done now: it is given back by its kind's schedule, and not before what the other
  /// side wished for.
  case retry(because: String, notBefore: Timestamp? = nil)
}
