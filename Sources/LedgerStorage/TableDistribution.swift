/// Where a table's rows are when the schema is distributed with Citus.
///
/// The table's comment ends with it: `[by COLUMN]`, `[reference]` or `[local]`.
package enum TableDistribution: Hashable, Sendable, CustomStringConvertible {
  /// In shards, by the hash of a column.
  case by(column: String)
  /// On every node, whole.
  case reference
  /// On the coordinator, and known to Citus: what is written together with shards stays atomic.
  case local

  /// Takes it from a table's comment; nil if the comment says none.
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

  /// Citus takes what is referenced before what refers to it, and reference tables before all.
  var rank: Int {
    switch self {
    case .reference: 0
    case .by: 1
    case .local: 2
    }
  }
}
