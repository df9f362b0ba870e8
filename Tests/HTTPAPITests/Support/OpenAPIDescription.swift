import AppStore
import AppStoreSimulator
import Foundation
import HTTPTypes
import JSONText
import Subscriptions
import Yams

@testable import HTTPAPI

/// The OpenAPI document, with checks of responses against it.
///
/// It supports the part of JSON Schema that the document uses. Responses must be described: a
/// member that no schema mentions is a fault.
struct OpenAPIDescription: Sendable {
  static let shared = OpenAPIDescription()

  let document: JSONValue

  private init() {
    let parsed = (try? Yams.load(yaml: OpenAPIDocument.text)) ?? nil
    document = JSONValue(yaml: parsed)
  }

  /// Every operation, as "GET /v1/products".
  var operations: [(method: HTTPRequest.Method, path: String, operation: JSONValue)] {
    document["paths"]?.members.flatMap { path, item in
      item.members.compactMap { name, operation in
        let methods: [HTTPRequest.Method] = [.get, .put, .post, .delete, .patch]
        guard let method = methods.first(where: { $0.rawValue == name.uppercased() }) else {
          return nil
        }
        return (method, path, operation)
      }
    } ?? []
  }

  /// The differences between a response and the document.
  func faults(of answer: Answer, to method: HTTPRequest.Method, _ path: String) -> [String] {
    let path = String(path.prefix { $0 != "?" })
    let operation = operations.first { $0.method == method && Self.matches($0.path, path) }
    guard let operation else {
      // No operation: all that is left is to say so.
      return method == .head ? [] : faults(ofProblem: answer)
    }
    guard let response = operation.operation["responses"]?[String(answer.status)].map(resolved)
    else { return ["\(operation.path) does not list \(answer.status): \(answer.text)"] }
    let mediaType = answer.headers[.contentType] ?? "none"
    guard let content = response["content"]?[mediaType] else {
      return ["\(answer.status) is not described as \(mediaType)"]
    }
    guard mediaType.hasSuffix("json"), let schema = content["schema"] else { return [] }
    return faults(of: answer.json, schema, at: "")
  }

  private func faults(ofProblem answer: Answer) -> [String] {
    guard answer.headers[.contentType] == "application/problem+json" else {
      return ["it is no problem+json: \(answer)"]
    }
    return faults(of: answer.json, schema(named: "Problem"), at: "")
  }

  /// The examples of a content, whether it has one or several.
  func examples(of content: JSONValue) -> [JSONValue] {
    if let example = content["example"] { return [example] }
    return content["examples"]?.members.compactMap { $0.value["value"] } ?? []
  }

  /// The examples of events in the feed, by their names.
  var exampleEvents: [String: JSONValue] {
    let feed = operations.first { $0.path == "/v1/events" }?.operation
    let content = feed?["responses"]?["200"]?["content"]?["application/json"]
    let examples = content?["examples"]?.members ?? []
    return Dictionary(uniqueKeysWithValues: examples).compactMapValues {
      $0["value"]?["events"]?.array?.first
    }
  }

  func schema(named name: String) -> JSONValue {
    document["components"]?["schemas"]?[name] ?? .null
  }

  // MARK: Schemas

