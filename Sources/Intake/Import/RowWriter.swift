import Foundation
import JSONText

/// The form of rows for programs.
package enum RowFormat: String, CaseIterable, Sendable {
  /// RFC 4180, with a line of names.
  case csv
  /// One JSON object on each line.
  case jsonl
}

/// Writes rows to a file or to standard output, piece by piece.
package struct RowWriter: ~Copyable {
  private static let pieceBytes = 1 << 16

  private let file: FileHandle
  private let format: RowFormat
  private let columns: [String]
  private let guardsFormulas: Bool
  private var text = ""
  private(set) var rows = 0

  /// - Parameters:
  ///   - path: Where to; nil or a hyphen: standard output. What is there is replaced.
  ///   - format: The form.
  ///   - guardsFormulas: Whether CSV gets an apostrophe before what a spreadsheet would calculate.
  ///   - columns: The names.
  /// - Throws: What the file system says.
  package init(
    to path: String?, _ format: RowFormat, guardsFormulas: Bool = false, columns: [String]
  ) throws {
    self.format = format
    self.guardsFormulas = guardsFormulas
    self.columns = columns
    if let path, path != "-" {
      file = try FileHandle(replacingContentsOf: path)
    } else {
      file = .standardOutput
    }
    if format == .csv { text = columns.joined(separator: ",") + "\r\n" }
  }

  /// Writes a row; what is nil is an empty field or a null.
  package mutating func write(_ values: [String?]) throws {
    rows += 1
    switch format {
    case .csv:
      let guards = guardsFormulas
      text +=
        values.map { ($0 ?? "").csvField(guardsFormulas: guards) }.joined(separator: ",") + "\r\n"
    case .jsonl:
      text += Self.object(columns, values) + "\n"
    }
    if text.utf8.count >= Self.pieceBytes { try flush() }
  }

  /// Writes what is left.
  package mutating func finish() throws { try flush() }

  private mutating func flush() throws {
    try file.write(contentsOf: Data(text.utf8))
    text = ""
  }

  /// An array in JSON, for a field that holds several texts.
  package static func list(_ values: [String]) -> String {
    "[" + values.map(json).joined(separator: ",") + "]"
  }

  /// An object in JSON, of texts and nulls.
  package static func object(_ names: [String], _ values: [String?]) -> String {
    let members = zip(names, values).map { "\(json($0)):\($1.map(json) ?? "null")" }
    return "{" + members.joined(separator: ",") + "}"
  }

  /// A text in JSON.
  private static func json(_ text: String) -> String {
    var json = JSONWriter(capacity: text.utf8.count + 2)
    json.write(text)
    return json.text
  }
}
