import Foundation
package import Logging
import Subscriptions

/// The request or job that a task works for, whose ID connects all its log lines.
package enum LogContext: Sendable {
  /// A request, with its `X-Request-ID`.
  case request(id: String)
  case job(id: Int64, kind: String)

  /// Nil outside requests and jobs.
  @TaskLocal package static var current: LogContext?

  package var requestID: String? {
    if case .request(let id) = self { id } else { nil }
  }

  package static let metadataProvider = Logger.MetadataProvider {
    switch current {
    case .request(let id): ["request.id": "\(id)"]
    case .job(let id, let kind): ["job.id": "\(id)", "job.kind": "\(kind)"]
    case nil: [:]
    }
  }
}

extension UUID {
  /// A version 7 UUID (RFC 9562, section 5.7), which sorts by time to the millisecond.
  static func version7(at moment: Timestamp) -> UUID {
    var bytes = (0..<16).map { _ in UInt8.random(in: .min ... .max) }
    let milliseconds = UInt64(clamping: moment.milliseconds)
    for index in 0..<6 {
      bytes[index] = UInt8(truncatingIfNeeded: milliseconds >> (40 - 8 * index))
    }
    bytes[6] = 0x70 | bytes[6] & 0x0F
    bytes[8] = 0x80 | bytes[8] & 0x3F
    return UUID(bytes: bytes)
  }

  /// The UUID of the first 16 bytes.
  init(bytes: [UInt8]) {
    self.init(
      uuid: (
        bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7], bytes[8],
        bytes[9], bytes[10], bytes[11], bytes[12], bytes[13], bytes[14], bytes[15]
      ))
  }
}