  /// The differences between a value and a schema.
  func faults(of value: JSONValue, _ schema: JSONValue, at place: String) -> [String] {
    let schema = flattened(schema)
    if let kind = schema["discriminator"]?["propertyName"]?.string {
      let reference = value[kind]?.string.flatMap { schema["discriminator"]?["mapping"]?[$0] }
      guard let reference else { return ["\(place) has an unknown \(kind): \(value)"] }
      return faults(of: value, ["$ref": reference], at: place)
    }
    if let alternatives = (schema["oneOf"] ?? schema["anyOf"])?.array {
      return alternatives.map { faults(of: value, $0, at: place) }.min { $0.count < $1.count } ?? []
    }
    let types = schema["type"]?.array ?? schema["type"].map { [$0] } ?? []
    guard types.isEmpty || types.contains(where: { value.has(type: $0.string ?? "") }) else {
      return ["\(place) is not \(types): \(value)"]
    }
    if let values = schema["enum"]?.array, !values.contains(value) {
      return ["\(place) is none of its values: \(value)"]
    }
    switch value {
    case .string(let text): return Self.faults(of: text, schema["format"]?.string, at: place)
    case .array(let elements):
      guard let items = schema["items"] else { return ["\(place) has no items described"] }
      return elements.enumerated().flatMap { faults(of: $1, items, at: "\(place)[\($0)]") }
    case .object(let members):
      let required = Set(schema["required"]?.array?.compactMap(\.string) ?? [])
      let missing = required.subtracting(members.map(\.key.rawValue)).sorted()
      return missing.map { "\(place).\($0) is missing" }
        + members.flatMap { member -> [String] in
          guard let property = schema["properties"]?[member.key.rawValue] else {
            return ["\(place).\(member.key) is not described"]
          }
          return faults(of: member.value, property, at: "\(place).\(member.key)")
        }
    case .integer, .number, .bool, .null: return []
    }
  }

  private static func faults(of text: String, _ format: String?, at place: String) -> [String] {
    let isRight =
      switch format {
      case "date-time":
        text.wholeMatch(of: /\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z/) != nil
      case "uuid": UUID(uuidString: text) != nil && text == text.lowercased()
      case "uri": text.wholeMatch(of: /urn:tenure:problem:[a-z_]+/) != nil
      default: true
      }
    return isRight ? [] : ["\(place) is no \(format ?? ""): \(text)"]
  }

  /// Follows a reference.
  func resolved(_ value: JSONValue) -> JSONValue {
    guard let reference = value["$ref"]?.string else { return value }
    let target = reference.split(separator: "/").dropFirst()
      .reduce(document) { $0[String($1)] ?? .null }
    return resolved(target)
  }

  /// Follows references, and puts the parts of `allOf` together.
  private func flattened(_ schema: JSONValue) -> JSONValue {
    let schema = resolved(schema)
    guard let parts = schema["allOf"]?.array else { return schema }
    var merged: [JSONValue.Member] = schema.members.filter { $0.key != "allOf" }
      .map { JSONValue.Member(key: $0.key, value: $0.value) }
    for member in parts.flatMap({ flattened($0).members }) {
      if let index = merged.firstIndex(where: { $0.key.rawValue == member.key }) {
        merged[index].value = merged[index].value.joined(with: member.value)
      } else {
        merged.append(JSONValue.Member(key: member.key, value: member.value))
      }
    }
    return .object(merged)
  }

  private static func matches(_ template: String, _ path: String) -> Bool {
    let (left, right) = (template.split(separator: "/"), path.split(separator: "/"))
    return left.count == right.count
      && zip(left, right).allSatisfy { $0.hasPrefix("{") || $0 == $1 }
  }
}

extension JSONValue {
  var members: [(key: String, value: JSONValue)] {
    guard case .object(let members) = self else { return [] }
    return members.map { ($0.key.rawValue, $0.value) }
  }

  /// Two lists or objects as one; of anything else, the first.
  fileprivate func joined(with other: JSONValue) -> JSONValue {
    switch (self, other) {
    case (.array(let left), .array(let right)): .array(left + right)
    case (.object(let left), .object(let right)): .object(left + right)
    default: self
    }
  }

  fileprivate func has(type: String) -> Bool {
    switch (self, type) {
    case (.string, "string"), (.integer, "integer"), (.bool, "boolean"), (.null, "null"),
      (.array, "array"), (.object, "object"), (.number, "number"), (.integer, "number"):
      true
    default: false
    }
  }

  fileprivate init(yaml value: Any?) {
    self =
      switch value {
      case let value as Bool: .bool(value)
      case let value as Int: .integer(Int64(value))
      case let value as Double: .number(value)
      case let value as String: .string(value)
      case let value as [Any]: .array(value.map { JSONValue(yaml: $0) })
      case let value as [AnyHashable: Any]:
        .object(
          value.map { Member(key: "\($0.key)", value: JSONValue(yaml: $0.value)) }
            .sorted { $0.key < $1.key })
      default: .null
      }
  }
}
