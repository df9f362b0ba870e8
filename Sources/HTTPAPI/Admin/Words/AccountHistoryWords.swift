import Foundation
import JSONText
import LedgerStorage
import Subscriptions

/// What became of an account: the entries of the ledger that concern it, and what administrators
/// did to it, as one list.
///
/// Neither is ever deleted, so that the list begins where the account does.
struct AccountHistoryRows: Sendable {
  /// How far both lists were read.
  struct Place: Sendable {
    var entry: HistoryPlace?
    var act: Int64?
  }

  /// The latest first.
  let rows: [FactRow]
  /// Where the list goes on; nil: nowhere.
  let next: String?

  /// Reads a part of it.
  ///
  /// - Parameters:
  ///   - ties: What the account has to do with the ledger.
  ///   - account: Whose it is.
  ///   - part: Which part.
  ///   - ledger: Where it is.
  /// - Throws: What the database says; a ``Problem`` for a cursor that names nothing.
  init(of ties: AccountTies, _ account: Account, part: PagePart, in ledger: Ledger) async throws {
    var place = try part.after.map(Place.init) ?? Place()
    let found = try await ledger.history(of: ties, before: place.entry, limit: part.limit + 1)
    let events = try await Self.events(found.entries, in: ledger)
    let sources = try await SourceWords(of: found.entries, in: ledger)
    var acts = try await ledger.actsBesidesPlacing(
      on: account.key, before: place.act, limit: part.limit + 1)
    // What is older than the ledger was looked through comes with the next part.
    if let end = found.lookedBackTo { acts.removeAll { $0.actedAt < end.recordedAt } }
    let all = events.count + acts.count
    var (rows, (laterEvents, laterActs)) = ([FactRow](), (events[...], acts[...]))
    while rows.count < part.limit {
      let (event, act) = (laterEvents.first, laterActs.first)
      if let act, event.map({ $0.entry.recordedAt <= act.actedAt }) ?? true {
        rows.append(FactRow(act, on: account))
        place.act = act.id
        laterActs.removeFirst()
      } else if let event {
        var row = sources.fact(event)
        let line = event.entry.line
        row.subject = PageLink(label: line.originalTransactionID.rawValue, href: line.href)
        rows.append(row)
        place.entry = HistoryPlace(event.entry)
        laterEvents.removeFirst()
      } else {
        break
      }
    }
    self.rows = rows
    if rows.count < all {
      next = place.cursor
    } else if let end = found.lookedBackTo {
      place.entry = end
      next = place.cursor
    } else {
      next = nil
    }
  }

  private static func events(_ entries: [HistoryEntry], in ledger: Ledger) async throws
    -> [ChargeEvent]
  {
    let names = try await ledger.accountIDs(of: Set(entries.flatMap { $0.entry.content.accounts }))
    return entries.map { ChargeEvent($0.entry, source: $0.source) { names[$0] ?? "erased" } }
  }
}

extension AccountHistoryRows.Place {
  /// Stands in no identifier: control characters are refused.
  private static let separator: Character = "\u{1F}"

  fileprivate var cursor: String {
    let entry =
      entry.map { entry in
        [
          "\(entry.recordedAt.milliseconds)", entry.line.environment.rawValue,
          entry.line.originalTransactionID.rawValue, "\(entry.number)",
        ]
      } ?? []
    return ([act.map(String.init) ?? ""] + entry).joined(separator: String(Self.separator))
  }

  fileprivate init(_ text: String) throws {
    let parts = text.split(separator: Self.separator, omittingEmptySubsequences: false)
      .map(String.init)
    let problem = PagePart.unknownPlace("history_")
    guard let act = parts.first, act.isEmpty || Int64(act) != nil else { throw problem }
    self.act = Int64(act)
    guard parts.count > 1 else { return }
    guard parts.count == 5, let milliseconds = Int64(parts[1]),
      let environment = Subscriptions.Environment(rawValue: parts[2]), let number = Int(parts[4])
    else { throw problem }
    entry = HistoryPlace(
      recordedAt: Timestamp(milliseconds: milliseconds),
      line: LineID(environment, OriginalTransactionID(parts[3])), number: number)
  }
}

extension FactRow {
  /// What an administrator did to an account.
  fileprivate init(_ act: AdministratorAct, on account: Account) {
    self.init(
      at: Moment(act.actedAt), sentence: act.sentence(on: account),
      source: EntrySource.Kind.administrator.title,
      sourceClass: EntrySource.Kind.administrator.symbol.rawValue, sourceID: act.administrator,
      reason: act.reason)
  }
}

extension AdministratorAct {
  /// What more there is to say of an act, as far as a list needs it.
  private struct Details: Decodable {
    var entitlement: String?
    var expiresAt: String?

    enum CodingKeys: String, CodingKey {
      case entitlement
      case expiresAt = "expires_at"
    }
  }

  fileprivate func sentence(on account: Account) -> String {
    let details = try? JSONValue(parsing: data.utf8).decode(Details.self)
    let entitlement = details?.entitlement.map { "“\($0)”" } ?? "an entitlement"
    switch Action(rawValue: action) {
    case .grant:
      let end = details?.expiresAt.map { ", until \($0.prefix(10))" } ?? ", without end"
      return "It was given \(entitlement)\(end)."
    case .revokeGrant: return "What was given to it was taken back: \(entitlement)."
    case .mergeAccount where accountID == account.id:
      return "“\(previousAccountID ?? "erased")” was merged into it."
    case .mergeAccount: return "It was merged into “\(accountID ?? "erased")”."
    case .eraseAccount: return "Its person was erased."
    case .exportAccount: return "All that is known of it was exported."
    default: return "An act was recorded: \(action.replacing("_", with: " "))."
    }
  }
}
