import Foundation
package import Postgres
package import Subscriptions

extension Timestamp: PostgresEncodable, PostgresDecodable {
  package static var postgresType: PostgresType { .timestamptz }
  package static func canDecode(_ type: PostgresType) -> Bool { type == .timestamptz }

  package func encode(into buffer: inout PostgresBuffer) {
    PostgresTimestamp(millisecondsSince1970: milliseconds).encode(into: &buffer)
  }

  package init(postgresBytes: RawSpan, type: PostgresType) throws {
    try self.init(postgresValue: PostgresTimestamp(postgresBytes: postgresBytes, type: type))
  }

  /// Rounds down to the millisecond: SQL writes microseconds.
  fileprivate init(postgresValue: PostgresTimestamp) throws {
    guard postgresValue.isFinite else { throw DecodingFault.outOfRange }
    self.init(milliseconds: postgresValue.millisecondsSince1970)
  }
}

extension Environment: PostgresEncodable, PostgresDecodable {}
extension ProductID: PostgresEncodable, PostgresDecodable {}
extension TransactionID: PostgresEncodable, PostgresDecodable {}
extension OriginalTransactionID: PostgresEncodable, PostgresDecodable {}
extension WebOrderLineItemID: PostgresEncodable, PostgresDecodable {}
extension AccountKey: PostgresEncodable, PostgresDecodable {}
extension ProductType: PostgresEncodable, PostgresDecodable {}
extension ChargeKind: PostgresEncodable, PostgresDecodable {}
extension OwnershipType: PostgresEncodable, PostgresDecodable {}
extension PeriodType: PostgresEncodable, PostgresDecodable {}
extension OfferType: PostgresEncodable, PostgresDecodable {}
extension Decision.Rule: PostgresEncodable, PostgresDecodable {}
extension RenewalEvidence.Reason: PostgresEncodable, PostgresDecodable {}
extension PurchaseOrder.Status: PostgresEncodable, PostgresDecodable {}
extension Movement.Kind: PostgresEncodable, PostgresDecodable {}
extension ChargePrice.Source: PostgresEncodable, PostgresDecodable {}
extension Entitlement.Source: PostgresEncodable, PostgresDecodable {}
extension Job.Queue: PostgresEncodable, PostgresDecodable {}
extension Job.Kind: PostgresEncodable, PostgresDecodable {}
extension WriteBack.Kind: PostgresEncodable, PostgresDecodable {}
extension WriteBack.Reason: PostgresEncodable, PostgresDecodable {}
extension LedgerEvent.Kind: PostgresEncodable, PostgresDecodable {}

extension OriginalTransactionKey: RowDecodable {
  package static func check(_ rows: Rows, _ column: inout Int) throws {
    try Environment.check(rows, &column)
    try OriginalTransactionID.check(rows, &column)
  }

  package init(from cursor: inout RowCursor) throws {
    self.init(try cursor.next(Environment.self), try cursor.next(OriginalTransactionID.self))
  }

  var condition: SQL {
    "environment = \(environment) AND original_transaction_id = \(originalTransactionID)"
  }
}

extension [OriginalTransactionKey] {
  /// The condition on the columns of the keys; with several, it also holds for keys that combine
  /// theirs.
  var condition: SQL {
    """
    environment \(anyOf: Set(map(\.environment)).map(\.rawValue).sorted())
      AND original_transaction_id \(anyOf: map(\.originalTransactionID))
    """
  }
}

extension EntrySource: RowDecodable {
  package static func check(_ rows: Rows, _ column: inout Int) throws {
    try Kind.check(rows, &column)
    try String?.check(rows, &column)
  }

  package init(from cursor: inout RowCursor) throws {
    self.init(try cursor.next(Kind.self), id: try cursor.next(String?.self))
  }
}

extension TransactionKey: RowDecodable {
  package static func check(_ rows: Rows, _ column: inout Int) throws {
    try OriginalTransactionKey.check(rows, &column)
    try TransactionID.check(rows, &column)
    try ProductID.check(rows, &column)
  }

