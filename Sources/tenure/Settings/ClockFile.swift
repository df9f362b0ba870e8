import Foundation
import Subscriptions
import Synchronization

/// A clock that somebody else sets, for several processes at once: the time in milliseconds since
/// 1970, in a file.
///
/// It never runs backwards, and what can't be read as a time is not there yet.
final class ClockFile: Sendable {
  private let path: String
  private let last: Mutex<Timestamp>

  /// - Parameter path: The file, which must hold a time already.
  /// - Throws: ``SettingError``.
  init(path: String) throws {
    guard let time = Self.read(path) else {
      throw SettingError(
        name: "TENURE_CLOCK_FILE",
        fault: "\(path) can't be read: name a file that holds the milliseconds since 1970")
    }
    self.path = path
    last = Mutex(time)
  }

  var now: Timestamp {
    let time = Self.read(path)
    return last.withLock {
      if let time { $0 = max($0, time) }
      return $0
    }
  }

  private static func read(_ path: String) -> Timestamp? {
    FileManager.default.contents(atPath: path)
      .flatMap { Int64(String(decoding: $0, as: UTF8.self).trimmingCharacters(in: .newlines)) }
      .map(Timestamp.init(milliseconds:))
  }
}
