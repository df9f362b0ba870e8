import Subscriptions
import Testing

/// The movements in a subscription's life, each case worked out by hand.
struct MovementTests {
  @Test func `a paid time stays in the segments of its first charge, and money in its own`() {
    func reported(_ evidence: Evidence, _ storefront: String, _ offer: OfferType?) -> Evidence {
      guard case .transaction(var record) = evidence else { return evidence }
      (record.storefront, record.offerType) = (storefront, offer)
      return .transaction(record)
    }
    let story = MovementStory(
      "",
      [
        reported(charged("1", 0, 30, as: .intro), "DEU", .introductory),
        reported(charged("2", 30, 60, .monthly, 12000), "USA", nil),
        // After a lapse.
        reported(charged("3", 90, 120), "USA", nil),
      ], [])
    let movements = story.ledger.movements(in: .priced)
    func segments(_ kinds: Movement.Kind...) -> [String] {
      movements.filter { kinds.contains($0.kind) }.map {
        let terms = $0.terms
        let segment = [
          terms.periodType.rawValue, terms.offerType?.rawValue ?? "-", terms.storefront ?? "-",
        ]
        return "\($0.at.inDaysOfStory) \($0.kind) " + segment.joined(separator: " ")
      }
    }
    #expect(
      segments(.charged) == [
        "0 charged intro introductory DEU", "30 charged normal - USA", "90 charged normal - USA",
      ])
    #expect(
      segments(.started, .repriced, .ended, .resumed) == [
        "0 started intro introductory DEU", "30 repriced intro introductory DEU",
        "60 ended intro introductory DEU", "90 resumed normal - USA", "120 ended normal - USA",
      ])
    // Each state is left in the segments in which it was entered.
    let stock = Dictionary(
      grouping: movements.filter { $0.kind == .state },
      by: { "\($0.cause) \($0.terms.periodType) \($0.terms.storefront ?? "-")" }
    ).mapValues { $0.reduce(0) { $0 + $1.number } }.filter { $0.value != 0 }
    #expect(stock == ["expired normal USA": 1])
  }

  @Test("What happened, and is expected", arguments: MovementStory.all)
  func movements(story: MovementStory) {
    #expect(story.ledger.movements(in: story.catalogue).map(\.words) == story.movements)
  }

  @Test("A movement names its charge: the one that began something, or ran when it ended")
  func charges() {
    var ledger = Ledger(members: [mainKey, otherKey])
    for evidence in [
      charged("1", 0, 30), charged("2", 30, 60, line: otherKey),
      .link(line: otherKey, previous: mainKey),
    ] {
      ledger.record([.evidence(evidence)])
    }
    ledger.claim(key("2", line: otherKey), by: a)
    let named = ledger.movements(in: .priced).filter { $0.kind == .state || $0.kind.isOfPaidStock }
    #expect(named.map(\.terms.charge.transactionID) == ["1", "1", "2", "2", "2"])
    #expect(
      named.map(\.terms.charge.line.originalTransactionID)
        == ["1000", "1000", "2000", "2000", "2000"])
    #expect(named.map(\.terms.owner) == [nil, nil, a, a, a])
    #expect(named.allSatisfy { $0.terms.productType == .autoRenewable })
  }

  @Test("A charge keeps its offer and its quantity")
  func details() {
    let story = MovementStory(
      "", [charged("1", 0, 30, as: .offer, quantity: 2, offerID: "spring")], [])
    for movement in story.ledger.movements(in: .priced) {
      #expect(movement.terms.offerID == "spring")
      #expect(movement.terms.quantity == 2)
      #expect(movement.terms.periodType == .offer)
    }
  }

  @Test("A timeline is a picture of every charge and state")
  func timeline() {
    let story = MovementStory(
      "",
      [
        charged("1", 0, 7, .monthly, 0, as: .trial), charged("2", 7, 37), status(20, on: false),
        charged("3", 40, 70, kind: .purchase, refunded: 50),
      ], [])
    let ledger = story.ledger
    let timeline = SubscriptionTimeline(of: ledger.line, rule: ledger.rule, in: .priced)
    let spans = timeline.spans.map { span in
      [span.start.inDays, span.terms.charge.transactionID.rawValue, span.state.rawValue]
        + (span.endCause.map { [$0.rawValue] } ?? [])
    }
    #expect(
      spans == [
        ["day 0", "1", "trial_renewing"], ["day 7", "2", "active_renewing"],
        ["day 20", "2", "active_cancelled", "voluntary"], ["day 37", "2", "expired"],
        ["day 40", "3", "active_renewing", "refunded"], ["day 50", "3", "revoked"],
        ["day 70", "3", "expired"],
      ])
    #expect(timeline.switches.map(\.at) == [day(20)])
    #expect(timeline.spans.map(\.isPaid) == [false, true, true, false, true, false, false])
  }
}

extension MovementStory {
  fileprivate static let all = simple + trials + changes + refunds + trouble + prices + others

  // MARK: One product

