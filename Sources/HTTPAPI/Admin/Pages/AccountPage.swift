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
  /// Charges that its app submitted, and that other accounts own; nil: none.
  var claimed: ChargeSection?
  /// Charges on its original transactions that nobody owns; nil: none.
  var unclaimed: ChargeSection?
  var orders: [OrderRow]
  var grants: [GrantRow]
  var submissions: [SubmissionRow]
  var submissionPaging: Paging?
  /// What the ledger and the record of acts have of it, the latest first.
  var history: [FactRow]
  var historyPaging: Paging?
  /// What is left in the feed of what it was told, the latest first.
  var events: [FactRow]
  var eventPaging: Paging?
  /// What the feed has forgotten, in a sentence; nil: nothing.
  var forgotten: String?
}

/// Charges that an account has to do with and does not own.
struct ChargeSection: Sendable {
  var title: String
  /// What they have in common.
  var lead: String
  var charges: [AccountChargeRow]
  var paging: Paging?
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

/// A charge that an account has to do with.
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
  /// Who owns it; nil: the account itself, or nobody.
  var owner: PageLink?
  /// By whom it was placed or released; nil: by no administrator.
  var placed: ActNote?
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
  var reason: String
  /// By whom it was given; nil: by no administrator, or it is not recorded.
  var given: ActNote?
  /// By whom it was taken back; nil: it was not.
  var takenBack: ActNote?
  /// Nil: there is nothing left to take back.
  var revokeHref: String?
}

/// What an account's app sent.
struct SubmissionRow: Sendable {
  var submissionID: String
  var receivedAt: Moment
  var state: Badge
  /// What was sent, in words.
  var kind: String
  /// What came of it, in words.
  var outcome: String
  /// Of what its sender was warned, in words.
  var warnings: [String]
  var href: String?
}
