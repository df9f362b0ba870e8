import AppStore
package import Foundation
import JSONText
import Subscriptions

package struct FileRow: Hashable, Sendable {
  /// The number of its first line, from 1.
  package var line: Int
  /// The values in the order of the requested columns; nil if missing.
  package var values: Result<[String?], RowFault>
}

package struct RowFault: Error, Hashable, Sendable {
  package var code: String
  package var reason: String

  package init(_ code: String, _ reason: String) {
    self.code = code
    self.reason = reason
  }

  static func unreadable(_ why: String) -> RowFault {
    RowFault("unreadable", "The line can't be read: \(why).")
  }
}

package struct FileFault: Error, Hashable, CustomStringConvertible {
  package let description: String

  package init(description: String) { self.description = description }
}

/// Streams rows of CSV with a header (RFC 4180) or of JSON lines; invalid ones affect no others.
package struct RowFile {
  package struct Column: Sendable {
    /// The accepted names.
    package var names: [String]
    package var isNeeded: Bool
    /// Whether an empty value is distinct from a missing one.
    package var keepsEmpty: Bool

    package init(_ names: String..., isNeeded: Bool = true, keepsEmpty: Bool = false) {
      (self.names, self.isNeeded, self.keepsEmpty) = (names, isNeeded, keepsEmpty)
    }

    fileprivate func value(_ text: String) -> String? {
      text.isEmpty && !keepsEmpty ? nil : text
    }
  }

  /// The maximum length of a row in bytes; receipts have at most 16 MiB.
  package static let longestRow = 20 * 1024 * 1024

  private static let (quote, comma) = (UInt8(ascii: "\""), UInt8(ascii: ","))
  private static let (lineFeed, carriageReturn) = (UInt8(ascii: "\n"), UInt8(ascii: "\r"))

  private let columns: [Column]
  private var bytes: FileBytes
  /// The positions of the columns in a CSV file; nil for JSON lines.
  private var positions: [Int?]?
  private var width = 0
  private var line = 1

  /// Reads the header; throws ``FileFault`` if the file is empty or lacks a required column.
  package init(_ bytes: FileBytes, columns: [Column]) throws {
    self.columns = columns
    self.bytes = bytes
    try self.bytes.skipByteOrderMark()
    try skipLineEnds()
    guard let first = try self.bytes.peek() else {
      throw FileFault(description: "The file is empty.")
    }
    guard first != UInt8(ascii: "{") else { return }
    switch try csvRow() {
    case .failure(let fault):
      throw FileFault(description: "The first line can't be read: \(fault.reason)")
    case .success(let names): try read(names: names)
    }
  }

  package var bytesRead: Int { bytes.bytesRead }

  package mutating func next() throws -> FileRow? {
    try skipLineEnds()
    guard try bytes.peek() != nil else { return nil }
    let number = line
    guard let positions else { return FileRow(line: number, values: try jsonRow()) }
    let values = try csvRow().flatMap { fields -> Result<[String?], RowFault> in
      guard fields.count == width else {
        let count = fields.count == 1 ? "one field" : "\(fields.count) fields"
        return .failure(.unreadable("it has \(count), but the header has \(width)"))
      }
      return .success(
        zip(columns, positions).map { column, position in
          position.map { fields[$0] }.flatMap { column.value($0) }
        })
    }
    return FileRow(line: number, values: values)
  }

  // MARK: CSV

  private mutating func read(names: [String]) throws {
    if names.count == 1,
      let separator = ";\t|".utf8.first(where: { names[0].utf8.contains($0) })
    {
      let word = separator == UInt8(ascii: "\t") ? "tabs" : "“\(Unicode.Scalar(separator))”"
      throw FileFault(
        description: "The fields are separated by \(word): they must be separated by commas.")
    }
    let names = names.map { ExactText($0.trimmingCharacters(in: .whitespaces).lowercased()) }
    positions = try columns.map { column in
      let wanted = column.names.map(ExactText.init(_:))
      let found = names.indices.filter { wanted.contains(names[$0]) }
      guard found.count <= 1 else {
        throw FileFault(description: "The header contains \(column.names[0]) twice.")
      }
      guard !found.isEmpty || !column.isNeeded else {
        throw FileFault(
          description: "The first line must be a header with the column \(column.names[0]).")
      }
      return found.first
    }
    width = names.count
  }

  /// Reads the fields of a row, which begins with the next byte.
  private mutating func csvRow() throws -> Result<[String], RowFault> {
    var (fields, field): ([String], [UInt8]) = ([], [])
    var fault: String?
    var (isQuoted, wasQuoted, length) = (false, false, 0)
    while true {
      let byte = try bytes.next()
      length += 1
      if length > Self.longestRow {
        if fault == nil { fault = "it is longer than \(Self.longestRow) bytes" }
        isQuoted = false
        field = []
      }
      if isQuoted {
        guard let byte else {
          fault = fault ?? "a quote is not closed"
          break
        }
        if byte == Self.quote {
          if try bytes.peek() == Self.quote {
            _ = try bytes.next()
            field.append(Self.quote)
          } else {
            (isQuoted, wasQuoted) = (false, true)
          }
        } else {
          if byte == Self.lineFeed { line += 1 }
          field.append(byte)
        }
        continue
      }
      switch byte {
      case Self.comma?, Self.lineFeed?, Self.carriageReturn?, nil:
        if let text = String(validating: field, as: UTF8.self) {
          fields.append(text)
        } else {
          fault = fault ?? "it is not UTF-8"
        }
        (field, wasQuoted) = ([], false)
        guard byte != Self.comma else { continue }
        if byte == Self.carriageReturn, try bytes.peek() == Self.lineFeed { _ = try bytes.next() }
        line += 1
        return fault.map { .failure(.unreadable($0)) } ?? .success(fields)
      case Self.quote? where field.isEmpty && !wasQuoted: isQuoted = true
      case Self.quote?: fault = fault ?? "it has a quote inside an unquoted field"
      case let byte?:
        if wasQuoted { fault = fault ?? "it has text after a closing quote" }
        field.append(byte)
      }
    }
    return .failure(.unreadable(fault ?? "it can't be read"))
  }

  private mutating func skipLineEnds() throws {
    while let byte = try bytes.peek(), byte == Self.lineFeed || byte == Self.carriageReturn {
      _ = try bytes.next()
      if byte == Self.carriageReturn, try bytes.peek() == Self.lineFeed { _ = try bytes.next() }
      line += 1
    }
  }

  // MARK: JSON lines

  private mutating func jsonRow() throws -> Result<[String?], RowFault> {
    var text: [UInt8] = []
    var isTooLong = false
    while let byte = try bytes.next(), byte != Self.lineFeed {
      if text.count < Self.longestRow { text.append(byte) } else { isTooLong = true }
    }
    line += 1
    guard !isTooLong else {
      return .failure(.unreadable("it is longer than \(Self.longestRow) bytes"))
    }
    let value: JSONValue
    do {
      value = try JSONValue(parsing: text)
    } catch {
      return .failure(.unreadable("it is not JSON and \(error)"))
    }
    guard case .object = value else {
      return .failure(.unreadable("it is JSON, but not an object"))
    }
    var values: [String?] = []
    for column in columns {
      var found: String?
      for name in column.names {
        switch value[name] {
        case .string(let text)?: found = column.value(text)
        case .integer(let number)?: found = "\(number)"
        case .bool(let flag)?: found = "\(flag)"
        case .null?:
          found = column.value("")
          continue
        case nil: continue
        default: return .failure(.unreadable("\(name) is not a string or a number"))
        }
        break
      }
      values.append(found)
    }
    return .success(values)
  }
}

package struct FileBytes {
  private static let pieceBytes = 1 << 20

  private let file: FileHandle
  private var piece: [UInt8] = []
  private var position = 0
  private var isAtEnd = false
  private(set) var bytesRead = 0

  package init(_ file: FileHandle) { self.file = file }

  package mutating func peek() throws -> UInt8? {
    if position < piece.count { return piece[position] }
    return try refill() ? piece[position] : nil
  }

  package mutating func next() throws -> UInt8? {
    if position == piece.count, try !refill() { return nil }
    position += 1
    bytesRead += 1
    return piece[position - 1]
  }

  package mutating func skipByteOrderMark() throws {
    guard try peek() != nil, piece.starts(with: [0xEF, 0xBB, 0xBF]) else { return }
    for _ in 0..<3 { _ = try next() }
  }

  private mutating func refill() throws -> Bool {
    guard !isAtEnd, let data = try file.read(upToCount: Self.pieceBytes), !data.isEmpty else {
      isAtEnd = true
      return false
    }
    piece = Array(data)
    position = 0
    return true
  }
}
