import Crypto
import Foundation
import Postgres
import Subscriptions

/// The items that one recording appends to an original transaction, as one row of `ledger_entry`.
///
/// The body is a JSON array with sorted keys. The hash covers this text, so that a later encoder can
/// use another form under another format number without breaking any chain.
struct StoredEntry: Hashable, Sendable {
  static let currentFormat: Int16 = 1
  /// Longer recordings are several entries.
  private static let mostBytes = 65_536

  var line: OriginalTransactionKey
  /// That of its last item.
  var number: Int
  var recordedAt: Timestamp
  var source: EntrySource
  var format: Int16
  var body: String
  /// By the database's clock.
  var storedAt: Timestamp
  var hash: [UInt8]

  /// The columns that the hash covers, in order.
  var fields: [String] {
    [
      String(format), line.environment.rawValue, line.originalTransactionID.rawValue,
      String(number), String(recordedAt.milliseconds), String(storedAt.milliseconds),
      source.kind.rawValue, source.id ?? "", body,
    ]
  }

  /// Decodes the items; throws ``LedgerError/unreadableEntry`` if this version can't read them.
  func items() throws -> [HistoryItem] {
    guard format == Self.currentFormat,
      let stored = try? JSONDecoder().decode(
        [StoredItem].self, from: Data(body.utf8), configuration: line)
    else { throw LedgerError.unreadableEntry(line: line, number: number) }
    return stored.enumerated().map { index, item in
      let number = number - stored.count + 1 + index
      return (
        LedgerItem(
          line: line, number: number, recordedAt: recordedAt, content: item.content), source
      )
    }
  }

  static let insert = InsertStatement<StoredEntry>(
    into: "ledger_entry",
    columns: [
      Column("environment", \.line.environment),
      Column("original_transaction_id", \.line.originalTransactionID), Column("number", \.number),
      Column("recorded_at", \.recordedAt), Column("source", \.source.kind),
      Column("source_id", \.source.id), Column("format", \.format),
      Column("body") { CompressedText($0.body) }, Column("stored_at", \.storedAt),
      Column("hash", \.hash),
    ])
}

extension StoredEntry {
  /// An entry as it was read; a body that can't be decompressed has bytes that its hash does not
  /// cover.
  static func read(
    line: OriginalTransactionKey, number: Int, recordedAt: Timestamp, source: EntrySource,
    format: Int16, body: [UInt8], storedAt: Timestamp, hash: [UInt8]
  ) -> StoredEntry {
    StoredEntry(
      line: line, number: number, recordedAt: recordedAt, source: source, format: format,
      body: text(ofStored: body), storedAt: storedAt, hash: hash)
  }

  /// The text of a stored body; of a damaged one, its bytes.
  static func text(ofStored body: [UInt8]) -> String {
    CompressedText(rawValue: body)?.text ?? String(decoding: body, as: UTF8.self)
  }
}

extension SHA256 {
  /// The hash of an entry: over the previous hash (zeros for the first entry) and every field, each
  /// preceded by its length.
  static func chained(_ fields: [String], after previous: [UInt8]?) -> [UInt8] {
    var hasher = SHA256()
    hasher.update(data: previous ?? [UInt8](repeating: 0, count: byteCount))
    for field in fields {
      hasher.update(data: Array("\(field.utf8.count):".utf8))
      hasher.update(data: Array(field.utf8))
    }
    return Array(hasher.finalize())
  }
}

extension StoredEntry {
  /// Encodes the items of one recording, chained to the entry before; usually as one entry.
  static func chain(
    _ items: [LedgerItem], source: EntrySource, at storedAt: Timestamp, after previous: [UInt8]?
  ) throws -> [StoredEntry] {
    var entries: [StoredEntry] = []
    for item in items {
      let text = try item.content.encoded()
      if let last = entries.last, last.body.utf8.count + text.utf8.count < mostBytes {
        entries[entries.count - 1].body += ",\(text)"
        entries[entries.count - 1].number = item.number
      } else {
        entries.append(
          StoredEntry(
            line: item.line, number: item.number, recordedAt: item.recordedAt, source: source,
            format: currentFormat, body: "[\(text)", storedAt: storedAt, hash: []))
      }
    }
    var hash = previous
    for index in entries.indices {
      entries[index].body += "]"
      entries[index].hash = SHA256.chained(entries[index].fields, after: hash)
      hash = entries[index].hash
    }
    return entries
  }
}

extension OriginalTransactionRows.Head {
  init(_ last: StoredEntry) {
    self.init(
      number: last.number, hash: last.hash, recordedAt: last.recordedAt, storedAt: last.storedAt)
  }
}

extension LedgerItem.Kind: CodingKey {}

private struct Link: Codable { var previous: OriginalTransactionKey }

extension LedgerItem.Content {
  /// An object with one member, which is named after the kind.
  fileprivate func encoded() throws -> String {
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
    let data =
      switch self {
      case .evidence(.transaction(let record)): try encoder.encode(record)
      case .evidence(.renewalStatus(let status, _)): try encoder.encode(status)
      case .evidence(.link(_, let previous)): try encoder.encode(Link(previous: previous))
      case .action(.claim(let claim)): try encoder.encode(claim)
      case .action(.ownerOverride(let ownerOverride)): try encoder.encode(ownerOverride)
      case .action(.importedOverride(let ownerOverride)): try encoder.encode(ownerOverride)
      case .ownership(let change): try encoder.encode(change)
      }
    return "{\"\(kind.rawValue)\":\(String(decoding: data, as: UTF8.self))}"
  }
}

/// An item of an original transaction, as ``LedgerItem/Content/encoded()`` writes it.
private struct StoredItem: DecodableWithConfiguration {
  let content: LedgerItem.Content

  init(from decoder: any Decoder, configuration line: OriginalTransactionKey) throws {
    let object = try decoder.container(keyedBy: LedgerItem.Kind.self)
    guard let kind = object.allKeys.first, object.allKeys.count == 1 else {
      throw DecodingFault.unknownValue
    }
    func value<Value: Decodable>(_ type: Value.Type = Value.self) throws -> Value {
      try object.decode(type, forKey: kind)
    }
    content =
      switch kind {
      case .transaction: .evidence(.transaction(try value()))
      case .renewalStatus: .evidence(.renewalStatus(try value(), line: line))
      case .link: .evidence(.link(line: line, previous: try value(Link.self).previous))
      case .claim: .action(.claim(try value()))
      case .ownerOverride:
        // An override of a whole original transaction has a date until which it applies.
        if let imported = try? value(OriginalTransactionOverride.self) {
          .action(.importedOverride(imported))
        } else {
          .action(.ownerOverride(try value()))
        }
      case .decided, .claimed, .corrected, .placed: .ownership(try value())
      }
  }
}

package struct EntrySource: Hashable, Sendable {
  package enum Kind: String, CaseIterable, Sendable, PostgresEncodable, PostgresDecodable {
    case receipt
    case signedTransaction = "signed_transaction"
    case notification
    case poll
    case administrator
    case `import`
  }

  package var kind: Kind
  /// The identifier of the submission, notification, poll or administrator.
  package var id: String?

  init(_ kind: Kind, id: String?) {
    self.kind = kind
    self.id = id
  }
}