  private static let simple = [
    MovementStory(
      "a purchase, and the end that is expected",
      [charged("1", 0, 30)],
      [
        "0 charged 1 EUR 10000", "0 started monthly EUR 10000 since 0",
        "0 +active_renewing monthly",
        "30 ended monthly unknown EUR -10000 since 0",
        "30 -active_renewing monthly", "30 +expired monthly",
      ]),
    MovementStory(
      "a renewal moves the end, and nothing else",
      [charged("1", 0, 30), charged("2", 30, 61)],
      [
        "0 charged 1 EUR 10000", "0 started monthly EUR 10000 since 0",
        "0 +active_renewing monthly",
        "30 charged 2 EUR 10000",
        "61 ended monthly unknown EUR -10000 since 0",
        "61 -active_renewing monthly", "61 +expired monthly",
      ]),
    MovementStory(
      "a gap of a minute is none, and one of more is a lapse",
      [
        charged("1", 0, 30), charged("2", 30 + 60.0 / 86400, 61),
        charged("3", 61 + 61.0 / 86400, 91, kind: .purchase),
      ],
      [
        "0 charged 1 EUR 10000", "0 started monthly EUR 10000 since 0",
        "0 +active_renewing monthly",
        "30+60s charged 2 EUR 10000",
        "61 ended monthly unknown EUR -10000 since 0",
        "61 -active_renewing monthly", "61 +expired monthly",
        "61+61s -expired monthly", "61+61s charged 3 EUR 10000",
        "61+61s resumed monthly EUR 10000 since 0", "61+61s +active_renewing monthly",
        "91 ended monthly unknown EUR -10000 since 0",
        "91 -active_renewing monthly", "91 +expired monthly",
      ]),
    MovementStory(
      "auto-renew off is a state, and why it ends",
      [charged("1", 0, 30), status(10, on: false)],
      [
        "0 charged 1 EUR 10000", "0 started monthly EUR 10000 since 0",
        "0 +active_renewing monthly",
        "10 -active_renewing monthly", "10 auto_renew_off monthly",
        "10 +active_cancelled monthly",
        "30 ended monthly voluntary EUR -10000 since 0",
        "30 -active_cancelled monthly", "30 +expired monthly",
      ]),
    MovementStory(
      "off, repeated, and on again: Apple's reason of before counts no more",
      [
        charged("1", 0, 30), status(10, on: false, intent: 1), status(12, on: false, intent: 1),
        status(20, on: true), status(21, on: true),
      ],
      [
        "0 charged 1 EUR 10000", "0 started monthly EUR 10000 since 0",
        "0 +active_renewing monthly",
        "10 -active_renewing monthly", "10 auto_renew_off monthly",
        "10 +active_cancelled monthly",
        "20 -active_cancelled monthly", "20 auto_renew_on monthly",
        "20 +active_renewing monthly",
        "30 ended monthly unknown EUR -10000 since 0",
        "30 -active_renewing monthly", "30 +expired monthly",
      ]),
    MovementStory(
      "an off that a renewal outlived is over with it; one on the last day is about what follows",
      [
        charged("1", 0, 30), status(10, on: false), charged("2", 30, 60), status(31, on: true),
        status(59.5, on: false), charged("3", 60, 91),
      ],
      [
        "0 charged 1 EUR 10000", "0 started monthly EUR 10000 since 0",
        "0 +active_renewing monthly",
        "10 -active_renewing monthly", "10 auto_renew_off monthly",
        "10 +active_cancelled monthly",
        "30 -active_cancelled monthly", "30 charged 2 EUR 10000", "30 +active_renewing monthly",
        "59+43200s -active_renewing monthly", "59+43200s auto_renew_off monthly",
        "59+43200s +active_cancelled monthly",
        "60 charged 3 EUR 10000",
        "91 ended monthly voluntary EUR -10000 since 0",
        "91 -active_cancelled monthly", "91 +expired monthly",
      ]),
    MovementStory(
      "on and off of one date is off, and no switch",
      [charged("1", 0, 30), status(5, on: false), status(10, on: false), status(10, on: true)],
      [
        "0 charged 1 EUR 10000", "0 started monthly EUR 10000 since 0",
        "0 +active_renewing monthly",
        "5 -active_renewing monthly", "5 auto_renew_off monthly", "5 +active_cancelled monthly",
        "30 ended monthly voluntary EUR -10000 since 0",
        "30 -active_cancelled monthly", "30 +expired monthly",
      ]),
    MovementStory(
      "Apple's reason of a period that was renewed all the same says nothing of the next one",
      [charged("1", 0, 30), status(20, on: false, intent: 1), charged("2", 30, 60)],
      [
        "0 charged 1 EUR 10000", "0 started monthly EUR 10000 since 0",
        "0 +active_renewing monthly",
        "20 -active_renewing monthly", "20 auto_renew_off monthly",
        "20 +active_cancelled monthly",
        "30 -active_cancelled monthly", "30 charged 2 EUR 10000", "30 +active_renewing monthly",
        "60 ended monthly unknown EUR -10000 since 0",
        "60 -active_renewing monthly", "60 +expired monthly",
      ]),
    MovementStory(
      "what Apple switches off after the end is not the customer's doing",
      [charged("1", 0, 30), status(30.5, on: false, .expired)],
      [
        "0 charged 1 EUR 10000", "0 started monthly EUR 10000 since 0",
        "0 +active_renewing monthly",
        "30 ended monthly voluntary EUR -10000 since 0",
        "30 -active_renewing monthly", "30 +expired monthly",
      ]),
    MovementStory(
      "resubscribed after a lapse, with another product",
      [
        charged("1", 0, 30), status(10, on: false),
        charged("2", 100, 465, .yearly, 60000, kind: .purchase),
      ],
      [
        "0 charged 1 EUR 10000", "0 started monthly EUR 10000 since 0",
        "0 +active_renewing monthly",
        "10 -active_renewing monthly", "10 auto_renew_off monthly",
        "10 +active_cancelled monthly",
        "30 ended monthly voluntary EUR -10000 since 0",
        "30 -active_cancelled monthly", "30 +expired monthly",
        "100 -expired monthly", "100 charged 2 EUR 60000",
        "100 resumed yearly EUR 5000 since 0", "100 +active_renewing yearly",
        "465 ended yearly unknown EUR -5000 since 0",
        "465 -active_renewing yearly", "465 +expired yearly",
      ]),
  ]

