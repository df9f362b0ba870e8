import Subscriptions

/// The dates of the request in an answer of `verifyReceipt`, the same moment three times.
///
/// Without them, the answer about an unchanged receipt is always the same, and is stored once.
enum RequestDates {
  /// Replaces the dates by zeros; nil if the answer has no such dates, or ``join(_:at:)`` would give
  /// back another text.
  static func split(_ answer: [UInt8]) -> (template: [UInt8], at: Timestamp)? {
    guard let places = Places(in: answer),
      let milliseconds = Int64(String(decoding: answer[places.milliseconds], as: UTF8.self))
    else { return nil }
    let moment = Timestamp(milliseconds: milliseconds)
    for hours in pacificOffsets {
      var template = answer
      template.replaceSubrange(places.universal, with: zeros)
      template.replaceSubrange(
        places.milliseconds, with: repeatElement(UInt8(ascii: "0"), count: millisecondDigits))
      template.replaceSubrange(places.pacific, with: zeros)
      template[places.pacific.lowerBound + hourOffset] = UInt8(ascii: "0") + UInt8(hours)
      if join(template, at: moment) == answer { return (template, moment) }
    }
    return nil
  }

  /// Puts the dates into an answer; nil if it has no place for them.
  static func join(_ template: [UInt8], at moment: Timestamp) -> [UInt8]? {
    guard let places = Places(in: template),
      case let digit = template[places.pacific.lowerBound + hourOffset],
      let hours = pacificOffsets.first(where: { UInt8(ascii: "0") + UInt8($0) == digit })
    else { return nil }
    let milliseconds = Array("\(moment.milliseconds)".utf8)
    guard milliseconds.count == millisecondDigits else { return nil }
    var answer = template
    answer.replaceSubrange(places.universal, with: text(moment))
    answer.replaceSubrange(places.milliseconds, with: milliseconds)
    answer.replaceSubrange(places.pacific, with: text(moment - .hours(hours)))
    return answer
  }

  private static let zeros = Array("0000-00-00 00:00:00".utf8)
  /// The last digit of the hour, which says by how many hours the Pacific time is behind.
  private static let hourOffset = 12
  /// In summer and in winter; without the time zone database, which may change.
  private static let pacificOffsets = [7, 8]
  /// From 2001 to 2286.
  private static let millisecondDigits = 13

  /// The first 19 characters as in RFC 3339, with a space.
  private static func text(_ moment: Timestamp) -> [UInt8] {
    Array(moment.description.utf8.prefix(zeros.count)).map {
      $0 == UInt8(ascii: "T") ? UInt8(ascii: " ") : $0
    }
  }

  /// The ranges of the dates, which occur once each.
  private struct Places {
    var universal: Range<Int>
    var milliseconds: Range<Int>
    var pacific: Range<Int>

    private static let member = Array("\"request_date".utf8)

    init?(in answer: [UInt8]) {
      var found: [Range<Int>] = []
      var index = answer.startIndex
      while index < answer.endIndex {
        guard answer[index] == Self.member[0], answer[index...].starts(with: Self.member) else {
          index += 1
          continue
        }
        guard let value = Self.value(after: index + Self.member.count, in: answer) else {
          return nil
        }
        found.append(value)
        index = value.upperBound
      }
      guard found.count == 3 else { return nil }
      universal = found[0].prefix(zeros.count)
      milliseconds = found[1]
      pacific = found[2].prefix(zeros.count)
      guard universal.count == zeros.count, milliseconds.count == millisecondDigits,
        pacific.count == zeros.count
      else { return nil }
    }

    /// The text in quotes after the end of a member's name.
    private static func value(after start: Int, in answer: [UInt8]) -> Range<Int>? {
      let quote = UInt8(ascii: "\"")
      guard let nameEnd = answer[start...].firstIndex(of: quote),
        let valueStart = answer[(nameEnd + 1)...].firstIndex(of: quote),
        let valueEnd = answer[(valueStart + 1)...].firstIndex(of: quote)
      else { return nil }
      return valueStart + 1..<valueEnd
    }
  }
}
