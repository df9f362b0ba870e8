import Crypto
import Postgres
import Subscriptions

/// The header of a JWS with its certificates, which is stored once.
struct ChainHeader: Hashable, Sendable {
  let bytes: [UInt8]
  let digest: [UInt8]

  init(_ text: String) {
    bytes = Array(text.utf8)
    digest = Array(SHA256.hash(data: bytes))
  }
}

/// A body to be stored, content-addressed.
struct NewBody: Sendable {
  let digest: [UInt8]
  private let length: Int64
  private let content: [UInt8]
  private let missing: [ChainHeader]
  private let arrivedAt: Timestamp

  /// Compresses the body, so not in a database transaction.
  ///
  /// - Parameter headers: The headers of verified signatures, which it is stored without.
  init(_ bytes: [UInt8], at arrivedAt: Timestamp, leavingOut headers: [ChainHeader] = []) {
    digest = Array(SHA256.hash(data: bytes))
    length = Int64(bytes.count)
    (content, missing) = BodyEncoding.split(bytes, leavingOut: headers)
    self.arrivedAt = arrivedAt
  }

  /// Stores it, unless it is there, and keeps others from deleting it before the transaction ends.
  var store: SQL {
    """
    SELECT tenure.store_body(\(digest), \(length), \(content), \(missing.map(\.digest)),
      \(missing.map { String(decoding: $0.bytes, as: UTF8.self) }), \(arrivedAt))
    """
  }
}

extension [NewBody] {
  /// Stores each of them once, in the order in which the locks on bodies are taken.
  var store: [SQL] {
    var last: [UInt8] = []
    return sorted { $0.digest.lexicographicallyPrecedes($1.digest) }.compactMap { body in
      guard body.digest != last else { return nil }
      last = body.digest
      return body.store
    }
  }
}

/// A body as it was stored.
struct StoredBody: Sendable {
  let digest: [UInt8]
  /// The length in bytes.
  let length: Int64
  /// Nil if it was pruned.
  let bytes: [UInt8]?
  let prunedAt: Timestamp?

  /// The text of a body that arrived as text.
  var text: String? { bytes.map { String(decoding: $0, as: UTF8.self) } }

  /// The digest and length that remain after pruning; nil if it was not pruned.
  var remains: PrunedPayload? {
    prunedAt.map { PrunedPayload(at: $0, sha256: digest, bytes: length) }
  }
}

extension StatementRunner {
  /// Reads bodies by digest; those that were erased are left out.
  ///
  /// - Parameter longest: The longest to read, in bytes.
  func bodies(_ digests: Set<[UInt8]>, noLongerThan longest: Int64 = .max) async throws
    -> [[UInt8]: StoredBody]
  {
    guard !digests.isEmpty else { return [:] }
    let rows = try await query(
      """
      SELECT sha256, bytes, content, pruned_at FROM tenure.body
      WHERE sha256 = ANY(\(Array(digests))) AND bytes <= \(longest)
      """
    ).decode([UInt8].self, Int64.self, [UInt8]?.self, Timestamp?.self).map { $0 }
    let missing = Set(rows.compactMap(\.2).flatMap(BodyEncoding.missingHeaders))
    let headers =
      missing.isEmpty
      ? []
      : try await query(
        "SELECT header FROM tenure.certificate_chain WHERE sha256 = ANY(\(Array(missing)))"
      ).decode(String.self).map(ChainHeader.init)
    var bodies: [[UInt8]: StoredBody] = [:]
    for (digest, length, content, prunedAt) in rows {
      let bytes = try content.map { content in
        guard let bytes = BodyEncoding.join(content, with: headers),
          SHA256.hash(data: bytes).elementsEqual(digest)
        else { throw LedgerError.unreadableBody(sha256: digest) }
        return bytes
      }
      bodies[digest] = StoredBody(
        digest: digest, length: length, bytes: bytes, prunedAt: prunedAt)
    }
    return bodies
  }

  /// Reads a body by digest; nil if it was erased.
  func body(_ digest: [UInt8]) async throws -> StoredBody? {
    try await bodies([digest])[digest]
  }
}

extension Transaction {
  /// Keeps others from deleting or pruning bodies before the transaction ends, and returns those that
  /// are there.
  func keepBodies(_ digests: [[UInt8]]) async throws -> [[UInt8]] {
    guard !digests.isEmpty else { return [] }
    let results = try await batch([
      """
      SELECT pg_advisory_xact_lock_shared(tenure.body_lock(sorted.digest))
      FROM (SELECT digest FROM unnest(\(digests)) AS d (digest) ORDER BY digest) AS sorted
      """,
      """
      SELECT sha256 FROM tenure.body WHERE sha256 = ANY(\(digests)) AND pruned_at IS NULL
      """,
    ])
    return try results[1].decode([UInt8].self)
  }
}
