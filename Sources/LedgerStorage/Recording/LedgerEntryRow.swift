import Crypto
import Foundation
import Postgres
import Subscriptions

/// A ledger entry in the form in which it is stored and hashed.
///
/// The body is JSON with sorted keys. The hash covers the stored bytes, so that a later encoder can
/// use another form under another format number without breaking any chain.
struct StoredEntry: Hashable, Sendable {
  static let currentFormat: Int16 = 1

  var line: OriginalTransactionKey
  var number: Int
  var recordedAt: Timestamp
  var kind: String
  var evidenceDate: Timestamp?
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
      String(number), String(recordedAt.milliseconds), String(storedAt.milliseconds), kind,
      evidenceDate.map { String($0.milliseconds) } ?? "", source.kind.rawValue, source.id ?? "",
      body,
    ]
  }

  /// Decodes the entry; throws ``LedgerError/unreadableEntry`` if this version can't read it.
  func entry() throws -> LedgerEntry {
    guard format == Self.currentFormat, let kind = LedgerEntry.Kind(rawValue: kind),
      let content = try? LedgerEntry.Content(kind: kind, body: body, line: line)
    else { throw LedgerError.unreadableEntry(line: line, number: number) }
    return LedgerEntry(line: line, number: number, recordedAt: recordedAt, content: content)
  }

  static let insert = InsertStatement<StoredEntry>(
    into: "ledger_entry",
    columns: [
      Column("environment", \.line.environment),
      Column("original_transaction_id", \.line.originalTransactionID), Column("number", \.number),
      Column("recorded_at", \.recordedAt), Column("kind", \.kind),
      Column("evidence_date", \.evidenceDate), Column("source", \.source.kind),
      Column("source_id", \.source.id), Column("format", \.format), Column("body", \.body),
      Column("stored_at", \.storedAt), Column("hash", \.hash),
    ])
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
  /// Encodes an entry, chained to the one before.
  init(
    _ entry: LedgerEntry, source: EntrySource, at storedAt: Timestamp, after previousHash: [UInt8]?
  ) throws {
    self.init(
      line: entry.line, number: entry.number, recordedAt: entry.recordedAt,
      kind: entry.content.kind.rawValue, evidenceDate: entry.content.evidenceDate, source: source,
      format: Self.currentFormat, body: try entry.content.encodedBody(), storedAt: storedAt,
      hash: [])
    hash = SHA256.chained(fields, after: previousHash)
  }
}

extension OriginalTransactionRows.Head {
  init(_ last: StoredEntry) {
    self.init(
      number: last.number, hash: last.hash, recordedAt: last.recordedAt, storedAt: last.storedAt)
  }
}

extension LedgerEntry.Content {
  private struct Link: Codable { var previous: OriginalTransactionKey }

  /// The body without the kind, which is in a separate column.
  fileprivate func encodedBody() throws -> String {
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
    return String(decoding: data, as: UTF8.self)
  }

  fileprivate init(kind: LedgerEntry.Kind, body: String, line: OriginalTransactionKey) throws {
    let data = Data(body.utf8)
    let decoder = JSONDecoder()
    self =
      switch kind {
      case .transaction:
        .evidence(.transaction(try decoder.decode(TransactionRecord.self, from: data)))
      case .renewalStatus:
        .evidence(
          .renewalStatus(try decoder.decode(RenewalStatus.self, from: data), line: line))
      case .link:
        .evidence(.link(line: line, previous: try decoder.decode(Link.self, from: data).previous))
      case .claim: .action(.claim(try decoder.decode(Claim.self, from: data)))
      case .ownerOverride: .action(try Self.ownerOverride(from: data, decoder))
      case .decided, .claimed, .corrected, .placed:
        .ownership(try decoder.decode(OwnershipChange.self, from: data))
      }
  }

  /// An override of a whole original transaction has a date until which it applies.
  private static func ownerOverride(from data: Data, _ decoder: JSONDecoder) throws
    -> OwnershipAction
  {
    if let ownerOverride = try? decoder.decode(OriginalTransactionOverride.self, from: data) {
      return .importedOverride(ownerOverride)
    }
    return .ownerOverride(try decoder.decode(OwnerOverride.self, from: data))
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
