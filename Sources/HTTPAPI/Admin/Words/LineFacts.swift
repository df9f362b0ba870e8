import LedgerStorage
import Subscriptions

/// All entries of a line and of those that Apple links with it, with what brought them and what
/// Apple was told of it, read once.
struct LineFacts: Sendable {
  /// How many tellings of a line are shown, the last ones.
  private static let mostTellings = 10

  /// In the order in which they were recorded.
  let events: [ChargeEvent]
  let names: [AccountKey: String]
  let sources: SourceWords
  /// The last one first.
  private let tellings: [AppleTelling]

  init(of family: RecordedFamily, in ledger: Ledger) async throws {
    var entries: [HistoryEntry] = []
    for line in family.line.heads.keys.sorted() {
      entries += try await ledger.history(of: line)
    }
    entries.sort {
      ($0.entry.recordedAt, $0.entry.line, $0.entry.number)
        < ($1.entry.recordedAt, $1.entry.line, $1.entry.number)
    }
    tellings = try await ledger.appleTellings(
      of: family.line.heads.keys.sorted(), limit: Self.mostTellings)
    let unnamed = Set(
      entries.flatMap { $0.entry.content.accounts } + tellings.compactMap(\.account)
    ).subtracting(family.names.keys)
    let names = family.names.merging(try await ledger.accountIDs(of: unnamed)) { first, _ in first }
    events = entries.map { ChargeEvent($0.entry, source: $0.source) { names[$0] ?? "erased" } }
    self.names = names
    sources = try await SourceWords(of: entries, in: ledger)
  }

  func name(_ account: AccountKey) -> String { names[account] ?? "erased" }

  /// All of them and what Apple was told, the latest first, with names for links to them.
  var rows: [FactRow] {
    var rows: [FactRow] = []
    var told = tellings[...]
    for event in events.reversed() {
      while let telling = told.first, telling.toldAt > event.entry.recordedAt {
        rows.append(FactRow(telling, name: name))
        told.removeFirst()
      }
      rows.append(sources.fact(event, anchor: Self.anchor(event.entry)))
    }
    return rows + told.map { FactRow($0, name: name) }
  }

  /// What was learned or decided about a charge, in order.
  func rows(about charge: Charge, statusDates: Set<Timestamp>) -> [FactRow] {
    events.filter { $0.entry.content.concerns(charge, statusDates: statusDates) }
      .map { sources.fact($0) }
  }

  /// What was heard, once for each source: a submission or notification can bring many entries.
  var messages: [LineLife.Message] {
    var seen: Set<EntrySource> = []
    return events.filter { event in
      event.source.id == nil || seen.insert(event.source).inserted
    }.map { event in
      LineLife.Message(
        source: event.source.kind.symbol, at: event.entry.recordedAt,
        text: "\(sources.text(of: event.source)), recorded \(Moment(event.entry.recordedAt).text)",
        href: "#\(Self.anchor(event.entry))")
    }
  }

  /// The act by which an administrator placed or released a charge; nil: no administrator did, or
  /// what he did counts no more.
  func placement(of charge: Charge, by decision: Decision) -> AdministratorAct? {
    guard decision.isByAdministrator else { return nil }
    return events.last { $0.entry.content.places(charge.id) }.flatMap(sources.act(behind:))
  }

  private static func anchor(_ entry: LedgerEntry) -> String {
    let line = entry.line.originalTransactionID.rawValue.utf8.map { byte in
      switch byte {
      case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "a")...UInt8(ascii: "z"),
        UInt8(ascii: "A")...UInt8(ascii: "Z"):
        byte
      default: UInt8(ascii: "-")
      }
    }
    return "fact-\(String(decoding: line, as: UTF8.self))-\(entry.number)"
  }
}