  // MARK: Trials and offers

  private static let trials = [
    MovementStory(
      "a trial that is expected to lapse",
      [charged("1", 0, 7, .monthly, 0, as: .trial)],
      [
        "0 charged 1 EUR 0", "0 +trial_renewing monthly", "0 trial_started monthly since 0",
        "7 -trial_renewing monthly", "7 trial_ended monthly unknown since 0", "7 +expired monthly",
      ]),
    MovementStory(
      "a trial that is cancelled, and converted all the same",
      [charged("1", 0, 7, .monthly, 0, as: .trial), status(3, on: false), charged("2", 7, 37)],
      [
        "0 charged 1 EUR 0", "0 +trial_renewing monthly", "0 trial_started monthly since 0",
        "3 -trial_renewing monthly", "3 auto_renew_off monthly", "3 +trial_cancelled monthly",
        "7 -trial_cancelled monthly", "7 trial_ended monthly converted since 0",
        "7 charged 2 EUR 10000", "7 started monthly EUR 10000 since 7",
        "7 +active_renewing monthly",
        "37 ended monthly unknown EUR -10000 since 7",
        "37 -active_renewing monthly", "37 +expired monthly",
      ]),
    MovementStory(
      "a trial whose first charge fails and is recovered is converted",
      [
        charged("1", 0, 7, .monthly, nil, as: .trial), status(7.5, .billingRetry),
        charged("2", 20, 50),
      ],
      [
        "0 charged 1 USD 0 by catalogue", "0 +trial_renewing monthly",
        "0 trial_started monthly since 0",
        "7 -trial_renewing monthly", "7 trial_ended monthly billing since 0",
        "7 retry_entered monthly", "7 +in_billing_retry monthly",
        "20 -in_billing_retry monthly", "20 trial_ended monthly converted since 0",
        "20 billing_recovered monthly since 7",
        "20 charged 2 EUR 10000", "20 started monthly EUR 10000 since 20",
        "20 +active_renewing monthly", "20 taken back trial_ended monthly recovered since 0",
        "50 ended monthly unknown EUR -10000 since 20",
        "50 -active_renewing monthly", "50 +expired monthly",
      ]),
    MovementStory(
      "a trial that is cancelled ends by the customer's will, and what is paid after that is new",
      [charged("1", 0, 7, .monthly, 0, as: .trial), status(3, on: false), charged("2", 20, 50)],
      [
        "0 charged 1 EUR 0", "0 +trial_renewing monthly", "0 trial_started monthly since 0",
        "3 -trial_renewing monthly", "3 auto_renew_off monthly", "3 +trial_cancelled monthly",
        "7 -trial_cancelled monthly", "7 trial_ended monthly voluntary since 0",
        "7 +expired monthly", "20 -expired monthly",
        "20 charged 2 EUR 10000", "20 started monthly EUR 10000 since 20",
        "20 +active_renewing monthly",
        "50 ended monthly unknown EUR -10000 since 20",
        "50 -active_renewing monthly", "50 +expired monthly",
      ]),
    MovementStory(
      "an upgrade ends a trial by converting it",
      [
        charged("1", 0, 7, .monthly, 0, as: .trial),
        charged("2", 3, 368, .yearly, 60000, kind: .purchase),
      ],
      [
        "0 charged 1 EUR 0", "0 +trial_renewing monthly", "0 trial_started monthly since 0",
        "3 -trial_renewing monthly", "3 trial_ended monthly converted since 0",
        "3 charged 2 EUR 60000", "3 started yearly EUR 5000 since 3",
        "3 +active_renewing yearly",
        "368 ended yearly unknown EUR -5000 since 3",
        "368 -active_renewing yearly", "368 +expired yearly",
      ]),
    MovementStory(
      "an introductory price, paid for three months at once, and the regular one after it",
      [charged("1", 0, 90, .monthly, 12000, as: .intro, offerID: "o"), charged("2", 90, 120)],
      [
        "0 charged 1 EUR 12000", "0 started monthly EUR 4000 since 0",
        "0 +active_renewing monthly",
        "90 -active_renewing monthly", "90 repriced monthly EUR 6000 since 0",
        "90 charged 2 EUR 10000", "90 +active_renewing monthly",
        "120 ended monthly unknown EUR -10000 since 0",
        "120 -active_renewing monthly", "120 +expired monthly",
      ]),
    MovementStory(
      "an offer for nothing is paid for, with nothing",
      [charged("1", 0, 30, .monthly, 0, as: .offer)],
      [
        "0 charged 1 EUR 0", "0 started monthly EUR 0 since 0", "0 +active_renewing monthly",
        "30 ended monthly unknown EUR 0 since 0",
        "30 -active_renewing monthly", "30 +expired monthly",
      ]),
  ]

