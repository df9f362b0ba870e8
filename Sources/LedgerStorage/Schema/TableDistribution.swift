/// A table's distribution over a Citus cluster, specified at the end of its comment as
/// `[by COLUMN]`, `[reference]` or `[local]`.
package enum TableDistribution: Hashable, Sendable, CustomStringConvertible {
  /// Sharded by the hash of a column.
  case by(column: String)
  /// A full copy on every node.
  case reference
  /// On the coordinator and managed by Citus, so that transactions with shards are atomic.
  case local

  /// Parses a table's comment; nil if it specifies none.
  package init?(note comment: String) {
    guard comment.last == "]", let start = comment.lastIndex(of: "[") else { return nil }
    let note = comment[comment.index(after: start)...].dropLast()
    switch note.split(separator: " ", omittingEmptySubsequences: false) {
    case ["reference"]: self = .reference
    case ["local"]: self = .local
    case let words where words.count == 2 && words[0] == "by" && !words[1].isEmpty:
      self = .by(column: String(words[1]))
    default: return nil
    }
  }

  package var description: String {
    switch self {
    case .by(let column): "by \(column)"
    case .reference: "reference"
    case .local: "local"
    }
  }

  /// The order in which Citus needs the tables.
  var rank: Int {
    switch self {
    case .reference: 0
    case .by: 1
    case .local: 2
    }
  }
}

/// A table of the schema with its specified and its current distribution.
struct CatalogueTable: Hashable, Sendable {
  let name: String
  /// Nil if its comment specifies none.
  let wanted: TableDistribution?
  /// Nil if it is not distributed.
  let placed: TableDistribution?
  let parents: Set<String>

  /// Sorts tables: reference, sharded, local ones; each after the tables that it references.
  static func inOrder(_ tables: [CatalogueTable]) -> [CatalogueTable] {
    var ordered: [CatalogueTable] = []
    var rest = tables.sorted {
      ($0.wanted?.rank ?? .max, $0.name) < ($1.wanted?.rank ?? .max, $1.name)
    }
    while !rest.isEmpty {
      let waiting = Set(rest.map(\.name))
      let rank = rest[0].wanted?.rank
      // In a cycle of foreign keys, any table may be first.
      let next =
        rest.firstIndex {
          $0.wanted?.rank == rank && $0.parents.subtracting([$0.name]).isDisjoint(with: waiting)
        } ?? 0
      ordered.append(rest.remove(at: next))
    }
    return ordered
  }
}
