import Subscriptions

/// Who lives through the year, and which bad days Apple has in it.
///
/// It can be a shorter time, or a longer one.
struct YearPlan: Sendable {
  /// The same seed gives the same lives.
  var seed: UInt64
  var customers: Int
  var length = CalendarPeriod(months: 12)
  var start = Timestamp(CalendarDate(year: 2025, month: 1, day: 1))

  /// Whether some apps open an order before a purchase.
  var opensOrders = true
  /// Until when everybody has done something for the first time.
  var firstVisits: Duration = .days(60)
  /// How long people wait before they do the next thing.
  var hoursBetweenVisits = 24...960
  /// Whether Apple is down at times, and its notifications of a week are lost.
  var hasBadDays = true

  /// How far the clock moves at a time.
  var step: Duration = .hours(6)
  /// The same around the times at which Apple is down.
  var outageStep: Duration = .hours(1)

  /// The share of notifications that arrive late, twice, in another order or at a later attempt.
  var notificationFaultRate = 0.1

  var end: Timestamp { length.end(from: start) }

  /// When customers do nothing new any more: what is on its way takes days at the most.
  var rest: Timestamp { end - Self.restLength }

  /// Twice Apple is down, for verifyReceipt and for the App Store Server API alike: for hours, and
  /// for more than a day.
  var outages: [Range<Timestamp>] {
    guard hasBadDays else { return [] }
    let (short, long) = (moment(0.3), moment(0.7))
    return [short..<short + .hours(9), long..<long + .hours(40)]
  }

  /// The notifications written in this week are lost for good: Tenure has to find out by itself.
  ///
  /// The others arrive in the end, some of them days late, twice or in another order.
  var silence: Range<Timestamp> {
    let begin = moment(0.5)
    return begin..<begin + (hasBadDays ? .days(7) : .zero)
  }

  /// By then whatever was left undone in an outage is done: the queue's longest pause is an hour.
  static let outageAftermath: Duration = .hours(6)
  /// Longer than Apple goes on with a notification, and than it is late.
  static let restLength: Duration = .days(9)

  /// A moment of the year, as a share of its length.
  private func moment(_ share: Double) -> Timestamp {
    let milliseconds = Double((end - start).inMilliseconds) * share
    return start + .milliseconds(Int64(milliseconds))
  }

  /// The moment to which the clock is moved next.
  func step(after moment: Timestamp) -> Timestamp {
    let isNearOutage = outages.contains {
      $0.lowerBound - step < moment && moment < $0.upperBound + Self.outageAftermath
    }
    let next = moment + (isNearOutage ? outageStep : step)
    let borders =
      outages.flatMap { [$0.lowerBound, $0.upperBound] }
      + [silence.lowerBound, silence.upperBound, rest, end]
    return borders.filter { $0 > moment }.min().map { min($0, next) } ?? next
  }
}
