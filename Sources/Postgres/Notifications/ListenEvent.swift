/// What a listener has to tell.
package enum ListenEvent: Hashable, Sendable {
  /// LISTEN is in force for the first time.
  case listening
  /// LISTEN is in force again after a break, or the reader was too slow: notifications may have
  /// been missed.
  case reconnected
  case notification(Notification)
}
