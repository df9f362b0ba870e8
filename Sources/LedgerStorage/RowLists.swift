import Postgres

extension Array where Element == SQL {
  /// The rows as lists for VALUES, some in each.
  ///
  /// Rows of many keys are written like this: Citus sends each to its shard, where it would gather
  /// those of an `unnest` first. Never more than a few, so that few statements have to be prepared.
  var rowLists: [SQL] {
    stride(from: 0, to: count, by: rowsOfList).map { start in
      self[start..<Swift.min(start + rowsOfList, count)].joined()
    }
  }
}

/// How many rows a list for VALUES has at the most.
private let rowsOfList = 16
