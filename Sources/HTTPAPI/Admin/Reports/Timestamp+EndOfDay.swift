import Foundation
import Subscriptions

extension Timestamp {
  /// The last moment of a day, as reports tell days apart.
  ///
  /// - Parameters:
  ///   - day: The day.
  ///   - timeZone: Whose day, by its name in the IANA database; UTC, where there is no such one.
  init(endOf day: CalendarDate, in timeZone: String) {
    let midnight = Timestamp(day) + .days(1)
    let zone = TimeZone(identifier: timeZone)
    // The offset is that at the midnight of the place, for which a guess is needed first.
    let offset = [0, 1].reduce(0) { offset, _ in
      zone?.secondsFromGMT(
        for: Date(
          timeIntervalSince1970: Double((midnight - .seconds(offset)).milliseconds) / 1000)) ?? 0
    }
    self = midnight - .seconds(offset) - .milliseconds(1)
  }
}
