/// Behind which event somebody reads on in the feed.
///
/// It has the event's place, and by what the event is told from another one that has the same place
/// in another history: whoever goes back to a backup writes on from there, and gives places again.
package struct FeedCursor: Hashable, Sendable {
  /// 0: before the first event.
  package let position: Int64
  /// When the event was stored, in microseconds since 1970; nil: nobody noted it.
  package let storedAt: Int64?

  package init(position: Int64, storedAt: Int64? = nil) {
    self.position = position
    self.storedAt = storedAt
  }

  /// Reads what ``text`` has written, or a place alone, as versions before this one gave it.
  package init?(_ text: String) {
    let parts = text.split(separator: "-", maxSplits: 1, omittingEmptySubsequences: false)
    guard let position = Self.number(parts[0], radix: 10) else { return nil }
    if parts.count == 1 {
      self.init(position: position)
    } else {
      guard let storedAt = Self.number(parts[1], radix: 36) else { return nil }
      self.init(position: position, storedAt: storedAt)
    }
  }

  /// As it is given to callers, for whom it is a text.
  package var text: String {
    storedAt.map { "\(position)-\(String($0, radix: 36))" } ?? "\(position)"
  }

  private static func number(_ text: Substring, radix: Int) -> Int64? {
    // Without a sign.
    text.first.flatMap { $0 == "-" || $0 == "+" ? nil : Int64(text, radix: radix) }
  }
}
