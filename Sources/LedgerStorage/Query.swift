import Postgres

/// Statements with the reader of their results.
///
/// Queries that are sent in one round trip each read their own results:
///
/// ```swift
/// let (accounts, order) = try await transaction.read(
///   KnownAccount.query([key]), StoredOrder.query(id, of: key, lifetime: .days(7)))
/// ```
struct Query<Value>: Sendable {
  let statements: [SQL]
  private let decode: @Sendable ([Rows]) throws -> Value

  init(_ statements: [SQL], decode: @escaping @Sendable ([Rows]) throws -> Value) {
    self.statements = statements
    self.decode = decode
  }

  init(_ statement: SQL, decode: @escaping @Sendable (Rows) throws -> Value) {
    self.init([statement]) { try decode($0[0]) }
  }

  /// Combines queries in their order.
  init<each Part>(_ parts: repeat Query<each Part>) where Value == (repeat each Part) {
    var statements: [SQL] = []
    for part in repeat each parts { statements += part.statements }
    self.init(statements) { results in
      var rest = results[...]
      return (repeat try (each parts).take(from: &rest))
    }
  }

  static func all<Element>(_ queries: [Query<Element>]) -> Self where Value == [Element] {
    Self(queries.flatMap(\.statements)) { results in
      var rest = results[...]
      return try queries.map { try $0.take(from: &rest) }
    }
  }

  func map<Other>(_ transform: @escaping @Sendable (Value) throws -> Other) -> Query<Other> {
    Query<Other>(statements) { [decode] in try transform(decode($0)) }
  }

  private func take(from results: inout ArraySlice<Rows>) throws -> Value {
    defer { results.removeFirst(statements.count) }
    return try value(from: Array(results.prefix(statements.count)))
  }

  fileprivate func value(from results: [Rows]) throws -> Value { try decode(results) }
}

extension Query<Void> {
  /// Statements without results that matter: locks, or none at all.
  init(_ statements: [SQL]) {
    self.init(statements) { _ in }
  }
}

extension StatementRunner {
  /// Sends a query, unless it has no statements.
  func read<Value>(_ query: Query<Value>) async throws -> Value {
    try query.value(from: query.statements.isEmpty ? [] : await batch(query.statements))
  }

  /// Sends queries in one round trip, none if they have no statements.
  func read<each Value>(_ queries: repeat Query<each Value>) async throws -> (repeat each Value) {
    try await read(Query(repeat each queries))
  }
}

extension Transaction {
  /// Sends the last statements, a query behind them and COMMIT in one round trip.
  func commit<Value>(with statements: [SQL], reading query: Query<Value>) async throws -> Value {
    let results = try await commit(with: statements + query.statements)
    return try query.value(from: Array(results.dropFirst(statements.count)))
  }
}
