/// A day of the proleptic Gregorian calendar, in UTC.
///
/// Conversions follow Howard Hinnant (https://howardhinnant.github.io/date_algorithms.html),
/// without tables or a time zone database: this module runs on the hot path.
package struct CalendarDate: Hashable, Sendable {
  package var year: Int
  /// 1 to 12.
  package var month: Int
  /// 1 to 31.
  package var day: Int

  package init(year: Int, month: Int, day: Int) {
    (self.year, self.month, self.day) = (year, month, day)
  }

  package init(daysSince1970 days: Int) {
    let shifted = days + 719_468
    let era = (shifted >= 0 ? shifted : shifted - 146_096) / 146_097
    let dayOfEra = shifted - era * 146_097
    let yearOfEra = (dayOfEra - dayOfEra / 1460 + dayOfEra / 36_524 - dayOfEra / 146_096) / 365
    let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
    let shiftedMonth = (5 * dayOfYear + 2) / 153
    day = dayOfYear - (153 * shiftedMonth + 2) / 5 + 1
    month = shiftedMonth < 10 ? shiftedMonth + 3 : shiftedMonth - 9
    year = yearOfEra + era * 400 + (month <= 2 ? 1 : 0)
  }

  /// Negative before 1970-01-01.
  package var daysSince1970: Int {
    let shiftedYear = month <= 2 ? year - 1 : year
    let era = (shiftedYear >= 0 ? shiftedYear : shiftedYear - 399) / 400
    let yearOfEra = shiftedYear - era * 400
    let dayOfYear = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1
    let dayOfEra = yearOfEra * 365 + yearOfEra / 4 - yearOfEra / 100 + dayOfYear
    return era * 146_097 + dayOfEra - 719_468
  }

  /// As in HTTP's dates.
  package static let monthNames = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
  ]

  package var monthName: String { Self.monthNames[month - 1] }

  package static func daysInMonth(_ month: Int, ofYear year: Int) -> Int {
    switch month {
    case 4, 6, 9, 11: 30
    case 2:
      year.isMultiple(of: 4) && (!year.isMultiple(of: 100) || year.isMultiple(of: 400)) ? 29 : 28
    default: 31
    }
  }

  /// The same day `months` months later, or the last day of that month.
  package func adding(months: Int) -> CalendarDate {
    let total = year * 12 + (month - 1) + months
    let year = total >= 0 ? total / 12 : (total - 11) / 12
    let month = total - year * 12 + 1
    return CalendarDate(
      year: year, month: month, day: min(day, Self.daysInMonth(month, ofYear: year)))
  }
}

extension Timestamp {
  private static let millisecondsPerDay: Int64 = 86_400_000

  /// The day in UTC, and the milliseconds since its midnight.
  package var dayAndTime: (date: CalendarDate, millisecondOfDay: Int64) {
    var days = milliseconds / Self.millisecondsPerDay
    var rest = milliseconds % Self.millisecondsPerDay
    if rest < 0 {
      days -= 1
      rest += Self.millisecondsPerDay
    }
    return (CalendarDate(daysSince1970: Int(days)), rest)
  }

  package init(_ date: CalendarDate, millisecondOfDay: Int64 = 0) {
    self.init(milliseconds: Int64(date.daysSince1970) * Self.millisecondsPerDay + millisecondOfDay)
  }
}
