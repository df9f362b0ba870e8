/// The template `original-transaction`: its whole life.
///
/// The original transaction id is the page's title.
struct OriginalTransactionPage: Sendable {
  var page: PageFrame
  var isSandbox: Bool
  /// How it stands, in a sentence.
  var verdict: String
  /// One of ``Tone``.
  var verdictTone: String
  var properties: [Property]
  /// Lines that Apple links with this one.
  var linked: [PageLink]
  var timeline: TimelinePicture
  /// Latest first.
  var charges: [ChargeCard]
  /// Latest first.
  var facts: [FactRow]
}

/// A charge, with the decision on it.
struct ChargeCard: Sendable {
  /// In the page, for the timeline's links.
  var anchor: String
  var transactionID: String
  var productID: String
  var badges: [Badge]
  var chargedAt: Moment
  var until: Moment?
  var price: String
  /// The class of its owner in the timeline, `owner-0` (nobody) to `owner-6`.
  var ownerClass: String
  /// Of its owner in the timeline.
  var letter: String
  /// Nil: nobody owns it.
  var owner: String?
  var ownerHref: String?
  /// One of the interface's rules.
  var rule: String
  /// The decision in a sentence.
  var because: String
  var decidedAt: Moment
  var correctedAt: Moment?
  /// What the decision looked at.
  var evidence: [Property]
  /// What was learned or decided about the charge, in order.
  var history: [FactRow]
  var aliases: [String]
  var transferHref: String
  var releaseHref: String
}

/// Something that was learned or decided, and what brought it.
struct FactRow: Sendable {
  /// In the page, for the timeline's links; nil: nothing leads here.
  var anchor: String?
  /// When it was so, by Apple's word.
  var at: Moment
  /// In words.
  var sentence: String
  /// The original transaction that it is about; nil: the page's, or none.
  var subject: PageLink?
  /// For example `Notification`, `Submission`, `Poll` or `Administrator`.
  var source: String
  /// The class of its mark in the timeline, such as `mark-notification`.
  var sourceClass: String
  /// For example `DID_RENEW`.
  var sourceDetail: String?
  /// The id of the notification or submission.
  var sourceID: String?
  var sourceHref: String?
  /// Why an administrator did it, in his own words; nil: nobody said.
  var reason: String?
  /// When it was recorded; nil: with the fact itself.
  var recordedAt: Moment?
}
