import NIOCore
import Synchronization

/// The failures of reads that an ``EntitlementHandler`` hands to the router, one per connection at
/// most.
final class FailedReads: Sendable {
  private let failures = Mutex<[ObjectIdentifier: any Error]>([:])

  /// Keeps a failure for the router's next read on the connection.
  func put(_ failure: any Error, on channel: any Channel) {
    failures.withLock { $0[ObjectIdentifier(channel)] = failure }
  }

  /// Takes the failure of a read on the connection; nil where the read has yet to be tried.
  func take(from channel: any Channel) -> (any Error)? {
    failures.withLock {
      $0.isEmpty ? nil : $0.removeValue(forKey: ObjectIdentifier(channel))
    }
  }
}
