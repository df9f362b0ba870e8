package import Subscriptions

/// What an audit found.
package struct LedgerAudit: Sendable {
  package var lines = 0
  package var entries = 0
  package var charges = 0
  package var holdings = 0
  package var orders = 0
  package var checkpoints = 0
  /// Whether the journal was left out, because a survey is still to bring it up to date.
  package var isJournalPending = false
  package private(set) var differences: [Difference] = []
  private var known: Set<Difference> = []

  /// Something that is not as the ledger's entries, or its rules, have it.
  package struct Difference: Hashable, Sendable, CustomStringConvertible {
    /// What kind of proof failed.
    package enum Kind: String, CaseIterable, Sendable {
      /// A hash that does not follow from the entry and its predecessor, or a number that is
      /// missing.
      case chain
      /// A chain that does not end where the line's row says, or a checkpoint that is no longer
      /// met.
      case head
      /// An entry that this version can't read.
      case unreadable
      /// A recorded owner that the rule, replayed, does not give.
      case decision
      /// A row of a projection that the entries, folded again, do not give, or a sum that its rows
      /// do not come to.
      case projection
      /// An order fulfilled by two charges, a charge fulfilling two orders, and the like.
      case order
      /// A provisional grant of a submission that is decided.
      case grant
    }

    package var kind: Kind
    package var line: LineID?
    package var detail: String

    package var description: String {
      "\(kind.rawValue)" + (line.map { " \($0)" } ?? "") + ": \(detail)"
    }
  }

  package var isClean: Bool { differences.isEmpty }

  mutating func report(_ kind: Difference.Kind, _ line: LineID? = nil, _ detail: String) {
    append(Difference(kind: kind, line: line, detail: detail))
  }

  /// Notes a difference, once.
  mutating func append(_ difference: Difference) {
    if known.insert(difference).inserted { differences.append(difference) }
  }
}
