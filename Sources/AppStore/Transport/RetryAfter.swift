import Subscriptions

/// The header `Retry-After`, in each of the three forms in which Apple's servers send it.
///
/// HTTP knows seconds and a date (RFC 9110, section 10.2.3); the App Store Server API sends an
/// instant in milliseconds since 1970
/// (https://developer.apple.com/documentation/appstoreserverapi/identifying-rate-limits).
enum RetryAfter {
  /// A server that says "in ten years" is wrong: nothing waits longer than a day for it.
  static let longestWait = Duration.days(1)
  /// Read as seconds, this would be three thousand years; as an instant, it is 1973.
  private static let smallestInstant: Int64 = 100_000_000_000

  /// The moment before which nothing should be asked.
  ///
  /// Nil where the header is missing, cannot be read, or names a moment that has passed: then the
  /// caller's own delays hold.
  static func moment(_ header: String?, now: Timestamp) -> Timestamp? {
    guard let header, let asked = read(header, now: now), asked > now else { return nil }
    return min(asked, now + longestWait)
  }

  private static func read(_ header: String, now: Timestamp) -> Timestamp? {
    let text = header.drop { $0 == " " }
    guard let number = Int64(text) else { return Timestamp(httpDate: text) }
    guard number >= 0 else { return nil }
    if number >= smallestInstant { return Timestamp(milliseconds: number) }
    return now + min(.seconds(number), longestWait)
  }
}

extension Timestamp {
  /// Reads HTTP's preferred form of a date, as in `Sun, 06 Nov 1994 08:49:37 GMT`.
  ///
  /// The two obsolete forms are nil: nobody has sent them for decades.
  init?(httpDate text: some StringProtocol) {
    let fields = text.split(separator: " ")
    guard fields.count == 6, fields[5] == "GMT",
      let month = CalendarDate.monthNames.firstIndex(where: { $0 == fields[2] })
    else { return nil }
    let number = month < 9 ? "0\(month + 1)" : "\(month + 1)"
    self.init(rfc3339: "\(fields[3])-\(number)-\(fields[1])T\(fields[4])Z")
  }
}