  package init(from cursor: inout RowCursor) throws {
    self.init(
      line: try OriginalTransactionKey(from: &cursor),
      transactionID: try cursor.next(TransactionID.self),
      productID: try cursor.next(ProductID.self))
  }

  var condition: SQL {
    """
    \(line.condition)
      AND transaction_id = \(transactionID) AND product_id = \(productID)
    """
  }

  init(
    _ environment: Environment, _ original: OriginalTransactionID, _ transaction: TransactionID,
    _ product: ProductID
  ) {
    self.init(
      line: OriginalTransactionKey(environment, original), transactionID: transaction,
      productID: product)
  }
}

extension RenewalStatus.Phase {
  /// The name in the database.
  var name: String {
    switch self {
    case .undisturbed: "undisturbed"
    case .gracePeriod: "grace_period"
    case .billingRetry: "billing_retry"
    case .expired: "expired"
    }
  }

  /// - Throws: ``DecodingFault`` for an unknown name, or a grace period without its end.
  init(name: String, graceEndsAt: Timestamp?) throws {
    switch (name, graceEndsAt) {
    case ("undisturbed", nil): self = .undisturbed
    case ("grace_period", let until?): self = .gracePeriod(until: until)
    case ("billing_retry", nil): self = .billingRetry
    case ("expired", nil): self = .expired
    default: throw DecodingFault.unknownValue
    }
  }
}

// Overloads of `RowCursor`'s generic methods, specialized for these types; see there.

extension RowCursor {
  mutating func next(_: Timestamp.Type) throws -> Timestamp {
    let column = column
    return try moment(try next(PostgresTimestamp.self), in: column)
  }

  mutating func next(_: Timestamp?.Type) throws -> Timestamp? {
    let column = column
    return try next(PostgresTimestamp?.self).map { try moment($0, in: column) }
  }

  mutating func next<Term: PostgresDecodable & RawRepresentable<String>>(_: Term.Type) throws
    -> Term
  {
    let column = column
    return try term(try next(String.self), in: column)
  }

  mutating func next<Term: PostgresDecodable & RawRepresentable<String>>(_: Term?.Type) throws
    -> Term?
  {
    let column = column
    return try next(String?.self).map { try term($0, in: column) }
  }

  mutating func next(_: AccountKey?.Type) throws -> AccountKey? {
    try next(UUID?.self).map(AccountKey.init)
  }

  private func term<Term: RawRepresentable<String>>(_ text: String, in column: Int) throws -> Term {
    guard let term = Term(rawValue: text) else {
      throw rows.decodingError(DecodingFault.unknownValue, column: column, expected: "\(Term.self)")
    }
    return term
  }

  private func moment(_ value: PostgresTimestamp, in column: Int) throws -> Timestamp {
    do {
      return try Timestamp(postgresValue: value)
    } catch {
      throw rows.decodingError(error, column: column, expected: "a finite timestamptz")
    }
  }
}

extension Array where Element == SQL {
  /// The rows as lists for VALUES: Citus routes each row, but would gather an `unnest`.
  ///
  /// The lists are short, so few distinct statements are prepared.
  var rowLists: [SQL] {
    batches(of: rowsOfList).map { $0.joined() }
  }
}

extension Array {
  func batches(of size: Int) -> [[Element]] {
    stride(from: 0, to: count, by: size).map { Array(self[$0..<Swift.min($0 + size, count)]) }
  }
}

extension Array where Element: Sendable {
  /// Transforms elements, several at a time, and returns the results in order.
  func mapConcurrently<Value: Sendable>(
    atOnce limit: Int, _ transform: @escaping @Sendable (Element) async throws -> Value
  ) async throws -> [Value] {
    try await withThrowingTaskGroup(of: (Int, Value).self) { group in
      var results: [Int: Value] = [:]
      for (number, element) in enumerated() {
        if number >= limit, let (number, result) = try await group.next() {
          results[number] = result
        }
        group.addTask { (number, try await transform(element)) }
      }
      for try await (number, result) in group { results[number] = result }
      return indices.compactMap { results[$0] }
    }
  }
}

/// Rows per VALUES list at most.
private let rowsOfList = 16
