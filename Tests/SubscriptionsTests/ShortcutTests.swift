import Subscriptions
import Testing

/// The shortcut for the common case, against the replay.
struct ShortcutTests {
  @Test func equalToTheReplayWheneverItApplies() {
    var (applied, declined) = (0, 0)
    forAll("The shortcut equals the replay", iterations: 150) { generator in
      let history = RandomHistory(isHostile: generator.once(in: 3), using: &generator)
      var ledger = history.ledger
      // Mostly as it happens: in the order of dates.
      let items =
        generator.once(in: 4)
        ? rearranged(history.items, using: &generator) : chronological(history.items)
      for batch in batches(items, using: &generator) {
        let (updated, news) = news(of: batch, in: ledger.line)
        let known = ledger.line.decisions.mapValues(\.decision)
        if let shortcut = OwnershipRule(updated, known: known, news: news) {
          applied += 1
          let replayed = OwnershipRule(updated)
          if shortcut.decisions != replayed.decisions { return "\(shortcut.decisions)" }
        } else {
          declined += 1
        }
        ledger.record(batch)
      }
      return nil
    }
    print("The shortcut applied \(applied) times and declined \(declined) times")
    #expect(applied > declined, "it is for the common case")
    #expect(declined > 100, "and there are others")
  }

  struct Case: Sendable, CustomTestStringConvertible {
    var name: String
    var items: [Item]
    var applies: Bool

    init(_ name: String, _ items: [Item], _ applies: Bool) {
      self.name = name
      self.items = items
      self.applies = applies
    }

    var testDescription: String { name }
  }

  static func told(_ record: TransactionRecord) -> Item { .evidence(.transaction(record)) }

  static func told(_ status: RenewalStatus) -> Item {
    .evidence(.renewalStatus(status, line: mainLine))
  }

  /// What comes after a month from day 0, claimed by A, and a renewal on day 30.
  // swift-format-ignore
  static let cases: [Case] = [
    Case("nothing",                             [],                                                            true),
    Case("a newer charge",                      [told(charge("3", from: day(60), to: day(90), item: "w3"))],   true),
    Case("a newer charge and its claim",        [told(charge("3", from: day(60), to: day(90), item: "w3")), claimItem(key("3"), by: b, receivedAt: day(61))], true),
    Case("a charge of the latest one's date",   [told(charge("3", .quarterly, from: day(30), to: day(90), item: "w3"))], false),
    Case("an older charge",                     [told(charge("3", from: day(-60), to: day(-30), item: "w3"))], false),
    Case("an alias of a known charge",          [told(charge("3", from: day(30), to: day(60), item: "w2"))],   false),
    Case("a newer status",                      [told(off(day(40)))],                                          true),
    Case("a status of the latest charge's date", [told(off(day(30)))],                                         true),
    Case("an older status",                     [told(off(day(30, minus(ms))))],                               false),
    Case("a claim of a settled charge",         [claimItem(key("2"), by: b, receivedAt: day(31))],             true),
    Case("other facts of a known charge",       [told(charge("2", from: day(30), to: day(61), asOf: day(31), item: "w2"))], false),
    Case("a placement",                         [placementItem(key("1"), with: b, from: day(40))],             false),
    Case("a placement of the whole line",       [importItem(mainLine, for: b, boughtUntil: day(40))],           false),
    Case("an upgrade from a refunded charge",   [told(charge("3", .quarterly, from: day(40, second), to: day(90), item: "w3"))], false),
  ]

  @Test("When it applies", arguments: cases)
  func applies(_ test: Case) {
    var ledger = Ledger()
    let cancelled = RevocationStatus.revoked(at: day(40), reason: nil)
    ledger.hear(charge("1", from: day(0), to: day(30), item: "w1"))
    ledger.claim(key("1"), by: a)
    ledger.hear(
      charge("2", from: day(30), to: day(60), item: "w2", revocation: cancelled))
    let (updated, news) = news(of: test.items, in: ledger.line)
    let known = ledger.line.decisions.mapValues(\.decision)
    #expect((OwnershipRule(updated, known: known, news: news) != nil) == test.applies)
  }

  @Test func itDeclinesAChargeOfAnImportedTime() {
    var ledger = Ledger()
    ledger.import(for: a, boughtUntil: day(45))
    ledger.hear(charge("1", from: day(0), to: day(30), item: "w1"))
    let known = ledger.line.decisions.mapValues(\.decision)
    for (date, applies) in [(30, false), (45, false), (46, true)] as [(Double, Bool)] {
      let later = charge("2", from: day(date), to: day(date + 30), item: "w2")
      let (updated, news) = news(of: [.evidence(.transaction(later))], in: ledger.line)
      #expect((OwnershipRule(updated, known: known, news: news) != nil) == applies, "day \(date)")
    }
  }

  @Test func itDeclinesAClaimOfAnUnsettledCharge() {
    var ledger = Ledger()
    ledger.hear(charge("1", from: day(0), to: day(30)))
    let claim = claimItem(key("1"), by: b, receivedAt: day(1))
    let (updated, news) = news(of: [claim], in: ledger.line)
    let known = ledger.line.decisions.mapValues(\.decision)
    #expect(OwnershipRule(updated, known: known, news: news) == nil)
  }

  /// The line's history with a batch in it, and what in it is news.
  private func news(of batch: [Item], in line: Line) -> (LineHistory, OwnershipRule.News) {
    var (history, news) = (line.history, OwnershipRule.News())
    var recorded = RecordingOrder(at: day(9999), number: 0)
    for item in batch {
      recorded.number += 1
      switch item {
      case .evidence(.transaction(let record)):
        switch history.change(by: record) {
        case .new: news.transactions.insert(record.key)
        case .facts where !news.transactions.contains(record.key):
          news.changesKnownCharges = true
        case .confirmation: news.confirmsKnownTransactions = true
        case .facts, .nothing: break
        }
        history.add(record, recorded: recorded)
      case .evidence(.renewalStatus(let status, _)):
        if history.add(status) { news.statusDates.append(status.asOf) }
      case .evidence(.link):
        news.changesKnownCharges = true
      case .acts(let acts):
        for act in acts where history.add(act, recorded: recorded) {
          switch act {
          case .claim: news.claims.append(RecordedAct(act, recorded: recorded))
          case .placement, .linePlacement: news.changesKnownCharges = true
          }
        }
      }
    }
    return (history, news)
  }

  /// Evidence by its date, each act right after its transaction.
  private func chronological(_ items: [Item]) -> [Item] {
    var acts = items.compactMap { item in
      if case .acts(let acts) = item { acts } else { nil }
    }
    var evidence: [(date: Timestamp, item: Item)] = items.compactMap { item in
      switch item {
      case .evidence(.transaction(let record)): (max(record.asOf, record.purchaseDate), item)
      case .evidence(.renewalStatus(let status, _)): (status.asOf, item)
      case .evidence(.link), .acts: nil
      }
    }
    evidence.sort { $0.date < $1.date }
    var (result, known): ([Item], Set<TransactionKey>) = ([], [])
    for (_, item) in evidence {
      result.append(item)
      if case .evidence(.transaction(let record)) = item { known.insert(record.key) }
      while let next = acts.first, next.allSatisfy({ $0.isPossible(knowing: known) }) {
        result.append(.acts(acts.removeFirst()))
      }
    }
    return result
  }
}
