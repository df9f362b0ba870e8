package import Foundation
import JSONText
import SystemPackage

package enum RowFormat: String, CaseIterable, Sendable {
  /// RFC 4180, with a header.
  case csv
  /// One JSON object per line.
  case jsonl
}

/// Writes rows to a file or standard output, buffered.
package struct RowWriter: ~Copyable {
  private static let pieceBytes = 1 << 16

  private let file: FileHandle
  private let format: RowFormat
  private let columns: [String]
  private let guardsFormulas: Bool
  private var text = ""

  /// - Parameter path: The file to replace; nil or a hyphen for standard output.
  package init(
    to path: String?, _ format: RowFormat, guardsFormulas: Bool = false, columns: [String]
  ) throws {
    (self.format, self.guardsFormulas, self.columns) = (format, guardsFormulas, columns)
    if let path, path != "-" {
      file = try FileHandle(replacingContentsOf: path)
    } else {
      file = .standardOutput
    }
    if format == .csv { text = columns.joined(separator: ",") + "\r\n" }
  }

  package mutating func write(_ values: [String?]) throws {
    switch format {
    case .csv: text += values.csvLine(guardsFormulas: guardsFormulas)
    case .jsonl: text += Self.object(columns, values) + "\n"
    }
    if text.utf8.count >= Self.pieceBytes { try flush() }
  }

  package mutating func finish() throws { try flush() }

  private mutating func flush() throws {
    try file.write(contentsOf: Data(text.utf8))
    text = ""
  }

  package static func list(_ values: [String]) -> String {
    "[" + values.map(json).joined(separator: ",") + "]"
  }

  package static func object(_ names: [String], _ values: [String?]) -> String {
    let members = zip(names, values).map { "\(json($0)):\($1.map(json) ?? "null")" }
    return "{" + members.joined(separator: ",") + "}"
  }

  private static func json(_ text: String) -> String {
    var json = JSONWriter(capacity: text.utf8.count + 2)
    json.write(text)
    return json.text
  }
}

extension FileHandle {
  /// Creates a file, or opens it and truncates it.
  ///
  /// Devices, pipes and links stay, unlike with `FileManager.createFile`, which would replace even
  /// `/dev/null` by a file.
  package convenience init(replacingContentsOf path: String) throws {
    do {
      let file = try FileDescriptor.open(
        FilePath(path), .writeOnly, options: [.create, .truncate, .closeOnExec],
        permissions: [.ownerReadWrite, .groupReadWrite, .otherReadWrite])
      self.init(fileDescriptor: file.rawValue, closeOnDealloc: true)
    } catch let error as Errno {
      throw FileFault(description: "\(path) can't be written: \(error).")
    }
  }
}
