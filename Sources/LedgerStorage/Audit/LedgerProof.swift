import Crypto
import Foundation
package import JSONText
import Postgres
package import Subscriptions

/// The entries of an original transaction, and what proves them up to a checkpoint.
///
/// It is verified with nothing else. What it says of the checkpoint is worth as much as a copy of that,
/// kept where the database's owner can't change it.
package struct LedgerProof: Sendable {
  package struct Entry: Sendable, Decodable {
    /// The columns that the hash covers, in order.
    package let fields: [String]
    package let hash: String
  }

  package struct Step: Sendable, Decodable {
    /// Which side of the path the hash is on: left or right.
    package let side: String
    package let hash: String
  }

  /// A part that does not follow from the others.
  package struct Fault: Error, CustomStringConvertible {
    package let description: String

    package init(description: String) { self.description = description }
  }

  package let line: OriginalTransactionKey
  package let entries: [Entry]
  /// The number of the last entry that the checkpoint covers; 0: none.
  package let covered: Int
  /// From the last covered entry to the checkpoint's `heads`.
  package let path: [Step]
  package let checkpoint: Checkpoint?

  package func verify() throws {
    var (previous, head): ([UInt8], [UInt8]?) = (Checkpoint.zeros, nil)
    for entry in entries {
      let number = entry.fields.dropFirst(3).first ?? ""
      guard
        entry.fields.dropFirst().prefix(2) == [
          line.environment.rawValue, line.originalTransactionID.rawValue,
        ]
      else { throw Fault(description: "Entry \(number) is of another chain.") }
      previous = SHA256.chained(entry.fields, after: previous)
      guard previous.hexadecimal == entry.hash else {
        throw Fault(description: "Entry \(number) does not have the hash that follows.")
      }
      if number == String(covered) { head = previous }
    }
    guard let checkpoint else { return }
    guard checkpoint.digest == checkpoint.expectedDigest else {
      throw Fault(description: "The checkpoint's digest does not follow from its members.")
    }
    guard covered > 0 else { return }
    guard let head else { throw Fault(description: "The covered entries are not all here.") }
    var node = HashTree.leaf(ChainEnds.text(line.subject, covered, head))
    for step in path {
      guard let hash = [UInt8](hexadecimal: step.hash) else {
        throw Fault(description: "The path contains a text that is not a hash.")
      }
      node = step.side == "left" ? HashTree.node(hash, node) : HashTree.node(node, hash)
    }
    guard node == checkpoint.heads else {
      throw Fault(description: "The path does not lead to the checkpoint.")
    }
  }
}

extension LedgerProof: JSONObjectWritable {
  package func writeMembers(to json: inout JSONWriter) {
    json.member("environment", line.environment.rawValue)
    json.member("original_transaction_id", line.originalTransactionID.rawValue)
    json.member("entries", entries)
    json.member("covered", covered)
    json.member("path", path)
    json.member("checkpoint", checkpoint)
  }
}

extension LedgerProof.Entry: JSONObjectWritable {
  package func writeMembers(to json: inout JSONWriter) {
    json.member("fields", fields)
    json.member("hash", hash)
  }
}

extension LedgerProof.Step: JSONObjectWritable {
  package func writeMembers(to json: inout JSONWriter) {
    json.member("side", side)
    json.member("hash", hash)
  }
}

extension LedgerProof: Decodable {
  private enum Key: String, CodingKey {
    case environment
    case line = "original_transaction_id"
    case entries, covered, path, checkpoint
  }

  package init(from decoder: any Decoder) throws {
    let values = try decoder.container(keyedBy: Key.self)
    guard
      let line = OriginalTransactionKey(
        subject: try values.decode(String.self, forKey: .environment) + "/"
          + values.decode(String.self, forKey: .line))
    else { throw DecodingFault.unknownValue }
    self.line = line
    entries = try values.decode([Entry].self, forKey: .entries)
    covered = try values.decode(Int.self, forKey: .covered)
    path = try values.decode([Step].self, forKey: .path)
    checkpoint = try values.decode(Checkpoint?.self, forKey: .checkpoint)
  }
}

extension LedgerAuditor {
  /// Reads the entries of an original transaction.
  ///
  /// - Parameter isProven: Whether to prove them up to the latest checkpoint, for which the ends of all
  ///   chains are read.
  package func proof(of line: OriginalTransactionKey, isProven: Bool) async throws -> LedgerProof {
    let entries = try await database.query(
      StoredEntry.select("\(line.condition) ORDER BY number")
    ).decode(into: StoredEntry.read)
    let checkpoint = isProven ? try await checkpoints(limit: 1).first : nil
    var path: [LedgerProof.Step] = []
    var covered = 0
    if let checkpoint {
      covered = entries.last { $0.storedAt < checkpoint.storedBefore }?.number ?? 0
      path = try await ends(before: checkpoint.storedBefore, tracking: line).path.map {
        LedgerProof.Step(side: $0.isLeft ? "left" : "right", hash: $0.hash.hexadecimal)
      }
    }
    return LedgerProof(
      line: line,
      entries: entries.map { LedgerProof.Entry(fields: $0.fields, hash: $0.hash.hexadecimal) },
      covered: covered, path: path, checkpoint: checkpoint)
  }
}
