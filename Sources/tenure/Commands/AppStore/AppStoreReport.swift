import AppStore
import ArgumentParser
import JSONText
import Subscriptions

/// What a command shows: the same as JSON for programs, and as text for people.
struct AppStoreReport {
  enum Format: String, CaseIterable, ExpressibleByArgument {
    case text
    case json
  }

  /// A part of the text.
  enum Block {
    /// Names and values, the values below each other.
    case fields([(name: String, value: String)])
    /// Columns under their names, each as wide as its widest cell.
    case table([String], [[String]])
    case line(String)
  }

  var members: [JSONValue.Member] = []
  var blocks: [Block] = []
  /// How many signed parts were shown, and how many of them were refused.
  var parts = 0
  var refused = 0
  /// What ended a list before its end.
  var failure: (any Error)?

  init(_ environment: Environment) {
    add("environment", .string(environment.rawValue))
    blocks.append(.fields([("environment", environment.rawValue)]))
  }

  mutating func add(_ name: String, _ value: JSONValue?) {
    guard let value else { return }
    members.append(JSONValue.Member(key: name, value: value))
  }

  /// A named value, in the JSON and in the text.
  mutating func show(_ name: String, _ value: JSONValue?) {
    guard let value else { return }
    add(name, value)
    blocks.append(.fields([(name, AppStoreText.text(value, of: name))]))
  }

  func text(_ format: Format) -> String {
    switch format {
    case .json: String(decoding: JSONValue.object(members).bytes, as: UTF8.self)
    case .text: AppStoreText.text(blocks)
    }
  }

  /// A part that was refused, or a list that broke off, is no success.
  func check() throws {
    if let failure { throw failure }
    guard refused == 0 else {
      throw RefusedParts(description: "\(refused) of \(parts) signed parts were refused")
    }
  }

  /// What the exit status is non-zero for.
  struct RefusedParts: Error, CustomStringConvertible {
    let description: String
  }
}

/// How values and blocks are written for people.
enum AppStoreText {
  static func text(_ blocks: [AppStoreReport.Block]) -> String {
    var lines: [String] = []
    var pending: [(name: String, value: String)] = []
    func flush() {
      lines += columns(pending.map { [$0.name, $0.value] })
      pending = []
    }
    for block in blocks {
      switch block {
      case .fields(let fields): pending += fields
      case .table(let head, let rows):
        flush()
        lines += [""] + columns([head] + rows) + [""]
      case .line(let text):
        flush()
        lines.append(text)
      }
    }
    flush()
    // Empty lines only between others.
    return lines.enumerated().filter { index, line in
      !line.isEmpty || (index > 0 && index < lines.count - 1 && !lines[index - 1].isEmpty)
    }.map(\.element).joined(separator: "\n")
  }

  /// Rows of cells, the cells of a column below each other.
  static func columns(_ rows: [[String]]) -> [String] {
    let count = rows.map(\.count).max() ?? 0
    let widths = (0..<count).map { column in
      rows.map { column < $0.count ? $0[column].count : 0 }.max() ?? 0
    }
    return rows.map { row in
      let cells = zip(row, widths).map { cell, width in
        cell + String(repeating: " ", count: width - cell.count)
      }
      return String(cells.joined(separator: "  ").reversed().drop { $0 == " " }.reversed())
    }
  }

  /// The members of an object, those of objects in it with a dot between the names.
  static func fields(_ json: JSONValue, within path: String = "") -> [(name: String, value: String)]
  {
    switch json {
    case .object(let members):
      return members.flatMap { member in
        fields(member.value, within: path.isEmpty ? "\(member.key)" : "\(path).\(member.key)")
      }
    case .array(let elements) where elements.contains { !$0.keys.isEmpty || $0.array != nil }:
      return elements.enumerated().flatMap { fields($1, within: "\(path).\($0 + 1)") }
    default: return [(path, text(json, of: path))]
    }
  }

  /// One value: what is called a date is written as one.
  static func text(_ json: JSONValue, of name: String) -> String {
    switch json {
    case .string(let text): text
    case .integer(let number):
      name.hasSuffix("Date") ? "\(Timestamp(milliseconds: number))" : "\(number)"
    case .number(let number): "\(number)"
    case .bool(let flag): flag ? "true" : "false"
    case .null: "null"
    case .array(let elements): elements.map { text($0, of: name) }.joined(separator: ", ")
    case .object: String(decoding: json.bytes, as: UTF8.self)
    }
  }

  /// An amount in thousandths, as in `9.99 USD`.
  static func price(_ milliunits: Int64?, _ currency: String?) -> String {
    guard let milliunits else { return "" }
    let (whole, rest) = milliunits.magnitude.quotientAndRemainder(dividingBy: 1000)
    var digits = String(String(1000 + rest).dropFirst())
    if digits.hasSuffix("0") { digits.removeLast() }
    return (milliunits < 0 ? "-" : "") + "\(whole).\(digits)" + (currency.map { " " + $0 } ?? "")
  }
}
