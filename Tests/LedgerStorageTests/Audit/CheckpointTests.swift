import Foundation
import JSONText
import Postgres
import ScratchDatabases
import Subscriptions
import Testing

@testable import LedgerStorage

@Suite("Checkpoints")
struct CheckpointTests {
  /// Makes a checkpoint over everything that is there.
  private func checkpoint(_ ledger: Ledger) async throws -> (
    checkpoint: Checkpoint?, audit: LedgerAudit
  ) {
    // Dates are whole milliseconds.
    try await Task.sleep(for: .milliseconds(3))
    return try await ledger.auditor.checkpoint(age: .zero)
  }

  private func sell(_ number: Int, in ledger: Ledger) async throws {
    let line = OriginalTransactionKey(.production, OriginalTransactionID(rawValue: "\(number)"))
    let id = TransactionID(rawValue: "\(number)")
    try await ledger.submit(
      [charge(id, on: 0, line: line)], claiming: [key(id, line: line)], by: "account \(number)",
      on: 0.1, terms: .shop)
  }

  @Test func `each names the one before, and there is none without news`() async throws {
    try await withLedger { ledger in
      #expect(try await checkpoint(ledger).checkpoint == nil)
      try await sell(1, in: ledger)
      // Younger entries may belong to an open transaction.
      #expect(try await ledger.auditor.checkpoint().checkpoint == nil)
      let first = try #require(
        try await checkpoint(ledger).checkpoint)
      #expect((first.number, first.chains) == (1, 2))
      #expect(first.previous == [UInt8](repeating: 0, count: 32))
      #expect(try await checkpoint(ledger).checkpoint == nil)
      try await sell(2, in: ledger)
      let second = try #require(
        try await checkpoint(ledger).checkpoint)
      #expect((second.number, second.chains) == (2, 4))
      #expect(second.previous == first.digest)
      #expect(second.entries == first.entries * 2)
      #expect(try await ledger.auditor.checkpoints(limit: 9) == [second, first])
      #expect(try await ledger.auditor.checkpoints(before: 2, limit: 9) == [first])
      let kept = try JSONDecoder().decode(Checkpoint.self, from: Data(second.text.utf8))
      #expect(kept == second)
      #expect(try await ledger.auditor.audit(against: [first, second]).differences == [])
    }
  }

  @Test func `what is new is verified first`() async throws {
    try await withLedger { ledger in
      try await sell(1, in: ledger)
      _ = try await checkpoint(ledger)
      try await sell(2, in: ledger)
      try await ledger.database.runScript(
        "UPDATE tenure.holding SET ends_at = '2099-01-01' WHERE original_transaction_id = '2'")
      let found = try await checkpoint(ledger)
      #expect(found.checkpoint == nil)
      #expect(found.audit.differences.map(\.line?.originalTransactionID) == ["2"])
      _ = try await ledger.auditor.rebuild()
      let mended = try await checkpoint(ledger)
      #expect(mended.checkpoint?.number == 2, "\(mended.audit.differences)")
    }
  }

  @Test(
    "an owner who writes everything anew is found by what was kept elsewhere",
    .disabled(
      if: ScratchPlace.environment.isDistributed,
      "On a Citus the tests' role may not leave out foreign keys."))
  func writtenAnew() async throws {
    try await withLedger { ledger in
      for number in 1...3 { try await sell(number, in: ledger) }
      let checkpoint = try await checkpoint(ledger).checkpoint
      let kept = try #require(checkpoint)
      // The customer and the purchase were never there.
      try await ledger.database.runScript(
        """
        SET session_replication_role = replica;
        DO $$
        DECLARE
          thief uuid := (SELECT account_key FROM tenure.account WHERE account_id = 'account 2');
          part text;
        BEGIN
          FOR part IN
            SELECT DISTINCT table_name FROM information_schema.columns
            JOIN information_schema.tables USING (table_schema, table_name)
            WHERE table_schema = 'tenure' AND column_name = 'original_transaction_id'
              AND table_type = 'BASE TABLE'
          LOOP
            EXECUTE format('DELETE FROM tenure.%I WHERE original_transaction_id = ''2''', part);
          END LOOP;
          FOR part IN
            SELECT DISTINCT table_name FROM information_schema.columns
            JOIN information_schema.tables USING (table_schema, table_name)
            WHERE table_schema = 'tenure' AND column_name = 'account_key'
              AND table_type = 'BASE TABLE'
          LOOP
            EXECUTE format('DELETE FROM tenure.%I WHERE account_key = $1', part) USING thief;
          END LOOP;
          DELETE FROM tenure.published_entitlement WHERE account_id = 'account 2';
          DELETE FROM tenure.charge_lookup WHERE name = '2';
          DELETE FROM tenure.ledger_checkpoint;
        END
        $$
        """)
      _ = try await ledger.auditor.rebuild()
      #expect(try await ledger.auditor.audit().differences == [])
      let found = try await ledger.auditor.audit(against: [kept]).differences.map(\.detail)
      #expect(found.first == "checkpoint 1 is not the one that was kept elsewhere", "\(found)")
      #expect(found.contains { $0.contains("some were removed or changed") })
    }
  }

  @Test func `every leaf of a tree is proven by its path`() {
    for count in 1...20 {
      let texts = (0..<count).map { "leaf \($0)" }
      func tree(tracking tracked: Int) -> HashTree {
        var tree = HashTree()
        for (index, text) in texts.enumerated() { tree.add(text, isTracked: index == tracked) }
        return tree
      }
      var whole = tree(tracking: -1)
      let root = whole.root()
      for index in 0..<count {
        var tracked = tree(tracking: index)
        #expect(tracked.root() == root)
        var node = HashTree.leaf(texts[index])
        for step in tracked.path {
          node = step.isLeft ? HashTree.node(step.hash, node) : HashTree.node(node, step.hash)
        }
        #expect(node == root, "\(index) of \(count)")
      }
    }
  }

  @Test func `a proof is verified with nothing else, in Python too, and a changed one is not`()
    async throws
  {
    try await withLedger { ledger in
      for number in 1...5 { try await sell(number, in: ledger) }
      let line = OriginalTransactionKey(.production, "3")
      let none = try await ledger.auditor.proof(of: line, isProven: true)
      try none.verify()
      #expect(none.checkpoint == nil)
      _ = try await checkpoint(ledger)
      // Not covered yet.
      _ = try await ledger.polls.record(
        [charge("3", on: 0, line: line, asOf: 5, revokedOn: 4)], polledAs: "p", at: day(5),
        terms: .shop)
      let proof = try await ledger.auditor.proof(of: line, isProven: true)
      try proof.verify()
      #expect(proof.covered > 1)
      #expect(String(proof.covered) != proof.entries.last?.fields[3])
      #expect(!proof.path.isEmpty)
      var json = JSONWriter(capacity: 4096)
      proof.write(to: &json)
      let text = json.text
      #expect(try Self.python(text).contains("up to number \(proof.covered)\n"))
      let changes: [(String, String)] = [
        ("submitter", "administrator"), ("\"covered\":\(proof.covered)", "\"covered\":1"),
        ("\"chains\":", "\"chains\":1"), (proof.path[0].hash, proof.entries[0].hash),
        ("\"side\":\"left\"", "\"side\":\"right\""),
      ]
      for (part, other) in changes {
        let changed = text.replacing(part, with: other, maxReplacements: 1)
        #expect(changed != text, "\(part)")
        let decoded = try JSONDecoder().decode(LedgerProof.self, from: Data(changed.utf8))
        #expect(throws: LedgerProof.Fault.self, "\(part)") { try decoded.verify() }
        #expect(throws: Failed.self, "\(part)") { try Self.python(changed) }
      }
    }
  }

  private struct Failed: Error {}

  /// Runs the program of the article *Proving the ledger*.
  private static func python(_ proof: String) throws -> String {
    let root = (0..<4).reduce(URL(filePath: #filePath)) { url, _ in
      url.deletingLastPathComponent()
    }
    let article = try String(
      contentsOf: root.appending(
        path: "Sources/LedgerStorage/LedgerStorage.docc/ProvingTheLedger.md"), encoding: .utf8)
    let program = try #require(
      article.components(separatedBy: "\n```python\n").dropFirst().first?
        .components(separatedBy: "\n```").first)
    let directory = FileManager.default.temporaryDirectory.appending(path: UUID().uuidString)
    try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(at: directory) }
    let file = directory.appending(path: "proof.json")
    try Data(proof.utf8).write(to: file)
    let (process, output) = (Process(), Pipe())
    process.executableURL = URL(filePath: "/usr/bin/env")
    process.arguments = ["python3", "-c", program, file.path(percentEncoded: false)]
    process.standardOutput = output
    process.standardError = Pipe()
    try process.run()
    let printed = try output.fileHandleForReading.readToEnd() ?? Data()
    process.waitUntilExit()
    guard process.terminationStatus == 0 else { throw Failed() }
    return String(decoding: printed, as: UTF8.self)
  }
}