  // MARK: Other products

  private static let changes = [
    MovementStory(
      "an upgrade takes place at once, and refunds nothing",
      [
        charged("1", 0, 30, received: 10, isUpgraded: true),
        charged("2", 10, 375, .yearly, 60000, kind: .purchase),
      ],
      [
        "0 charged 1 EUR 10000", "0 started monthly EUR 10000 since 0",
        "0 +active_renewing monthly",
        "10 changed_from monthly EUR -10000 since 0", "10 -active_renewing monthly",
        "10 changed_to yearly EUR 5000 since 0", "10 charged 2 EUR 60000",
        "10 +active_renewing yearly",
        "375 ended yearly unknown EUR -5000 since 0",
        "375 -active_renewing yearly", "375 +expired yearly",
      ]),
    MovementStory(
      "an upgrade that a receipt reports as a cancellation",
      [
        charged("1", 0, 30, kind: .unknown, refunded: 10),
        charged("2", 10, 375, .yearly, 60000, kind: .unknown),
      ],
      [
        "0 charged 1 EUR 10000", "0 started monthly EUR 10000 since 0",
        "0 +active_renewing monthly",
        "10 changed_from monthly EUR -10000 since 0", "10 -active_renewing monthly",
        "10 changed_to yearly EUR 5000 since 0", "10 charged 2 EUR 60000",
        "10 +active_renewing yearly",
        "375 ended yearly unknown EUR -5000 since 0",
        "375 -active_renewing yearly", "375 +expired yearly",
      ]),
    MovementStory(
      "a downgrade takes place when the period ends",
      [charged("1", 0, 365, .yearly, 60000), charged("2", 365, 395)],
      [
        "0 charged 1 EUR 60000", "0 started yearly EUR 5000 since 0",
        "0 +active_renewing yearly",
        "365 changed_from yearly EUR -5000 since 0", "365 -active_renewing yearly",
        "365 changed_to monthly EUR 10000 since 0", "365 charged 2 EUR 10000",
        "365 +active_renewing monthly",
        "395 ended monthly unknown EUR -10000 since 0",
        "395 -active_renewing monthly", "395 +expired monthly",
      ]),
    MovementStory(
      "of two at once the later counts, and while it does not run the earlier",
      [
        charged("1", 0, 365, .yearly, 60000, kind: .unknown), charged("2", 10, 40, kind: .unknown),
      ],
      [
        "0 charged 1 EUR 60000", "0 started yearly EUR 5000 since 0",
        "0 +active_renewing yearly",
        "10 changed_from yearly EUR -5000 since 0", "10 -active_renewing yearly",
        "10 changed_to monthly EUR 10000 since 0", "10 charged 2 EUR 10000",
        "10 +active_renewing monthly",
        "40 changed_from monthly EUR -10000 since 0", "40 -active_renewing monthly",
        "40 changed_to yearly EUR 5000 since 0", "40 +active_renewing yearly",
        "365 ended yearly unknown EUR -5000 since 0",
        "365 -active_renewing yearly", "365 +expired yearly",
      ]),
  ]

  // MARK: Refunds

  private static let refunds = [
    MovementStory(
      "a refund of what runs ends it at once",
      [charged("1", 0, 30, refunded: 12, reason: "1")],
      [
        "0 charged 1 EUR 10000", "0 started monthly EUR 10000 since 0",
        "0 +active_renewing monthly",
        "12 ended monthly refunded EUR -10000 since 0",
        "12 refunded 1 1 EUR -10000 since 0", "12 -active_renewing monthly",
        "12 +revoked monthly",
        "30 -revoked monthly", "30 +expired monthly",
      ]),
    MovementStory(
      "a refund of a past period takes only money",
      [charged("1", 0, 30, refunded: 45, reason: "0"), charged("2", 30, 60)],
      [
        "0 charged 1 EUR 10000", "0 started monthly EUR 10000 since 0",
        "0 +active_renewing monthly",
        "30 charged 2 EUR 10000",
        "45 refunded 1 0 EUR -10000 since 0",
        "60 ended monthly unknown EUR -10000 since 0",
        "60 -active_renewing monthly", "60 +expired monthly",
      ]),
    MovementStory(
      "a refund that was reversed is none",
      [charged("1", 0, 30, refunded: 12), charged("1", 0, 30, received: 14)],
      [
        "0 charged 1 EUR 10000", "0 started monthly EUR 10000 since 0",
        "0 +active_renewing monthly",
        "30 ended monthly unknown EUR -10000 since 0",
        "30 -active_renewing monthly", "30 +expired monthly",
      ]),
    MovementStory(
      "of a refund of what was bought last the period before still runs",
      [charged("1", 0, 30), charged("2", 29, 60, refunded: 29.5)],
      [
        "0 charged 1 EUR 10000", "0 started monthly EUR 10000 since 0",
        "0 +active_renewing monthly",
        "29 charged 2 EUR 10000",
        "29+43200s refunded 2 EUR -10000 since 29",
        "30 ended monthly unknown EUR -10000 since 0",
        "30 -active_renewing monthly", "30 +expired monthly",
      ]),
    MovementStory(
      "what is taken back before it begins covers no time",
      [charged("1", 5, 35, refunded: 4)],
      [
        "4 refunded 1 EUR -10000 since 5",
        "5 charged 1 EUR 10000", "5 +revoked monthly",
        "35 -revoked monthly", "35 +expired monthly",
      ]),
    MovementStory(
      "a trial that is taken back",
      [charged("1", 0, 7, .monthly, 0, as: .trial, refunded: 2)],
      [
        "0 charged 1 EUR 0", "0 +trial_renewing monthly", "0 trial_started monthly since 0",
        "2 refunded 1 EUR 0 since 0", "2 -trial_renewing monthly",
        "2 trial_ended monthly refunded since 0", "2 +revoked monthly",
        "7 -revoked monthly", "7 +expired monthly",
      ]),
  ]

