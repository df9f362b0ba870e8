import Crypto
import Foundation
import JSONText
import Postgres
import Subscriptions
import Testing

@testable import LedgerStorage

@Suite("What is exported")
struct ExportTests {
  /// All rows by column, page by page, with how many each page has.
  private func pages(of table: ExportTable, _ ledger: Ledger) async throws -> [[[String: String]]] {
    var (pages, place): ([[[String: String]]], [String]?) = ([], nil)
    repeat {
      let page = try await ledger.exports.page(of: table, after: place)
      pages.append(page.rows.map { exported($0, table) })
      place = page.next
    } while place != nil
    return pages
  }

  @Test func `entries have all that their hashes are over`() async throws {
    try await withLedger { ledger in
      try await ledger.submit(
        [charge("1", on: 0), status(false, on: 10)], claiming: [key("1")], by: "anna", on: 10)
      let other = OriginalTransactionKey(.sandbox, "2000")
      try await ledger.submit(
        [charge("2", on: 1, line: other)], claiming: [key("2", line: other)], by: "ben", on: 11)
      #expect(try await ledger.auditor.audit().isClean)
      let entries = try await pages(of: .entries, ledger).flatMap(\.self)
      func line(_ entry: [String: String]) -> String {
        "\(entry["environment"] ?? "")/\(entry["original_transaction_id"] ?? "")"
      }
      #expect(Set(entries.map(line)) == [originalKey.subject, other.subject])
      var hashes: [String: String] = [:]
      for entry in entries {
        let last = hashes[line(entry)].map(Self.bytes) ?? [UInt8](repeating: 0, count: 32)
        var hasher = SHA256()
        hasher.update(data: last)
        func milliseconds(_ column: String) -> String {
          entry[column].flatMap { Timestamp(rfc3339: $0) }.map { "\($0.milliseconds)" } ?? ""
        }
        let fields = [
          entry["format"], entry["environment"], entry["original_transaction_id"], entry["number"],
          milliseconds("recorded_at"), milliseconds("stored_at"), entry["source"],
          entry["source_id"], entry["body"],
        ].map { $0 ?? "" }
        for field in fields { hasher.update(data: Data("\(field.utf8.count):\(field)".utf8)) }
        let hash = try #require(entry["hash"])
        #expect(Array(hasher.finalize()) == Self.bytes(hash), "\(entry)")
        hashes[line(entry)] = hash
      }
      let checkpoint = try #require(
        try await ledger.auditor.checkpoint(age: .zero - .minutes(1)).checkpoint)
      let mark = try #require(try await pages(of: .checkpoints, ledger).flatMap(\.self).last)
      #expect(mark["number"] == "1")
      #expect(mark["digest"] == checkpoint.digest.hexadecimal)
      let storedBefore = try #require(mark["stored_before"])
      #expect(entries.allSatisfy { $0["stored_at", default: "~"] < storedBefore })
      #expect(try await ledger.auditor.audit().isClean)
    }
  }

  private static func bytes(_ hexadecimal: String) -> [UInt8] {
    let digits = Array(hexadecimal)
    return stride(from: 0, to: digits.count, by: 2).compactMap {
      UInt8(String(digits[$0...($0 + 1)]), radix: 16)
    }
  }

  @Test func `notifications come with their bodies, as many as fit, or with their hashes`()
    async throws
  {
    try await withLedger { ledger in
      let bodies = ["short", String(repeating: "ä", count: 40), "x", "gone", "end"]
      for (index, body) in bodies.enumerated() {
        _ = try await ledger.notifications.store(
          NewNotification(
            id: "n\(index)", version: .two, receivedAt: day(Double(index)), body: body,
            notificationType: "TEST", environment: .sandbox, originalTransactionID: "1000",
            signedAt: start),
          processAt: nil)
      }
      _ = try await ledger.database.execute(
        """
        UPDATE tenure.body SET content = NULL, pruned_at = \(day(9)) WHERE sha256 = sha256('gone')
        """)
      let found = try await pages(of: .notifications(bodyBytes: 7), ledger)
      // A row longer than a page comes alone, and deleted rows take no place.
      #expect(
        found.map { $0.map { $0["notification_id"] } } == [["n0"], ["n1"], ["n2", "n3", "n4"]])
      let rows = found.flatMap(\.self)
      #expect(rows.map { $0["body"] } == ["short", bodies[1], "x", nil, "end"])
      #expect(rows.map { $0["bytes"] } == bodies.map { "\($0.utf8.count)" })
      #expect(
        rows.map { Self.bytes($0["sha256"] ?? "") }
          == bodies.map { Array(SHA256.hash(data: Data($0.utf8))) })
      #expect(rows.map { $0["aged_out_at"] } == [nil, nil, nil, "\(day(9))", nil])
      #expect(try await pages(of: .notifications, ledger) == [rows])
    }
  }

  @Test func `a page that is full is followed by another`() async throws {
    try await withLedger { ledger in
      let count = ExportStore.exportPage + 3
      _ = try await ledger.database.execute(
        """
        INSERT INTO tenure.notification (notification_id, version, received_at, body_sha256)
        SELECT 'n' || n, 2, now(), sha256('b') FROM generate_series(1, \(count)) AS n
        """)
      _ = try await ledger.database.execute(
        """
        INSERT INTO tenure.app_store_write_back (environment, original_transaction_id, kind, sent_at,
          outcome, reason)
        SELECT 'production', n % 7, 'ownership', now(), 'skipped', 'unowned'
        FROM generate_series(1, \(count)) AS n
        """)
      _ = try await ledger.database.execute(
        """
        INSERT INTO tenure.exchange_rate (reporting_currency, currency, valid_from, rate,
          recorded_at)
        SELECT 'EUR', 'USD', date '2020-01-02', 1.10,
          timestamptz '2026-01-31 09:30:00.123456Z' + n * interval '1 microsecond'
        FROM generate_series(0, \(count - 1)) AS n
        """)
      let notifications = try await pages(of: .notifications, ledger)
      #expect(notifications.map(\.count) == [ExportStore.exportPage, 3])
      #expect(Set(notifications.flatMap { $0.map { $0["notification_id"] } }).count == count)
      let writeBacks = try await pages(of: .writeBacks, ledger)
      #expect(writeBacks.map(\.count) == [ExportStore.exportPage, 3])
      #expect(Set(writeBacks.flatMap { $0.map { $0["write_back_id"] } }).count == count)
      let rates = try await pages(of: .rates, ledger)
      #expect(rates.map(\.count) == [ExportStore.exportPage, 3])
      #expect(Set(rates.flatMap { $0.map { $0["recorded_at"] } }).count == count)
      #expect(
        rates.first?.first == [
          "reporting_currency": "EUR", "currency": "USD", "valid_from": "2020-01-02",
          "rate": "1.10", "recorded_at": "2026-01-31T09:30:00.123456Z",
        ])
    }
  }
}

/// An exported row by column, without the empty values.
func exported(_ row: [String?], _ table: ExportTable) -> [String: String] {
  Dictionary(uniqueKeysWithValues: zip(table.columns, row)).compactMapValues(\.self)
}
