package import Subscriptions

/// One request to Apple and what came of it: what the audit trail keeps.
///
/// The request is not in it, for the receipt is kept once, with the submission, and the shared
/// secret nowhere.
package struct Exchange: Hashable, Sendable {
  /// Which of Apple's two environments was asked.
  package var endpoint: Environment
  package var url: String
  package var startedAt: Timestamp
  package var duration: Duration
  /// Apple's answer, byte by byte, or as much of it as arrived.
  package var response: AppStoreResponse?
  /// Why no whole answer arrived, in one sentence.
  package var fault: String?

  /// The HTTP status, where Apple got as far as that.
  package var httpStatus: Int? { response?.status }
  /// The bytes of Apple's answer; empty where none came.
  package var answer: [UInt8] { response?.body ?? [] }
  /// The moment at which the answer was whole, or the attempt had failed.
  package var endedAt: Timestamp { startedAt + duration }

  package init(
    endpoint: Environment, url: String, startedAt: Timestamp, duration: Duration,
    response: AppStoreResponse? = nil, fault: String? = nil
  ) {
    self.endpoint = endpoint
    self.url = url
    self.startedAt = startedAt
    self.duration = duration
    self.response = response
    self.fault = fault
  }
}