  // MARK: Trouble

  private static let trouble = [
    MovementStory(
      "a grace period that is recovered is one subscription without a gap",
      [
        charged("1", 0, 30), status(30.5, on: true, .gracePeriod(until: day(46))),
        charged("2", 40, 60),
      ],
      [
        "0 charged 1 EUR 10000", "0 started monthly EUR 10000 since 0",
        "0 +active_renewing monthly",
        "30 -active_renewing monthly", "30 grace_entered monthly",
        "30 +in_grace_period monthly",
        "40 -in_grace_period monthly", "40 billing_recovered monthly since 30",
        "40 charged 2 EUR 10000", "40 +active_renewing monthly",
        "60 ended monthly unknown EUR -10000 since 0",
        "60 -active_renewing monthly", "60 +expired monthly",
      ]),
    MovementStory(
      "a grace period that is over, and sixty days of trying",
      [
        charged("1", 0, 30), status(30.5, on: true, .gracePeriod(until: day(46))),
        status(46.2, on: true, .billingRetry),
      ],
      [
        "0 charged 1 EUR 10000", "0 started monthly EUR 10000 since 0",
        "0 +active_renewing monthly",
        "30 -active_renewing monthly", "30 grace_entered monthly",
        "30 +in_grace_period monthly",
        "46 ended monthly billing EUR -10000 since 0", "46 -in_grace_period monthly",
        "46 retry_entered monthly", "46 +in_billing_retry monthly",
        "90 -in_billing_retry monthly", "90 billing_lost monthly since 30",
        "90 +expired monthly",
      ]),
    MovementStory(
      "a grace period that ends without a word",
      [charged("1", 0, 30), status(30.5, on: true, .gracePeriod(until: day(46)))],
      [
        "0 charged 1 EUR 10000", "0 started monthly EUR 10000 since 0",
        "0 +active_renewing monthly",
        "30 -active_renewing monthly", "30 grace_entered monthly",
        "30 +in_grace_period monthly",
        "46 ended monthly billing EUR -10000 since 0", "46 -in_grace_period monthly",
        "46 billing_lost monthly since 30", "46 +expired monthly",
      ]),
    MovementStory(
      "billing retry that is recovered: a lapse, and paid again",
      [charged("1", 0, 30), status(30.1, on: true, .billingRetry), charged("2", 50, 80)],
      [
        "0 charged 1 EUR 10000", "0 started monthly EUR 10000 since 0",
        "0 +active_renewing monthly",
        "30 ended monthly billing EUR -10000 since 0", "30 -active_renewing monthly",
        "30 retry_entered monthly", "30 +in_billing_retry monthly",
        "50 -in_billing_retry monthly", "50 billing_recovered monthly since 30",
        "50 charged 2 EUR 10000", "50 resumed monthly recovered EUR 10000 since 0",
        "50 +active_renewing monthly",
        "80 ended monthly unknown EUR -10000 since 0",
        "80 -active_renewing monthly", "80 +expired monthly",
      ]),
    MovementStory(
      "Apple renews late, so that it retried the charge, whatever it reported",
      [charged("1", 0, 30), charged("2", 50, 80, kind: .renewal)],
      [
        "0 charged 1 EUR 10000", "0 started monthly EUR 10000 since 0",
        "0 +active_renewing monthly",
        "30 ended monthly billing EUR -10000 since 0", "30 -active_renewing monthly",
        "30 retry_entered monthly", "30 +in_billing_retry monthly",
        "50 -in_billing_retry monthly", "50 billing_recovered monthly since 30",
        "50 charged 2 EUR 10000", "50 resumed monthly recovered EUR 10000 since 0",
        "50 +active_renewing monthly",
        "80 ended monthly unknown EUR -10000 since 0",
        "80 -active_renewing monthly", "80 +expired monthly",
      ]),
    MovementStory(
      "a renewal later than Apple retries, after renewals that are not known",
      [charged("1", 0, 30), charged("2", 91, 121, kind: .renewal)],
      [
        "0 charged 1 EUR 10000", "0 started monthly EUR 10000 since 0",
        "0 +active_renewing monthly",
        "30 ended monthly unknown EUR -10000 since 0", "30 -active_renewing monthly",
        "30 +expired monthly",
        "91 -expired monthly", "91 charged 2 EUR 10000", "91 resumed monthly EUR 10000 since 0",
        "91 +active_renewing monthly",
        "121 ended monthly unknown EUR -10000 since 0",
        "121 -active_renewing monthly", "121 +expired monthly",
      ]),
    MovementStory(
      "a purchase within the days in which Apple would retry is no recovery",
      [charged("1", 0, 30), charged("2", 50, 80, kind: .purchase)],
      [
        "0 charged 1 EUR 10000", "0 started monthly EUR 10000 since 0",
        "0 +active_renewing monthly",
        "30 ended monthly unknown EUR -10000 since 0", "30 -active_renewing monthly",
        "30 +expired monthly",
        "50 -expired monthly", "50 charged 2 EUR 10000", "50 resumed monthly EUR 10000 since 0",
        "50 +active_renewing monthly",
        "80 ended monthly unknown EUR -10000 since 0",
        "80 -active_renewing monthly", "80 +expired monthly",
      ]),
    MovementStory(
      "a renewal after Apple gave up is a return",
      [
        charged("1", 0, 30), status(40, on: true, .expired),
        charged("2", 50, 80, kind: .renewal),
      ],
      [
        "0 charged 1 EUR 10000", "0 started monthly EUR 10000 since 0",
        "0 +active_renewing monthly",
        "30 ended monthly unknown EUR -10000 since 0", "30 -active_renewing monthly",
        "30 +expired monthly",
        "50 -expired monthly", "50 charged 2 EUR 10000", "50 resumed monthly EUR 10000 since 0",
        "50 +active_renewing monthly",
        "80 ended monthly unknown EUR -10000 since 0",
        "80 -active_renewing monthly", "80 +expired monthly",
      ]),
    MovementStory(
      "billing retry that Apple gives up, and the customer who had switched off meanwhile",
      [
        charged("1", 0, 30), status(29.5, on: true, .billingRetry, intent: 2),
        status(40, on: false, .billingRetry), status(70, on: false, .expired, intent: 2),
      ],
      [
        "0 charged 1 EUR 10000", "0 started monthly EUR 10000 since 0",
        "0 +active_renewing monthly",
        "30 ended monthly billing EUR -10000 since 0", "30 -active_renewing monthly",
        "30 retry_entered monthly", "30 +in_billing_retry monthly",
        "40 auto_renew_off monthly",
        "70 -in_billing_retry monthly", "70 billing_lost monthly since 30",
        "70 +expired monthly",
      ]),
    MovementStory(
      "ninety days on a commitment, whose months are paid for one by one",
      [
        charged("1", 0, 31, .yearly, 5000, isCommitment: true),
        status(31, on: true, .billingRetry, isCommitment: true),
      ],
      [
        "0 charged 1 EUR 5000", "0 started yearly EUR 5000 since 0",
        "0 +active_renewing yearly",
        "31 ended yearly billing EUR -5000 since 0", "31 -active_renewing yearly",
        "31 retry_entered yearly", "31 +in_billing_retry yearly",
        "121 -in_billing_retry yearly", "121 billing_lost yearly since 31",
        "121 +expired yearly",
      ]),
    MovementStory(
      "what Apple undoes before the period ends was no trouble",
      [
        charged("1", 0, 30), status(29.5, on: true, .gracePeriod(until: day(46))),
        status(29.8, on: true, .undisturbed),
      ],
      [
        "0 charged 1 EUR 10000", "0 started monthly EUR 10000 since 0",
        "0 +active_renewing monthly",
        "30 ended monthly unknown EUR -10000 since 0",
        "30 -active_renewing monthly", "30 +expired monthly",
      ]),
    MovementStory(
      "of two words of one date the graver holds, and off",
      [
        charged("1", 0, 30), status(29, on: true, .billingRetry),
        status(29, on: false, .undisturbed),
      ],
      [
        "0 charged 1 EUR 10000", "0 started monthly EUR 10000 since 0",
        "0 +active_renewing monthly",
        "29 -active_renewing monthly", "29 auto_renew_off monthly",
        "29 +active_cancelled monthly",
        "30 ended monthly voluntary EUR -10000 since 0", "30 -active_cancelled monthly",
        "30 retry_entered monthly", "30 +in_billing_retry monthly",
        "90 -in_billing_retry monthly", "90 billing_lost monthly since 30",
        "90 +expired monthly",
      ]),
    MovementStory(
      "a refund during billing retry ends Apple's trying",
      [charged("1", 0, 30, refunded: 40), status(30.1, on: true, .billingRetry)],
      [
        "0 charged 1 EUR 10000", "0 started monthly EUR 10000 since 0",
        "0 +active_renewing monthly",
        "30 ended monthly billing EUR -10000 since 0", "30 -active_renewing monthly",
        "30 retry_entered monthly", "30 +in_billing_retry monthly",
        "40 refunded 1 EUR -10000 since 0", "40 -in_billing_retry monthly",
        "40 billing_lost monthly since 30", "40 +expired monthly",
      ]),
    MovementStory(
      "a refund in the grace period ends it",
      [
        charged("1", 0, 30, refunded: 40),
        status(30.1, on: true, .gracePeriod(until: day(46))), status(46.5, on: true, .billingRetry),
      ],
      [
        "0 charged 1 EUR 10000", "0 started monthly EUR 10000 since 0",
        "0 +active_renewing monthly",
        "30 -active_renewing monthly", "30 grace_entered monthly",
        "30 +in_grace_period monthly",
        "40 ended monthly refunded EUR -10000 since 0", "40 refunded 1 EUR -10000 since 0",
        "40 -in_grace_period monthly", "40 billing_lost monthly since 30", "40 +expired monthly",
      ]),
    MovementStory(
      "billing retry that Apple undoes before the period ends was none",
      [
        charged("1", 0, 30), status(29.5, on: true, .billingRetry),
        status(29.8, on: true, .undisturbed),
      ],
      [
        "0 charged 1 EUR 10000", "0 started monthly EUR 10000 since 0",
        "0 +active_renewing monthly",
        "30 ended monthly unknown EUR -10000 since 0",
        "30 -active_renewing monthly", "30 +expired monthly",
      ]),
    MovementStory(
      "what is bought in billing retry and taken back at once recovers nothing",
      [
        charged("1", 0, 30), status(30.1, on: true, .billingRetry),
        charged("2", 50, 80, kind: .purchase, refunded: 50),
      ],
      [
        "0 charged 1 EUR 10000", "0 started monthly EUR 10000 since 0",
        "0 +active_renewing monthly",
        "30 ended monthly billing EUR -10000 since 0", "30 -active_renewing monthly",
        "30 retry_entered monthly", "30 +in_billing_retry monthly",
        "50 refunded 2 EUR -10000 since 50", "50 -in_billing_retry monthly",
        "50 billing_lost monthly since 30", "50 charged 2 EUR 10000", "50 +revoked monthly",
        "80 -revoked monthly", "80 +expired monthly",
      ]),
    MovementStory(
      "no consent to a price, and a product that is withdrawn",
      [
        charged("1", 0, 30), status(25, on: true, intent: 3),
        charged("2", 100, 130, kind: .purchase),
        status(130.5, .expired, intent: 4),
      ],
      [
        "0 charged 1 EUR 10000", "0 started monthly EUR 10000 since 0",
        "0 +active_renewing monthly",
        "30 ended monthly price_not_consented EUR -10000 since 0",
        "30 -active_renewing monthly", "30 +expired monthly",
        "100 -expired monthly", "100 charged 2 EUR 10000",
        "100 resumed monthly EUR 10000 since 0", "100 +active_renewing monthly",
        "130 ended monthly product_withdrawn EUR -10000 since 0",
        "130 -active_renewing monthly", "130 +expired monthly",
      ]),
  ]

