import Foundation
import Hummingbird
import HummingbirdCore
import Subscriptions

extension APIContext {
  /// The part of the path that a field stands for.
  ///
  /// - Throws: A ``Problem`` that names the field.
  func parameter(_ field: TextField) throws -> String {
    try field.checked(try parameter(field.name))
  }

  func uuidParameter(_ name: String) throws -> UUID {
    try UUID(parsing: try parameter(name), field: name)
  }

  private func parameter(_ name: String) throws -> String {
    let text = try parameters.require(name)
    guard text.utf8.contains(UInt8(ascii: "%")) else { return text }
    guard let decoded = String(percentEncoded: text.utf8) else {
      throw Problem.invalid(name, "is not percent-encoded UTF-8")
    }
    return decoded
  }
}

/// The query of a request; parameters that nobody asks for are ignored.
struct Query {
  private let fields: EncodedFields

  /// Nil where there is no query, so that nothing is read on the way of most requests.
  init?(_ uri: URI) {
    guard let query = uri.query else { return nil }
    fields = EncodedFields(query, .query)
  }

  subscript(name: String) -> ExactText? { fields[name] }

  func text(_ field: TextField) throws -> String? {
    try self[field.name].map { try field.checked($0.rawValue) }
  }

  func moment(_ name: String) throws -> Timestamp? {
    try self[name].map { try Timestamp(parsing: $0.rawValue, field: name) }
  }

  func flag(_ name: String) throws -> Bool? {
    try self[name].map { text in
      switch text {
      case "true": true
      case "false": false
      default: throw Problem.invalid(name, "must be true or false")
      }
    }
  }

  func integer(_ name: String, in range: ClosedRange<Int>) throws -> Int? {
    try self[name].map { text in
      guard let number = Int(text.rawValue), range.contains(number) else {
        throw Problem.invalid(
          name, "must be a number from \(range.lowerBound) to \(range.upperBound)")
      }
      return number
    }
  }

  func environment() throws -> Subscriptions.Environment? {
    try self["environment"].map { text in
      guard let environment = Subscriptions.Environment(exactly: text.rawValue) else {
        throw Problem.invalid("environment", "must be production or sandbox")
      }
      return environment
    }
  }
}

extension Timestamp {
  /// - Throws: A ``Problem`` that names the field.
  init(parsing text: String, field: String) throws {
    guard let moment = Timestamp(rfc3339: text) else {
      throw Problem.invalid(field, "must be a time of RFC 3339, as in 2026-11-21T09:30:00Z")
    }
    self = moment
  }
}

extension UUID {
  /// - Throws: A ``Problem`` that names the field.
  init(parsing text: String, field: String) throws {
    guard let uuid = UUID(uuidString: text) else { throw Problem.invalid(field, "must be a UUID") }
    self = uuid
  }
}
