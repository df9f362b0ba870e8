import Crypto
import Foundation
import Subscriptions
import Testing

@testable import LedgerStorage

struct StoredEntryTests {
  private static let claimant = AccountKey(rawValue: UUID())

  @Test("a recording is one entry, or several if it is long", arguments: [1, 2, 100, 400])
  func chain(count: Int) throws {
    let items = (1...count).map { number -> LedgerItem in
      let content: LedgerItem.Content =
        number.isMultiple(of: 2)
        ? .action(.claim(Claim(account: Self.claimant, transaction: key("1"), receivedAt: day(1))))
        : .evidence(charge(TransactionID("\(number)"), on: Double(number)))
      return LedgerItem(
        line: originalKey, number: 7 + number, recordedAt: day(2), content: content)
    }
    let before = Array(SHA256.hash(data: [1]))
    let entries = try StoredEntry.chain(
      items, source: EntrySource(.receipt, id: "s"), at: day(3), after: before)
    #expect((entries.count > 1) == (count == 400))
    #expect(entries.allSatisfy { $0.body.utf8.count < 100_000 })
    #expect(entries.last?.number == 7 + count)
    #expect(try entries.flatMap { try $0.items().map(\.item) } == items)
    var hash = before
    for entry in entries {
      #expect(entry.hash == SHA256.chained(entry.fields, after: hash))
      hash = entry.hash
    }
  }

  @Test(
    "what this version can't read is an error",
    arguments: [
      "{}", "[{}]", "[{\"decided\":{}}]", "[{\"later\":{}}]",
      "[{\"link\":{\"previous\":1},\"claim\":{}}]",
    ])
  func unreadable(body: String) throws {
    let item = LedgerItem(
      line: originalKey, number: 1, recordedAt: day(0), content: .evidence(charge("1", on: 0)))
    var entry = try StoredEntry.chain(
      [item], source: EntrySource(.poll, id: nil), at: day(0), after: nil)[0]
    entry.body = body
    #expect(throws: LedgerError.unreadableEntry(line: originalKey, number: 1)) {
      try entry.items()
    }
  }
}
