/// What a NOTIFY brought.
package struct Notification: Hashable, Sendable {
  package let channel: String
  package let payload: String
  /// The server process that sent it.
  package let processID: Int32
}
