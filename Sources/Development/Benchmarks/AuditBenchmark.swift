import Bootstrap
import Crypto
import Foundation
import Intake
import LedgerStorage
import Logging
import Postgres
import Subscriptions

/// Ledger entries audited a second, or compared with another policy, next to only reading and
/// hashing them.
struct AuditBenchmark: Sendable {
  enum Kind: String, Sendable {
    case audited = "entries audited"
    /// The chains of accounts alone, and the rows that they vouch for.
    case accounts = "account entries audited"
    /// With the present rule's owners, which must be the recorded ones.
    case compared = "entries compared with another policy"
  }

  static let customers = 10_000
  private static let concurrency = 32
  private static let page = 5_000

  let kinds: [Kind]
  let database: BenchDatabase
  /// Customers, each with a signed transaction and a renewal.
  let customers: Int
  let rounds: Int
  let logger: Logger

  /// Measures each kind, all on one ledger.
  func run() async throws -> [BenchResult] {
    try await database.withPool { pool in
      let shop = try await SampleShop(
        database: pool, boughtAt: .now - .days(30) - .seconds(60), logger: logger)
      try await fill(shop)
      let ledger = shop.assembly.ledger
      var figures: [Kind: [(measured: Measurement, limit: Measurement)]] = [:]
      for round in 1...rounds {
        logger.notice("Measuring", metadata: ["round": "\(round) of \(rounds)"])
        for kind in kinds {
          let (read, reading) = try await timed { try await Self.hash(kind.entries, in: pool) }
          let (_, replaying) = try await timed { try await replay(ledger, kind, entries: read) }
          figures[kind, default: []].append(
            (
              Measurement(rate: Double(read) / (replaying / .seconds(1))),
              Measurement(rate: Double(read) / (reading / .seconds(1)))
            ))
        }
      }
      let size = try await pool.query("SELECT pg_database_size(current_database())")
        .decodeOnly(Int.self)
      return kinds.map { kind in
        BenchResult(
          name: kind.rawValue,
          limitName: "reading all entries in their order and hashing their bodies",
          goal: nil, rounds: figures[kind] ?? [],
          memory: ProcessMemory.peak(of: ProcessInfo.processInfo.processIdentifier),
          database: size)
      }
    }
  }

  private func replay(_ ledger: Ledger, _ kind: Kind, entries: Int) async throws {
    switch kind {
    case .audited:
      let audit = try await ledger.auditor.audit()
      guard audit.isClean, audit.entries == entries, audit.lines == customers else {
        throw BenchError.wrongAnswer("an audit: \(audit.differences.prefix(3))")
      }
    case .accounts:
      var audit = LedgerAudit()
      try await ledger.auditor.auditAccounts(&audit)
      guard audit.isClean, audit.accountEntries == entries else {
        throw BenchError.wrongAnswer("an audit of accounts: \(audit.differences.prefix(3))")
      }
    case .compared:
      let (comparison, _) = try await ledger.auditor.compare(
        with: .presentRule(.standard), in: .all, at: .now
      ) { _ in }
      guard !comparison.hasDifferences, comparison.originalTransactions == customers else {
        throw BenchError.wrongAnswer("\(comparison.total.charges) charges have other owners")
      }
    }
  }

  private func fill(_ shop: SampleShop) async throws {
    logger.notice("Recording customers", metadata: ["count": "\(customers)"])
    let people = (1...customers).map(SampleCustomer.init)
    _ = try await Load.measure(people, concurrency: Self.concurrency) { customer in
      let answer = try await shop.assembly.intake.submit(customer.request(at: shop.appStore))
      // The first month is over.
      guard case .verified(let verified) = answer, verified.transactions.count == 1 else {
        throw BenchError.wrongAnswer("submission \(customer.number): \(answer)")
      }
      _ = try await shop.assembly.notifications.receive(
        shop.appStore.notification(of: customer, period: 1))
    }
  }

  private func timed<Value>(
    _ body: () async throws -> Value
  ) async throws -> (Value, Duration) {
    let start = ContinuousClock.now
    let value = try await body()
    return (value, .now - start)
  }

  /// Reads and hashes every entry, and returns their number.
  private static func hash(_ table: EntryTable, in pool: ConnectionPool) async throws -> Int {
    var (total, chain, number) = (0, table.start, 0)
    while true {
      let entries = try await pool.query(
        """
        SELECT \(unescaped: table.chain)::text, number, \(unescaped: table.body), hash FROM tenure.\(unescaped: table.name)
        WHERE \(unescaped: table.condition)
          AND (\(unescaped: table.chain), number)
            > (\(chain)::\(unescaped: table.type), \(number))
        ORDER BY \(unescaped: table.chain), number LIMIT \(page)
        """
      ).decode(String.self, Int.self, CompressedText.self, [UInt8].self)
      guard let last = entries.last else { return total }
      for (_, _, body, hash) in entries {
        var digest = SHA256()
        digest.update(data: hash)
        digest.update(data: Data(body.text.utf8))
        _ = digest.finalize()
      }
      (total, chain, number) = (total + entries.count, last.0, last.1)
    }
  }
}

/// A table of entries, and the column with the chain's name.
private struct EntryTable {
  var name: String
  var chain: String
  var type: String
  /// Before all chains.
  var start: String
  /// The column of a ``CompressedText``.
  var body = "body"
  var condition = "true"
}

extension AuditBenchmark.Kind {
  fileprivate var entries: EntryTable {
    switch self {
    case .audited, .compared:
      EntryTable(
        name: "ledger_entry", chain: "original_transaction_id", type: "text", start: "",
        condition: "environment = 'production'")
    case .accounts:
      EntryTable(
        name: "account_entry", chain: "account_key", type: "uuid",
        start: "00000000-0000-0000-0000-000000000000", body: "convert_to(body, 'UTF8')")
    }
  }
}
