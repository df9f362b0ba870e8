import Foundation

/// The form of rows for programs.
enum RowFormat: String, CaseIterable, Sendable {
  /// RFC 4180, with a line of names.
  case csv
  /// One JSON object on each line.
  case jsonl
}

/// Writes rows to a file or to standard output, piece by piece.
struct RowWriter: ~Copyable {
  private static let pieceBytes = 1 << 16

  private let file: FileHandle
  private let format: RowFormat
  private let columns: [String]
  private var text = ""
  private(set) var rows = 0

  /// - Parameters:
  ///   - path: Where to; nil or a hyphen: standard output. What is there is replaced.
  ///   - format: The form.
  ///   - columns: The names.
  /// - Throws: What the file system says.
  init(to path: String?, _ format: RowFormat, columns: [String]) throws {
    self.format = format
    self.columns = columns
    if let path, path != "-" {
      file = try FileHandle(replacingContentsOf: path)
    } else {
      file = .standardOutput
    }
    if format == .csv { text = columns.joined(separator: ",") + "\r\n" }
  }

  /// Writes a row; what is nil is an empty field or a null.
  mutating func write(_ values: [String?]) throws {
    rows += 1
    switch format {
    case .csv: text += values.map { ($0 ?? "").csvField }.joined(separator: ",") + "\r\n"
    case .jsonl:
      text += Self.object(columns, values) + "\n"
    }
    if text.utf8.count >= Self.pieceBytes { try flush() }
  }

  /// Writes what is left.
  mutating func finish() throws { try flush() }

  private mutating func flush() throws {
    try file.write(contentsOf: Data(text.utf8))
    text = ""
  }

  /// An array in JSON, for a field that holds several texts.
  static func list(_ values: [String]) -> String {
    "[" + values.map(json).joined(separator: ",") + "]"
  }

  /// An object in JSON, of texts and nulls.
  static func object(_ names: [String], _ values: [String?]) -> String {
    let members = zip(names, values).map { "\(json($0)):\($1.map(json) ?? "null")" }
    return "{" + members.joined(separator: ",") + "}"
  }

  /// A text in JSON.
  private static func json(_ text: String) -> String {
    var json = "\""
    for scalar in text.unicodeScalars {
      switch scalar {
      case "\"": json += "\\\""
      case "\\": json += "\\\\"
      case "\n": json += "\\n"
      case "\r": json += "\\r"
      case "\t": json += "\\t"
      case "\u{0}"..."\u{1F}":
        let code = String(scalar.value, radix: 16)
        json += "\\u" + String(repeating: "0", count: 4 - code.count) + code
      default: json.unicodeScalars.append(scalar)
      }
    }
    return json + "\""
  }
}
