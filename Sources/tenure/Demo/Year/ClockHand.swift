import Foundation
import Subscriptions

/// The hand of the clock that programs read from a file.
struct ClockHand: Sendable {
  /// What `TENURE_CLOCK_FILE` names.
  let path: String

  /// - Parameter directory: Where the file is made; by ``move(to:)``, and not before.
  init(in directory: URL) {
    path = directory.appending(path: "clock").path(percentEncoded: false)
  }

  /// Moves the hand.
  ///
  /// The file is replaced as a whole: nobody ever reads half of a number.
  func move(to moment: Timestamp) throws {
    try Data("\(moment.milliseconds)\n".utf8).write(to: URL(filePath: path), options: .atomic)
  }
}
