/// A table of the schema: where its comment wants it, and where Citus has it.
struct CatalogueTable: Hashable, Sendable {
  let name: String
  /// Nil: its comment says nothing.
  let wanted: TableDistribution?
  /// Nil: Citus does not know it.
  let placed: TableDistribution?
  /// The tables that its foreign keys point to.
  let parents: Set<String>

  /// Puts tables into the order in which Citus can take them: reference tables first, then those in
  /// shards, then local ones, and of each what foreign keys point to before what has them.
  static func inOrder(_ tables: [CatalogueTable]) -> [CatalogueTable] {
    var ordered: [CatalogueTable] = []
    var rest = tables.sorted {
      ($0.wanted?.rank ?? .max, $0.name) < ($1.wanted?.rank ?? .max, $1.name)
    }
    while !rest.isEmpty {
      let waiting = Set(rest.map(\.name))
      let rank = rest[0].wanted?.rank
      // Foreign keys in a circle: any of them may be first.
      let next =
        rest.firstIndex {
          $0.wanted?.rank == rank && $0.parents.subtracting([$0.name]).isDisjoint(with: waiting)
        } ?? 0
      ordered.append(rest.remove(at: next))
    }
    return ordered
  }
}
