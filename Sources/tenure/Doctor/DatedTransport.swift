import AppStore
import Foundation
import Subscriptions
import Synchronization

/// The way to Apple, and what Apple's clock says on it: the header field `Date` of each answer.
final class DatedTransport: AppStoreTransport {
  private let transport: any AppStoreTransport
  private let last = Mutex<(skew: Duration, precision: Duration)?>(nil)

  init(_ transport: any AppStoreTransport) {
    self.transport = transport
  }

  /// How far Apple's clock was ahead of ours at its last answer, and how exactly that is known.
  var skew: (skew: Duration, precision: Duration)? { last.withLock(\.self) }

  func send(_ request: AppStoreRequest) async throws -> AppStoreResponse {
    let (before, start) = (Timestamp.now, ContinuousClock.now)
    let response = try await transport.send(request)
    let took = ContinuousClock.now - start
    if let date = response.header("Date").flatMap(Self.date) {
      let skew = date - (before + took / 2)
      // The field has whole seconds.
      last.withLock { $0 = (skew, took / 2 + .seconds(1)) }
    }
    return response
  }

  /// The preferred form of RFC 9110, section 5.6.7.
  private static func date(_ text: String) -> Timestamp? {
    let formatter = DateFormatter()
    formatter.locale = Locale(identifier: "en_US_POSIX")
    formatter.timeZone = .gmt
    formatter.dateFormat = "EEE, dd MMM yyyy HH:mm:ss 'GMT'"
    return formatter.date(from: text).map {
      Timestamp(milliseconds: Int64($0.timeIntervalSince1970) * 1000)
    }
  }
}
