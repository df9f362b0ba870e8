import LedgerStorage
import Subscriptions

/// Who placed or released charges, and why: entries of the ledger have the name alone.
struct PlacingActs: Sendable {
  /// The last one first.
  private let acts: [AdministratorAct]

  /// Reads the acts that brought entries; those that no administrator's act brought are overlooked.
  init(of entries: [HistoryEntry], in ledger: Ledger) async throws {
    let placing = entries.filter { $0.source.kind == .administrator }.map(\.entry.content)
    acts = try await ledger.placingActs(
      of: Set(placing.compactMap(\.charge)), concerning: Set(placing.flatMap(\.accounts)))
  }

  /// The act that brought an entry; nil: none did.
  func act(behind entry: HistoryEntry) -> AdministratorAct? {
    acts.first { $0.brought(entry.entry, from: entry.source) }
  }
}

extension LedgerEntry.Content {
  /// What is placed or decided; nil for evidence.
  fileprivate var charge: TransactionKey? {
    switch self {
    case .act(let act): act.transaction
    case .ownership(let change): change.charge
    case .evidence, .confirmation: nil
    }
  }

  /// Whether a charge was placed or released by this.
  func places(_ charge: Charge.ID) -> Bool {
    if case .ownership(let change) = self {
      change.action == .placed && change.charge == charge
    } else {
      false
    }
  }
}

extension Decision {
  /// Whether it rests on what an administrator did with the charge.
  var isByAdministrator: Bool { rule == .administrator || finding.ground == .released }
}
