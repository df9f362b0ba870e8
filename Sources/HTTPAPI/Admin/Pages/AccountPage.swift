/// The template `account`: what an account may use now and why, and all that is known of it.
///
/// The account id is the page's title.
struct AccountPage: Sendable {
  var page: PageFrame
  /// Why it can or cannot use what it paid for, in a sentence or two.
  var verdict: String
  /// One of ``Tone``.
  var verdictTone: String
  var properties: [Property]
  var entitlements: [EntitlementRow]
  /// A lane for each original transaction; nil: no charges.
  var timeline: TimelinePicture?
  var charges: [AccountChargeRow]
  var chargePaging: Paging?
  var orders: [OrderRow]
  var grants: [GrantRow]
  var submissions: [SubmissionRow]
  var events: [FactRow]
  var eventPaging: Paging?
}

/// What an account may use, or might have used.
struct EntitlementRow: Sendable {
  var name: String
  var state: Badge
  /// Where it comes from, in words, for example `monthly, renews on 2026-12-14`.
  var because: String
  /// The end of access; nil: it is not known, or never.
  var until: Moment?
  /// It never ends.
  var isEndless = false
  var productID: String?
  /// The original transaction or the grant.
  var source: String
  var href: String?
  var isSandbox: Bool
}

/// A charge that an account owns.
struct AccountChargeRow: Sendable {
  var transactionID: String
  var href: String
  var productID: String
  var chargedAt: Moment
  var until: Moment?
  var price: String
  var state: Badge
  /// One of the interface's rules.
  var rule: String
  var because: String
  var isSandbox: Bool
  var transferHref: String
}

/// An order that the account opened.
struct OrderRow: Sendable {
  var orderID: String
  var productID: String
  var openedAt: Moment
  var state: Badge
  var transactionID: String?
  var href: String?
  /// For example `delivered 2026-11-20 08:14` or `not acknowledged`.
  var delivery: String?
}

/// An entitlement that was given.
struct GrantRow: Sendable {
  var grantID: String
  var entitlement: String
  var state: Badge
  var from: Moment
  var until: Moment?
  var administrator: String?
  var reason: String
  /// Nil: there is nothing left to take back.
  var revokeHref: String?
}

/// What an account's app sent.
struct SubmissionRow: Sendable {
  var submissionID: String
  var receivedAt: Moment
  var state: Badge
  /// What came of it, in words.
  var outcome: String
  var href: String?
}
