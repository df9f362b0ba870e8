import Foundation
import Postgres
import Subscriptions

// What the general methods of `RowCursor` do, compiled for our own types: see there.

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
