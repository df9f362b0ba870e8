import Subscriptions

/// One outcome that was compared with what the rule's article says.
struct DemoCheck: Sendable {
  /// Whose a charge is.
  struct Ownership: Sendable {
    let what: String
    let transaction: TransactionID
    let expected: String?
    let owner: String?
    let rule: Decision.Rule
  }

  let scenario: String
  let isMet: Bool
  /// What came out, in words.
  let sentence: String
  /// Nil: the outcome is about something else.
  var ownership: Ownership?
}
