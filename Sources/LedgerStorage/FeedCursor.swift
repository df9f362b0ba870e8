/// A position in the feed, after an event.
///
/// The date tells the event from others with the same position: after a restore from a backup,
/// positions are assigned again.
package struct FeedCursor: Hashable, Sendable {
  /// 0: before the first event.
  package let position: Int64
  /// When the event was stored, in microseconds since 1970; nil before the first event.
  package let storedAt: Int64?

  package init(position: Int64, storedAt: Int64? = nil) {
    self.position = position
    self.storedAt = storedAt
  }

  /// Reads a cursor that ``text`` wrote.
  package init?(_ text: String) {
    let parts = text.split(separator: "-", maxSplits: 1, omittingEmptySubsequences: false)
    guard let position = Self.number(parts[0], radix: 10) else { return nil }
    if parts.count == 1 {
      guard position == 0 else { return nil }
      self.init(position: position)
    } else {
      guard let storedAt = Self.number(parts[1], radix: 36) else { return nil }
      self.init(position: position, storedAt: storedAt)
    }
  }

  /// The cursor in API responses.
  package var text: String {
    storedAt.map { "\(position)-\(String($0, radix: 36))" } ?? "\(position)"
  }

  private static func number(_ text: Substring, radix: Int) -> Int64? {
    // Int64 would accept a sign.
    text.first.flatMap { $0 == "-" || $0 == "+" ? nil : Int64(text, radix: radix) }
  }
}
