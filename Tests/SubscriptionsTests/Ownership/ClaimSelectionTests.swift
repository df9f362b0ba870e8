import Subscriptions
import Testing

/// The charges of a receipt that a submission claims.
struct ClaimSelectionTests {
  struct Case: Sendable, CustomTestStringConvertible {
    var name: String
    var selection: ClaimSelection
    var receivedAt: Timestamp
    var receipt: [TransactionRecord]
    var selected: [TransactionID]

    init(
      _ name: String, by selection: ClaimSelection = .latest, at receivedAt: Timestamp = day(65),
      _ receipt: [TransactionRecord], _ selected: [TransactionID]
    ) {
      self.name = name
      self.selection = selection
      self.receivedAt = receivedAt
      self.receipt = receipt
      self.selected = selected
    }

    var testDescription: String { name }
  }

  static let months = [
    charge("2", from: day(30), to: day(60)), charge("3", from: day(60), to: day(90)),
    charge("1", from: day(0), to: day(30)),
  ]
  static let other = [
    charge("11", from: day(10), to: day(40), line: otherKey),
    charge("12", from: day(40), to: day(70), line: otherKey),
  ]
  static let gems = [charge("21", .gems, from: day(5)), charge("22", .gems, from: day(6))]
  static let lifetime = [
    charge("31", .lifetime, from: day(5), line: OriginalTransactionKey(.production, "31")),
    charge("32", .lifetime, from: day(6), line: OriginalTransactionKey(.production, "32")),
  ]
  /// Two overlapping seasons of a calendar month each: day 0 is 1 January 2026.
  static let seasons = [
    charge("41", .season, from: day(0), line: OriginalTransactionKey(.production, "41")),
    charge("42", .season, from: day(20), line: OriginalTransactionKey(.production, "42")),
  ]
  static let unknown = [
    charge("51", "unheard", from: day(5)), charge("52", "unheard", from: day(6)),
  ]
  static let five = Duration.minutes(5)

  /// The renewal of day 60 as an answer has it that is older.
  static func early(_ asOf: Double, _ offset: Duration = .zero) -> TransactionRecord {
    charge("3", from: day(60), to: day(90), asOf: day(asOf, offset))
  }

  // swift-format-ignore
  static let cases: [Case] = [
    Case("a line's latest",                       months,                                 ["3"]),
    Case("a line's latest, though over",          at: day(200), months,                   ["3"]),
    Case("each line's latest",                    months + other,                         ["12", "3"]),
    Case("what else is running on the line",      at: day(29.5), [charge("1", from: day(0), to: day(30)), charge("2", .quarterly, from: day(29), to: day(119))], ["1", "2"]),
    Case("not at the millisecond of its end",     at: day(30), [charge("1", from: day(0), to: day(30)), charge("2", .quarterly, from: day(29), to: day(119))], ["2"]),
    Case("every consumable",                      gems,                                   ["21", "22"]),
    Case("a non-consumable's latest",             lifetime,                               ["32"]),
    Case("a season's latest, both over",          seasons,                                ["42"]),
    Case("both seasons while they run",           at: day(30, .hours(23)), seasons,       ["41", "42"]),
    Case("the second season while it runs",       at: day(31), seasons,                   ["42"]),
    Case("every transaction of an unknown type",  unknown,                                ["51", "52"]),
    Case("an unknown product with an expiry",     [charge("61", "unheard", from: day(0), to: day(30)), charge("62", "unheard", from: day(30), to: day(60))], ["62"]),
    Case("Apple's type before the catalogue's",   [charge("71", .gems, from: day(5), productType: .nonConsumable), charge("72", .gems, from: day(6), productType: .nonConsumable)], ["72"]),
    Case("sandbox apart from production",         [charge("81", .lifetime, from: day(5)), charge("82", .lifetime, from: day(6), line: OriginalTransactionKey(.sandbox, "1000"))], ["81", "82"]),
    Case("everything there is",                   months + other + gems,                  ["21", "22", "12", "3"]),
    Case("an empty receipt",                      [],                                     []),

    Case("a restore",                  by: .restore,  months + gems,                          ["1", "21", "22", "2", "3"]),
    Case("a named transaction",        by: .transaction("1"), months,                         ["1"]),
    Case("a named transaction that is not there", by: .transaction("9"), months,              []),

    Case("what was sent one by one",  by: .submitted, months + gems,                          ["1", "21", "22", "2", "3"]),
    Case("what was sent too early",   by: .submitted, at: day(60, minus(five + ms)), months,  ["1", "2"]),

    Case("bought 5 minutes later",                at: day(60, minus(five)), months,       ["2", "3"]),
    Case("bought 5 minutes and 1 ms later",       at: day(60, minus(five + ms)), months,  ["2"]),
    Case("a restore before the purchase", by: .restore, at: day(59), months,                  ["1", "2"]),
    Case("a named one before the purchase", by: .transaction("3"), at: day(59), months,       []),

    Case("a renewal charged 24 h early",          at: day(59), [months[0], early(59)],        ["2", "3"]),
    Case("a renewal dated further ahead",         at: day(59), [months[0], early(59, minus(ms))], ["2"]),
    Case("an early renewal of a later answer",    at: day(59), [months[0], early(59, five + ms)], ["2"]),
    Case("an early renewal 5 minutes later",      at: day(59), [months[0], early(59, five)],  ["2", "3"]),
    Case("an early renewal that was sent", by: .submitted, at: day(59.5), [early(59.5)],      ["3"]),
    Case("an early renewal that is named", by: .transaction("3"), at: day(59.5), [early(59.5)], ["3"]),
  ]

  @Test("Selection", arguments: cases)
  func selects(_ test: Case) {
    var generator = SeededGenerator(seed: 5)
    for _ in 0..<5 {
      let selected = test.selection.select(
        from: test.receipt.shuffled(using: &generator), receivedAt: test.receivedAt,
        catalogue: catalogue)
      #expect(selected.map(\.key.transactionID) == test.selected)
    }
  }
}
