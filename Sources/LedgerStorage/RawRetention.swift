/// How long raw bodies are kept; what was decided of them stays for ever.
package struct RawRetention: Hashable, Sendable {
  /// What was submitted, and what Apple answered about it; nil: for ever.
  package var submissions: Duration?
  /// Notifications, and what Apple answered about receipts in them; nil: for ever.
  package var notifications: Duration?

  package init(submissions: Duration? = nil, notifications: Duration? = nil) {
    self.submissions = submissions
    self.notifications = notifications
  }

  /// Whether everything is kept for ever.
  package var isEndless: Bool { submissions == nil && notifications == nil }
}