  // MARK: Prices

  private static let prices = [
    MovementStory(
      "another price",
      [charged("1", 0, 30), charged("2", 30, 61, .monthly, 12000)],
      [
        "0 charged 1 EUR 10000", "0 started monthly EUR 10000 since 0",
        "0 +active_renewing monthly",
        "30 repriced monthly EUR 2000 since 0", "30 charged 2 EUR 12000",
        "61 ended monthly unknown EUR -12000 since 0",
        "61 -active_renewing monthly", "61 +expired monthly",
      ]),
    MovementStory(
      "another currency",
      [charged("1", 0, 30), charged("2", 30, 61, .monthly, 11000, "CHF")],
      [
        "0 charged 1 EUR 10000", "0 started monthly EUR 10000 since 0",
        "0 +active_renewing monthly",
        "30 repriced monthly from EUR -10000 since 0",
        "30 repriced monthly to CHF 11000 since 0", "30 charged 2 CHF 11000",
        "61 ended monthly unknown CHF -11000 since 0",
        "61 -active_renewing monthly", "61 +expired monthly",
      ]),
    MovementStory(
      "without Apple's price the catalogue's of that date",
      [
        charged("1", 0, 30, .monthly, nil), charged("2", 30, 61, .monthly, nil),
        charged("3", 61, 91, .monthly, nil),
      ],
      [
        "0 charged 1 USD 8000 by catalogue", "0 started monthly USD 8000 by catalogue since 0",
        "0 +active_renewing monthly",
        "30 charged 2 USD 8000 by catalogue",
        "61 repriced monthly USD 1000 by catalogue since 0",
        "61 charged 3 USD 9000 by catalogue",
        "91 ended monthly unknown USD -9000 by catalogue since 0",
        "91 -active_renewing monthly", "91 +expired monthly",
      ]),
    MovementStory(
      "where Apple names the price of the catalogue, the source changes, and the price",
      [charged("1", 0, 30, .monthly, nil), charged("2", 30, 61, .monthly, 8500, "USD")],
      [
        "0 charged 1 USD 8000 by catalogue", "0 started monthly USD 8000 by catalogue since 0",
        "0 +active_renewing monthly",
        "30 repriced monthly USD 500 since 0",
        "30 repriced monthly from USD -8000 by catalogue since 0",
        "30 repriced monthly to USD 8000 since 0", "30 charged 2 USD 8500",
        "61 ended monthly unknown USD -8500 since 0",
        "61 -active_renewing monthly", "61 +expired monthly",
      ]),
    MovementStory(
      "without any price it is counted all the same",
      [charged("1", 0, 30, .unlisted, nil)],
      [
        "0 charged 1 unpriced", "0 started unheard unpriced since 0",
        "0 +active_renewing unheard",
        "30 ended unheard unknown unpriced since 0",
        "30 -active_renewing unheard", "30 +expired unheard",
      ]),
    MovementStory(
      "a price that is none",
      [charged("1", 0, 30, .unlisted, -5), charged("2", 30, 60, .unlisted, .max)],
      [
        "0 charged 1 unpriced", "0 started unheard unpriced since 0",
        "0 +active_renewing unheard", "30 charged 2 unpriced",
        "60 ended unheard unknown unpriced since 0",
        "60 -active_renewing unheard", "60 +expired unheard",
      ]),
    MovementStory(
      "without a catalogue the dates give the period: a week counts four times",
      [charged("1", 0, 7, .unlisted, 1000)],
      [
        "0 charged 1 EUR 1000", "0 started unheard EUR 4000 since 0",
        "0 +active_renewing unheard",
        "7 ended unheard unknown EUR -4000 since 0",
        "7 -active_renewing unheard", "7 +expired unheard",
      ]),
    MovementStory(
      "a length that is no period brings in nothing a month",
      [charged("1", 0, 20, .unlisted, 1000)],
      [
        "0 charged 1 EUR 1000", "0 started unheard EUR 0 since 0",
        "0 +active_renewing unheard",
        "20 ended unheard unknown EUR 0 since 0",
        "20 -active_renewing unheard", "20 +expired unheard",
      ]),
    MovementStory(
      "a year's twelfth need not be whole",
      [charged("1", 0, 365, .yearly, 99990)],
      [
        "0 charged 1 EUR 99990", "0 started yearly EUR 8332+6/12 since 0",
        "0 +active_renewing yearly",
        "365 ended yearly unknown EUR -8332+-6/12 since 0",
        "365 -active_renewing yearly", "365 +expired yearly",
      ]),
    MovementStory(
      "an extension of the period by Apple changes its end, and not what it brings in",
      [charged("1", 0, 30), charged("1", 0, 45, received: 3)],
      [
        "0 charged 1 EUR 10000", "0 started monthly EUR 10000 since 0",
        "0 +active_renewing monthly",
        "45 ended monthly unknown EUR -10000 since 0",
        "45 -active_renewing monthly", "45 +expired monthly",
      ]),
  ]

