/// The template `unclaimed`: recorded charges that no account owns.
struct UnclaimedPage: Sendable {
  var page: PageFrame
  var properties: [Property]
  /// Those that somebody may still be waiting for.
  var charges: [UnclaimedRow]
  var paging: Paging?
  /// Those whose period was over when they were first seen.
  var historical: [UnclaimedRow]
  var historicalPaging: Paging?
}

/// A charge that nobody owns.
struct UnclaimedRow: Sendable {
  var transactionID: String
  /// To the charge in its original transaction.
  var href: String
  var productID: String
  var chargedAt: Moment
  /// For example `6 d 3 h`.
  var age: String
  var price: String
  var because: String
  var isSandbox: Bool
  var transferHref: String
}

/// The template `parked`: jobs and webhooks that were given up.
struct ParkedPage: Sendable {
  var page: PageFrame
  var jobs: ActionList
  var webhooks: ActionList
}

/// The template `rejected`: receipts and notifications for which Apple does not vouch.
struct RejectedPage: Sendable {
  var page: PageFrame
  /// How many of each code in the past days.
  var codes: DataTable
  var receipts: ActionList
}

/// Things of which some can be chosen, and something done with them, for a reason.
struct ActionList: Sendable {
  /// In the page: letters, digits and hyphens.
  var id: String
  /// Where the form goes; each chosen row is a field `item`.
  var action: String
  var rows: [ActionRow]
  var paging: Paging?
  /// What can be done with the chosen ones; the first is the usual one.
  var buttons: [ActionButton]
  var emptyText: String
}

/// Something that waits for a decision.
struct ActionRow: Sendable {
  /// What the form sends, if it is chosen.
  var value: String
  /// For example `Job poll_line`.
  var kind: String
  var subject: String
  /// What went wrong, in the words that were kept.
  var fault: String
  var since: Moment
  /// For example `3 d 4 h`.
  var age: String
  var attempts: String
  var badges: [Badge]
  /// What else can be done about it.
  var links: [PageLink]
}

/// Something that can be done with chosen rows.
struct ActionButton: Sendable {
  var label: String
  /// The value of the field `do`.
  var value: String
  var isDanger = false
}
