import AppStore
import JSONText
import Subscriptions

import struct Foundation.UUID

/// The fields of a request to the control interface, read with errors that name the field.
struct ControlRequest {
  /// How far the clock moves at a time.
  static let longestTime: Duration = .days(36_525)

  let fields: JSONValue

  /// A wrong request, in one sentence.
  struct Fault: Error {
    let detail: String
  }

  /// Reads a JSON object; an empty body is an empty one.
  init(body: some Collection<UInt8>) throws {
    guard !body.isEmpty else {
      fields = [:]
      return
    }
    guard let json = try? JSONValue(parsing: body), case .object = json else {
      throw Fault(detail: "The body is not a JSON object.")
    }
    fields = json
  }

  init(query: [(key: String, value: String)]) {
    fields = .object(query.map { JSONValue.Member(key: $0.key, value: .string($0.value)) })
  }

  init(fields: JSONValue) {
    self.fields = fields
  }

  /// Refuses fields that nobody reads: mostly slips of the pen.
  func check(allowed: [String]) throws {
    for key in fields.keys where !allowed.contains(key) {
      let list = allowed.isEmpty ? "none" : allowed.joined(separator: ", ")
      throw Fault(detail: "There is no field \(key) here; the fields are: \(list).")
    }
  }

  // MARK: Fields

  func optional<Value>(
    _ key: String, _ expectation: String, _ read: (JSONValue) throws -> Value?
  ) throws -> Value? {
    guard let value = fields[key], value != .null else { return nil }
    guard let result = try read(value) else {
      throw Fault(detail: "\(key) is not \(expectation).")
    }
    return result
  }

  func required<Value>(_ key: String, _ value: Value?) throws -> Value {
    guard let value else { throw Fault(detail: "\(key) is missing.") }
    return value
  }

  func optionalText(_ key: String) throws -> String? {
    try optional(key, "a text", \.string)
  }

  func text(_ key: String) throws -> String { try required(key, try optionalText(key)) }

  func optionalID<ID: TextIdentifier>(_ key: String) throws -> ID? {
    try optional(key, "a text that is not empty") { value in
      value.string.flatMap { $0.isEmpty ? nil : ID(rawValue: $0) }
    }
  }

  func id<ID: TextIdentifier>(_ key: String) throws -> ID {
    try required(key, try optionalID(key))
  }

  func optionalInteger(_ key: String) throws -> Int? {
    try optional(key, "a whole number") { value in
      value.integer.flatMap(Int.init(exactly:)) ?? value.string.flatMap(Int.init)
    }
  }

  func integer(_ key: String) throws -> Int { try required(key, try optionalInteger(key)) }

  /// Up to a hundred years: there is no end of renewals in the whole of time.
  func optionalSeconds(_ key: String) throws -> Duration? {
    let longest = Int(Self.longestTime.components.seconds)
    return try optionalInteger(key).map { seconds in
      guard (0...longest).contains(seconds) else {
        throw Fault(detail: "\(key) is not a number from 0 to \(longest).")
      }
      return .seconds(seconds)
    }
  }

  func optionalBool(_ key: String) throws -> Bool? { try optional(key, "true or false", \.bool) }

  func bool(_ key: String) throws -> Bool { try required(key, try optionalBool(key)) }

  func optionalMoment(_ key: String) throws -> Timestamp? {
    try optional(key, "a time like 2026-01-31T12:00:00Z") {
      $0.string.flatMap(Timestamp.init(rfc3339:))
    }
  }

  func optionalPeriod(_ key: String) throws -> CalendarPeriod? {
    try optional(key, "a period like P1M, P1W or P3D") {
      $0.string.flatMap(CalendarPeriod.init(iso8601:))
    }
  }

  func optionalUUID(_ key: String) throws -> UUID? {
    try optional(key, "a UUID") { $0.string.flatMap(UUID.init(uuidString:)) }
  }

  /// One of an enum's words.
  func optionalWord<Word: RawRepresentable & CaseIterable>(_ key: String) throws -> Word?
  where Word.RawValue == String {
    let words = Word.allCases.map(\.rawValue).joined(separator: ", ")
    return try optional(key, "one of: \(words)") { $0.string.flatMap(Word.init(rawValue:)) }
  }

  /// A list whose every element can be read.
  func optionalList<Element>(
    _ key: String, of expectation: String, _ read: (JSONValue) throws -> Element?
  ) throws -> [Element]? {
    try optional(key, "a list of \(expectation)") { value in
      guard let array = value.array else { return nil }
      let elements = try array.compactMap(read)
      return elements.count == array.count ? elements : nil
    }
  }
}
