import Foundation
package import Logging
import Subscriptions

/// What a task works on behalf of: the request or the job that began it.
///
/// It goes with the task to everything that is called from there, so that one id leads through the
/// log from the request to PostgreSQL and to Apple, without being handed through every function.
package enum Occasion: Sendable {
  /// A request, by its `X-Request-ID`.
  case request(id: String)
  /// A job, by its number in the queue.
  case job(id: Int64, kind: String)

  /// Nil outside of requests and jobs.
  @TaskLocal package static var current: Occasion?

  /// The request's id; nil where it is none.
  package var requestID: String? {
    if case .request(let id) = self { id } else { nil }
  }

  /// Adds the occasion to whatever is logged.
  package static let metadataProvider = Logger.MetadataProvider {
    switch current {
    case .request(let id): ["request.id": "\(id)"]
    case .job(let id, let kind): ["job.id": "\(id)", "job.kind": "\(kind)"]
    case nil: [:]
    }
  }
}

extension UUID {
  /// Makes a UUID of version 7 (RFC 9562, section 5.7): its order is that of time, to the
  /// millisecond.
  static func version7(at moment: Timestamp) -> UUID {
    var bytes = (0..<16).map { _ in UInt8.random(in: .min ... .max) }
    let milliseconds = UInt64(clamping: moment.milliseconds)
    for index in 0..<6 {
      bytes[index] = UInt8(truncatingIfNeeded: milliseconds >> (40 - 8 * index))
    }
    bytes[6] = 0x70 | bytes[6] & 0x0F
    bytes[8] = 0x80 | bytes[8] & 0x3F
    return UUID(
      uuid: (
        bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7], bytes[8],
        bytes[9], bytes[10], bytes[11], bytes[12], bytes[13], bytes[14], bytes[15]
      ))
  }
}
