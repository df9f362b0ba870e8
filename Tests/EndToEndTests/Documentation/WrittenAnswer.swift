import AppStore
import Foundation
import JSONText
import Subscriptions

/// The output in an article, compared with the real output.
///
/// An article writes answers as they would look. What differs from run to run is compared by its
/// shape, anywhere in a text:
///
/// - a time (RFC 3339 in UTC) stands for any time;
/// - a UUID, a number of ten digits or more and 26 to 32 hexadecimal digits stand for any such
///   name, and within an article always for the same one;
/// - `…` stands for any text. As an element of an array it stands for any further elements, and the
///   member `"…": "…"` of an object for any further members.
///
/// Everything else has to be equal, numbers and the order of arrays included. Of HTTP (the fence
/// `http`) the status is compared, the headers that are written, and the body. Of other texts (the
/// fence `text`) empty lines and the number of spaces are not, and a line of `…` stands
/// for any lines.
struct WrittenAnswer {
  /// The real name of each name that the article has used.
  private(set) var names: [String: String] = [:]

  /// Compares an answer.
  ///
  /// - Returns: The differences, one sentence each.
  mutating func differences(between real: String, and block: CodeBlock) -> [String] {
    switch block.language {
    case "json": jsonDifferences(real, block.code)
    case "http": httpDifferences(real, block.code)
    default: textDifferences(real, block.code)
    }
  }

  // MARK: JSON

  private mutating func jsonDifferences(_ real: String, _ written: String) -> [String] {
    guard let expected = try? JSONValue(parsing: written.utf8) else {
      return ["what is written is no JSON: \(written)"]
    }
    guard let found = try? JSONValue(parsing: real.utf8) else {
      return ["no JSON was answered: \(real.prefix(2000))"]
    }
    return differences(found, expected, at: "the answer")
  }

  private mutating func differences(
    _ real: JSONValue, _ written: JSONValue, at place: String
  ) -> [String] {
    switch (written, real) {
    case (.string(let text), .string(let other)):
      return matches(other, text) ? [] : ["\(place) is \(other), not \(text)"]
    case (.object(let members), .object(let others)):
      let isOpen = members.contains { $0.key == "…" }
      let names = members.map(\.key).filter { $0 != "…" }
      let unwritten = isOpen ? [] : others.map(\.key).filter { !names.contains($0) }
      return unwritten.map { "\(place) has \($0), too" }
        + members.filter { $0.key != "…" }.flatMap { member in
          guard let other = real[member.key.rawValue] else {
            return ["\(place) has no \(member.key)"]
          }
          return differences(other, member.value, at: "\(place).\(member.key)")
        }
    case (.array(let elements), .array(let others)):
      let isOpen = elements.last == "…"
      let written = isOpen ? elements.dropLast() : elements[...]
      guard isOpen ? others.count >= written.count : others.count == written.count else {
        return ["\(place) has \(others.count) elements, not \(written.count)"]
      }
      return zip(others, written).enumerated().flatMap { index, pair in
        differences(pair.0, pair.1, at: "\(place)[\(index)]")
      }
    case (.string("…"), _): return []
    default:
      guard real != written else { return [] }
      return [
        "\(place) is \(String(decoding: real.bytes, as: UTF8.self)),"
          + " not \(String(decoding: written.bytes, as: UTF8.self))"
      ]
    }
  }

  // MARK: HTTP

  private mutating func httpDifferences(_ real: String, _ written: String) -> [String] {
    let expected = HTTPText(written)
    let found = HTTPText(real)
    guard found.status == expected.status else {
      return ["the status is \(found.status), not \(expected.status): \(real.prefix(2000))"]
    }
    var differences = expected.headers.flatMap { name, value -> [String] in
      guard let other = found.headers.first(where: { $0.0 == name })?.1 else {
        return ["there is no \(name)"]
      }
      return matches(other, value) ? [] : ["\(name) is \(other), not \(value)"]
    }
    guard !expected.body.isEmpty else { return differences }
    differences += jsonDifferences(found.body, expected.body)
    return differences
  }

  private struct HTTPText {
    var status = ""
    var headers: [(String, String)] = []
    var body = ""

    init(_ text: String) {
      let text = text.replacing("\r\n", with: "\n")
      let head = text.firstRange(of: "\n\n").map { text[..<$0.lowerBound] } ?? text[...]
      body = String(text[head.endIndex...]).trimmingCharacters(in: .whitespacesAndNewlines)
      let lines = head.split(separator: "\n")
      status = lines.first?.split(separator: " ").dropFirst().first.map(String.init) ?? ""
      headers = lines.dropFirst().compactMap { line in
        let parts = line.split(separator: ":", maxSplits: 1)
        guard parts.count == 2 else { return nil }
        return (parts[0].lowercased(), parts[1].trimmingCharacters(in: .whitespaces))
      }
    }
  }

  // MARK: Text

  private mutating func textDifferences(_ real: String, _ written: String) -> [String] {
    func normal(_ text: String) -> String {
      // Lines of CSV end in two characters, which to Swift are one.
      text.split(whereSeparator: \.isNewline).map { line in
        line.split(separator: " ").joined(separator: " ")
      }.joined(separator: "\n").trimmingCharacters(in: .whitespacesAndNewlines)
    }
    return matches(normal(real), normal(written)) ? [] : ["this was answered:\n\(real)"]
  }

  /// Patterns of values compared by their shape, the longest first.
  private static let shapes: [(pattern: String, isName: Bool)] = [
    (#"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}(?:[.][0-9]+)?Z"#, false),
    (#"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"#, true),
    // The first half of a Hummingbird request ID has no leading zeros.
    (#"\b[0-9a-f]{26,32}\b"#, true),
    (#"\b[0-9]{10,}\b"#, true),
    ("…", false),
  ]

  /// Whether a text is as it is written.
  private mutating func matches(_ real: String, _ written: String) -> Bool {
    guard real != written || names[written] != nil else { return true }
    guard
      let shape = try? NSRegularExpression(
        pattern: Self.shapes.map { "(\($0.pattern))" }.joined(separator: "|"))
    else { preconditionFailure("The shapes are regular expressions.") }
    var pattern = ""
    var namesOfGroups: [String?] = []
    var place = written.startIndex
    let whole = NSRange(written.startIndex..., in: written)
    for match in shape.matches(in: written, range: whole) {
      guard let range = Range(match.range, in: written),
        let kind = Self.shapes.indices.first(where: {
          match.range(at: $0 + 1).location != NSNotFound
        })
      else { continue }
      pattern += NSRegularExpression.escapedPattern(for: String(written[place..<range.lowerBound]))
      let isGap = written[range] == "…"
      pattern += isGap ? #"([\s\S]*?)"# : "(\(Self.shapes[kind].pattern))"
      namesOfGroups.append(Self.shapes[kind].isName ? String(written[range]) : nil)
      place = range.upperBound
    }
    pattern += NSRegularExpression.escapedPattern(for: String(written[place...]))
    guard let expression = try? NSRegularExpression(pattern: "^\(pattern)\\z"),
      let match = expression.firstMatch(in: real, range: NSRange(real.startIndex..., in: real))
    else { return false }
    for (index, name) in namesOfGroups.enumerated() {
      guard let name, let range = Range(match.range(at: index + 1), in: real) else { continue }
      let found = String(real[range])
      if let known = names[name] {
        guard known == found else { return false }
      } else {
        guard !names.values.contains(found) else { return false }
        names[name] = found
      }
    }
    return true
  }
}