  // MARK: Others

  private static let others = [
    MovementStory(
      "what another family member pays for brings in nothing",
      [charged("1", 0, 30, of: .familyShared)],
      [
        "0 charged 1 EUR 0", "0 started monthly EUR 0 since 0", "0 +active_renewing monthly",
        "30 ended monthly unknown EUR 0 since 0",
        "30 -active_renewing monthly", "30 +expired monthly",
      ]),
    MovementStory(
      "an alias counts once",
      [
        charged("1", 0, 30),
        {
          guard case .transaction(var record) = charged("9", 0, 30) else {
            return charged("9", 0, 30)
          }
          record.webOrderLineItemID = "w1"
          return .transaction(record)
        }(),
      ],
      [
        "0 charged 1 EUR 10000", "0 started monthly EUR 10000 since 0",
        "0 +active_renewing monthly",
        "30 ended monthly unknown EUR -10000 since 0",
        "30 -active_renewing monthly", "30 +expired monthly",
      ]),
    MovementStory(
      "lines that Apple links are one subscription",
      [
        charged("1", 0, 30), charged("2", 30, 60, line: otherKey),
        .link(line: otherKey, previous: mainKey),
      ],
      [
        "0 charged 1 EUR 10000", "0 started monthly EUR 10000 since 0",
        "0 +active_renewing monthly", "30 charged 2 EUR 10000",
        "60 ended monthly unknown EUR -10000 since 0",
        "60 -active_renewing monthly", "60 +expired monthly",
      ]),
    MovementStory(
      "what has no period is charged, and nothing more",
      [charged("1", 0, nil, .gems, nil, kind: .purchase)], ["0 charged 1 USD 990 by catalogue"]),
    MovementStory(
      "three at once cost what Apple says, and can be taken back",
      [charged("1", 3, nil, .gems, 2970, kind: .purchase, quantity: 3, refunded: 5)],
      ["3 charged 1 EUR 2970", "5 refunded 1 EUR -2970 since 3"]),
    MovementStory(
      "where Apple says no price, three cost three times what the catalogue says",
      [charged("1", 3, nil, .gems, nil, kind: .purchase, quantity: 3, refunded: 5)],
      ["3 charged 1 USD 2970 by catalogue", "5 refunded 1 USD -2970 by catalogue since 3"]),
    MovementStory(
      "more than can be counted has no price",
      [charged("1", 3, nil, .gems, nil, kind: .purchase, quantity: .max)],
      ["3 charged 1 unpriced"]),
    MovementStory(
      "a charge whose end Apple left out covers no time, and stops nothing",
      [
        charged("1", 0, 30),
        {
          var record = charge("2", from: day(10))
          record.productType = .autoRenewable
          return .transaction(record)
        }(),
      ],
      [
        "0 charged 1 EUR 10000", "0 started monthly EUR 10000 since 0",
        "0 +active_renewing monthly", "10 charged 2 USD 8000 by catalogue",
        "30 ended monthly unknown EUR -10000 since 0",
        "30 -active_renewing monthly", "30 +expired monthly",
      ]),
    MovementStory("nothing comes to nothing", [], []),
  ]
}
