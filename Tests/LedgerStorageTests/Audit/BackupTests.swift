import Foundation
import Logging
import Postgres
import PrivatePostgres
import ScratchDatabases
import Secrets
import Subscriptions
import Testing

@testable import LedgerStorage

/// A backup by pg_dump, restored by pg_restore on another server: as the article on operating says.
@Suite(
  .disabled(
    if: ScratchPlace.environment.isDistributed,
    "Of a Citus each node is backed up: a dump of the coordinator has no shards."))
struct BackupTests {
  private static let quiet = Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() })

  private static func run(_ command: String...) throws {
    let process = Process()
    process.executableURL = URL(filePath: "/usr/bin/env")
    process.arguments = command
    let errors = Pipe()
    process.standardError = errors
    try process.run()
    let messages = try errors.fileHandleForReading.readToEnd() ?? Data()
    process.waitUntilExit()
    #expect(process.terminationStatus == 0, "\(String(decoding: messages, as: UTF8.self))")
  }

  /// Runs a body on a backup, restored on a separate server.
  private static func withRestored(
    _ file: URL, _ body: (Ledger) async throws -> Void
  ) async throws {
    let directory = FileManager.default.temporaryDirectory
      .appending(path: "tenure-restored-\(UUID().uuidString)")
    let server = try await PrivatePostgres.start(in: directory, options: .temporary)
    do {
      let maintenance = ConnectionPool(
        configuration: .init(uri: Secret(await server.uri())), logger: quiet)
      // A dump of one database has no roles.
      try await maintenance.runScript(
        "CREATE ROLE tenure_program NOLOGIN; CREATE ROLE tenure_reader NOLOGIN")
      try await maintenance.runScript("CREATE DATABASE restored")
      await maintenance.close()
      let uri = await server.uri(database: "restored")
      try run(
        "pg_restore", "--exit-on-error", "--no-owner", "--dbname", uri,
        file.path(percentEncoded: false))
      let pool = ConnectionPool(configuration: .init(uri: Secret(uri)), logger: quiet)
      do {
        try await body(Ledger(database: pool))
        await pool.close()
      } catch {
        await pool.close()
        throw error
      }
    } catch {
      await server.stop()
      throw error
    }
    await server.stop()
  }

  private static func sell(_ number: Int, in ledger: Ledger) async throws {
    let line = OriginalTransactionKey(
      .production, OriginalTransactionID(rawValue: "\(1000 + number)"))
    let id = TransactionID(rawValue: "\(number)")
    try await ledger.submit(
      [charge(id, on: Double(number), line: line), status(true, on: Double(number), line: line)],
      claiming: [key(id, line: line)], by: "account \(number)", on: Double(number), terms: .shop)
  }

  private static func page(
    _ ledger: Ledger, after cursor: FeedCursor? = nil, limit: Int = 1000
  ) async throws -> FeedPage {
    guard case .page(let page) = try await ledger.events.events(after: cursor, limit: limit) else {
      throw CancellationError()
    }
    return page
  }

  private static func jobs(_ ledger: Ledger) async throws -> [String] {
    try await ledger.database.query(
      "SELECT kind || ' ' || subject || ' ' || run_at FROM tenure.job ORDER BY 1"
    ).decode(String.self).map(\.self)
  }

  @Test func `what is restored is whole, and goes on where it was`() async throws {
    try await withLedger { ledger in
      _ = try await ledger.products.describe(
        Product(id: "monthly", validFrom: start, type: .autoRenewable, entitlements: ["premium"]))
      for number in 1...4 { try await Self.sell(number, in: ledger) }
      let begin = try await Self.page(ledger, limit: 3).next
      let end = try await Self.page(ledger)
      let file = FileManager.default.temporaryDirectory
        .appending(path: "tenure-\(UUID().uuidString).dump")
      defer { try? FileManager.default.removeItem(at: file) }
      try Self.run(
        "pg_dump", "--format", "custom", "--file", file.path(percentEncoded: false), "--dbname",
        ledger.database.uri)
      let (rest, jobs) = (try await Self.page(ledger, after: begin), try await Self.jobs(ledger))
      // Everything recorded after the backup is lost, even if its events were read.
      for number in 5...6 { try await Self.sell(number, in: ledger) }
      let future = try await Self.page(ledger).next
      #expect(future.position > end.next.position)

      try await Self.withRestored(file) { restored in
        #expect(try await restored.auditor.audit().differences == [])
        #expect(
          try await SchemaMigrator(database: restored.database, logger: Self.quiet).check()
            == .current)
        // Cursors from before go on, those from after are known as such.
        #expect(try await Self.page(restored, after: begin) == rest)
        #expect(try await Self.page(restored, after: end.next).events == [])
        #expect(try await restored.events.events(after: future, limit: 10) == .cursorUnknown)
        // Pending jobs are still pending.
        #expect(try await Self.jobs(restored) == jobs)
        // Numbering continues, and Apple sends the lost notifications again.
        for number in 5...8 { try await Self.sell(number, in: restored) }
        #expect(
          try await restored.owner(of: "5", line: OriginalTransactionKey(.production, "1005"))
            == "account 5")
        let after = try await Self.page(restored, after: end.next)
        #expect(after.next.position > future.position)
        // Another event has this position now.
        #expect(try await restored.events.events(after: future, limit: 10) == .cursorUnknown)
        #expect(try await restored.auditor.audit().differences == [])
        // The privileges are the same as before.
        let rights = try await restored.database.query(
          """
          SELECT has_table_privilege('tenure_program', 'tenure.ledger_entry', 'INSERT'),
            has_table_privilege('tenure_program', 'tenure.ledger_entry', 'UPDATE, DELETE'),
            has_table_privilege('tenure_reader', 'tenure.ledger_entry', 'SELECT'),
            has_table_privilege('tenure_reader', 'tenure.body', 'SELECT')
          """
        ).decodeOnly(Bool.self, Bool.self, Bool.self, Bool.self)
        #expect(rights == (true, false, true, false))
      }
    }
  }
}
