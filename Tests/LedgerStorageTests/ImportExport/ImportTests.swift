import Foundation
import Postgres
import ScratchDatabases
import Subscriptions
import Testing

@testable import LedgerStorage

@Suite("Owners that another backend had")
struct ImportTests {
  private func owner(
    _ account: String, _ line: OriginalTransactionKey = originalKey, asOf: Double = 40,
    receipt: String? = nil,
    transaction: TransactionID? = nil
  ) -> ImportedOwner {
    ImportedOwner(
      line: line, accountID: account, asOf: day(asOf), transactionID: transaction,
      receipt: receipt)
  }

  private func line(_ number: Int) -> OriginalTransactionKey {
    OriginalTransactionKey(.production, OriginalTransactionID("\(5000 + number)"))
  }

  /// A ledger that knows a product.
  private func withShop(_ body: @Sendable (Ledger) async throws -> Void) async throws {
    try await withLedger { ledger in
      _ = try await ledger.products.describe(
        Product(id: "monthly", validFrom: start, type: .autoRenewable, entitlements: ["premium"]))
      try await body(ledger)
    }
  }

  /// Records the evidence of a poll.
  private func receive(_ evidence: [Evidence], on date: Double, _ ledger: Ledger) async throws {
    _ = try await ledger.polls.record(
      evidence, polledAs: "poll", about: nil, upTo: nil, at: day(date), terms: .shop)
  }

  private func entries(_ ledger: Ledger) async throws -> Int {
    try await ledger.database.query("SELECT count(*) FROM tenure.ledger_entry")
      .decodeOnly(Int.self)
  }

  @Test("an imported owner has no access until Apple reports the purchase")
  func owned() async throws {
    try await withShop { ledger in
      let verdicts = try await ledger.imports.importOwners(
        [owner("anna"), owner("ben", line(1))], from: "owners.csv", terms: .shop, at: day(41))
      #expect(verdicts == [.recorded, .recorded])
      #expect(try await ledger.holdings.holdings(of: "anna").holdings.isEmpty)
      #expect(
        try await ledger.jobs.jobs(named: "production/1000", at: day(41)).map(\.priority) == [2])
      var progress = try await ledger.exports.importProgress()
      #expect((progress.lines, progress.verified, progress.waiting) == (2, 0, 2))

      try await receive([charge("1", on: 30), status(true, on: 41)], on: 41.1, ledger)
      #expect(try await ledger.owner(of: "1") == "anna")
      #expect(try await ledger.holdings.holdings(of: "anna").holdings.count == 1)
      progress = try await ledger.exports.importProgress()
      #expect((progress.lines, progress.verified, progress.waiting) == (2, 1, 1))
      // A renewal follows the rule, and a claim of an imported charge finds it taken.
      try await ledger.submit(
        [charge("2", on: 60)], claiming: [key("1"), key("2")], by: "cora", on: 60.1)
      #expect(try await ledger.owner(of: "1") == "anna")
      #expect(try await ledger.owner(of: "2") == "anna")
      #expect(try await ledger.auditor.audit().differences == [])
    }
  }

  @Test("an entry names the file, and is shown in the charge's history")
  func source() async throws {
    try await withShop { ledger in
      _ = try await ledger.imports.importOwners(
        [owner("anna")], from: "owners.csv", terms: .shop, at: day(41))
      let history = try await ledger.ownership.history(of: [originalKey])
      #expect(history.map(\.source) == [EntrySource(.import, id: "owners.csv")])
      #expect(history.map(\.item.content.kind) == [.ownerOverride])
    }
  }

  @Test("the same once more appends nothing, whatever Apple has reported since")
  func idempotent() async throws {
    try await withShop { ledger in
      let owners = (0..<30).map { owner("customer-\($0 % 20)", line($0)) }
      func again(_ asOf: Double, on date: Double) async throws -> [ImportVerdict] {
        var owners = owners
        for index in owners.indices { owners[index].asOf = day(asOf) }
        return try await ledger.imports.importOwners(owners, from: "f", terms: .shop, at: day(date))
      }
      #expect(try await again(40, on: 41) == Array(repeating: .recorded, count: 30))
      let before = try await entries(ledger)
      #expect(try await again(40, on: 42) == Array(repeating: .known, count: 30))
      #expect(try await entries(ledger) == before)

      // Even a newer file contains nothing new about a current subscription.
      try await receive([charge("1", on: 30, line: line(0))], on: 42, ledger)
      let known = try await entries(ledger)
      #expect(try await again(40, on: 43) == Array(repeating: .known, count: 30))
      #expect(try await entries(ledger) == known)
      let newer = try await again(45, on: 45)
      #expect(newer[0] == .known)
      #expect(newer[1...].allSatisfy { $0 == .recorded })
      #expect(try await again(45, on: 46).allSatisfy { $0 == .known })
      #expect(try await ledger.auditor.audit().differences == [])
    }
  }

  @Test("a newer file assigns purchases since the older one that have no owner")
  func newerFile() async throws {
    try await withShop { ledger in
      _ = try await ledger.imports.importOwners(
        [owner("anna", asOf: 10)], from: "f", terms: .shop, at: day(11))
      // A customer has bought again after a lapse: at the other backend, as it turns out.
      try await receive([charge("1", on: 0), charge("2", on: 40)], on: 41, ledger)
      #expect(try await ledger.owner(of: "2") == nil)
      #expect(
        try await ledger.imports.importOwners(
          [owner("ben", asOf: 42)], from: "f", terms: .shop, at: day(43)) == [.recorded])
      #expect(try await ledger.owner(of: "1") == "anna")
      #expect(try await ledger.owner(of: "2") == "ben")
      #expect(try await ledger.auditor.audit().differences == [])
    }
  }

  @Test("whose line it is in Tenure stays so, and the account of a refused line is not made")
  func conflicts() async throws {
    try await withShop { ledger in
      try await ledger.submit([charge("1", on: 30)], claiming: [key("1")], by: "ben", on: 30.1)
      _ = try await ledger.imports.importOwners(
        [owner("anna", line(1))], from: "f", terms: .shop, at: day(41))
      let before = try await entries(ledger)
      for isDryRun in [true, false] {
        let verdicts = try await ledger.imports.importOwners(
          [owner("cora"), owner("cora", line(1)), owner("ben")], from: "f", isDryRun: isDryRun,
          terms: .shop, at: day(42))
        #expect(
          verdicts == [
            .ownedByAnotherAccount("ben"), .ownedByAnotherAccount("anna"), .known,
          ])
      }
      #expect(try await entries(ledger) == before)
      #expect(try await ledger.accounts.account("cora") == nil)
    }
  }

  @Test("a dry run says the same and writes nothing")
  func dryRun() async throws {
    try await withShop { ledger in
      try await receive([charge("1", on: 30)], on: 31, ledger)
      let before = try await entries(ledger)
      let owners = [owner("anna"), owner("ben", line(1))]
      for _ in 0..<2 {
        let verdicts = try await ledger.imports.importOwners(
          owners, from: "f", isDryRun: true, terms: .shop, at: day(41))
        #expect(verdicts == [.recorded, .recorded])
      }
      #expect(try await entries(ledger) == before)
      #expect(try await ledger.accounts.account("anna") == nil)
      #expect(
        try await ledger.imports.importOwners(owners, from: "f", terms: .shop, at: day(41))
          == [.recorded, .recorded])
      #expect(try await ledger.owner(of: "1") == "anna")
    }
  }

  @Test("who was erased gets nothing, and leaves no receipt behind")
  func erased() async throws {
    try await withShop { ledger in
      _ = try await ledger.imports.importOwners(
        [owner("anna", receipt: "cmVjZWlwdA==")], from: "f", terms: .shop, at: day(41))
      _ = try await ledger.accounts.erase("anna", by: support, at: day(42))
      let sources = try await ledger.database.query("SELECT count(*) FROM tenure.imported_source")
      #expect(try sources.decodeOnly(Int.self) == 0)
      let key = try #require(
        try await ledger.ownership.original(of: originalKey)?.line.history.importedOverrides.first?
          .account)
      let verdicts = try await ledger.imports.importOwners(
        [owner("anna"), owner("erased-\(key.rawValue.uuidString.lowercased())", line(1))],
        from: "f", terms: .shop, at: day(43))
      guard case .ownedByAnotherAccount = verdicts[0] else {
        Issue.record("\(verdicts[0])")
        return
      }
      #expect(verdicts[1] == .accountErased)
      #expect(try await ledger.auditor.audit().differences == [])
    }
  }

  @Test("two imports at once of the same lines and accounts come to one")
  func concurrent() async throws {
    try await withShop { ledger in
      let owners = (0..<200).map { owner("customer-\($0 % 50)", line($0)) }
      try await withThrowingTaskGroup(of: Void.self) { group in
        for part in [owners, owners.reversed(), owners.shuffled()] {
          group.addTask {
            let verdicts = try await ledger.imports.importOwners(
              part, from: "f", terms: .shop, at: day(41))
            #expect(verdicts.allSatisfy { $0 == .recorded || $0 == .known })
          }
        }
        try await group.waitForAll()
      }
      #expect(try await entries(ledger) == 200)
      #expect(try await ledger.exports.importProgress().lines == 200)
      #expect(try await ledger.auditor.audit().differences == [])
    }
  }

  @Test("a line of which Apple knows nothing is given up, listed, and can be asked about again")
  func unknownToApple() async throws {
    try await withShop { ledger in
      _ = try await ledger.imports.importOwners(
        [owner("anna", receipt: "cmVjZWlwdA==", transaction: "77")], from: "f", terms: .shop,
        at: day(41))
      let asked = try #require(try await ledger.polls.pollRequest(originalKey))
      #expect(asked.isUnknown)
      #expect(asked.imported?.transactionID == "77")
      #expect(asked.imported?.receipt == "cmVjZWlwdA==")
      let job = try #require(
        try await ledger.jobs.claimJobs(
          limits: [.polls: 1], worker: "w", at: day(41), lease: .seconds(60)
        ).first)
      try await ledger.polls.passOver(job, because: "Apple knows no such id.", at: day(41))
      let progress = try await ledger.exports.importProgress()
      #expect((progress.waiting, progress.unverifiable) == (0, 1))
      let listed = try await ledger.exports.page(of: .unverified).rows.map {
        exported($0, .unverified)
      }
      #expect(listed.map { $0["reason"] } == ["Apple knows no such id."])
      #expect(listed.map { $0["account_id"] } == ["anna"])
      #expect(listed.first?["given_up_at"] == "\(day(41))")
      #expect(try await ledger.jobs.restartJobs(.allDiscarded, at: day(42)) == 1)
      #expect(try await ledger.exports.importProgress().waiting == 1)
    }
  }

  @Test("an answer with other original transactions only gives the poll up")
  func otherLines() async throws {
    try await withShop { ledger in
      _ = try await ledger.imports.importOwners(
        [owner("anna")], from: "f", terms: .shop, at: day(41))
      let job = try #require(
        try await ledger.jobs.claimJobs(
          limits: [.polls: 1], worker: "w", at: day(41), lease: .seconds(60)
        ).first)
      _ = try await ledger.polls.record(
        [charge("9", on: 30, line: line(1))], polledAs: "poll",
        about: PollStore.PolledOriginalTransaction(originalKey, of: "a.b", job: job), upTo: nil,
        at: day(41), terms: .shop)
      let jobs = try await ledger.jobs.jobs(named: "production/1000", at: day(41))
      #expect(jobs.map(\.state) == [.discarded])
      #expect(try await ledger.exports.importProgress().unverifiable == 1)
    }
  }

  @Test("an owner from whom a claim could take the charge is recorded, and keeps it then")
  func provisionalOwner() async throws {
    try await withShop { ledger in
      // Apple's record repeats anna's old token, and no account has claimed the charge yet.
      let anna = try await ledger.accounts.findOrCreateAccount("anna", at: day(29))
      try await receive([charge("0", on: -40, token: anna.appAccountToken)], on: 30, ledger)
      try await receive([charge("1", on: 30, token: anna.appAccountToken)], on: 30, ledger)
      #expect(try await ledger.owner(of: "1") == "anna")
      #expect(
        try await ledger.imports.importOwners([owner("anna")], from: "f", terms: .shop, at: day(41))
          == [.recorded])
      try await ledger.submit([charge("1", on: 30)], claiming: [key("1")], by: "ben", on: 42)
      #expect(try await ledger.owner(of: "1") == "anna")
      #expect(try await ledger.auditor.audit().differences == [])
    }
  }

  @Test("a renewal that is reported before the poll leaves the poll as it is")
  func renewedMeanwhile() async throws {
    try await withShop { ledger in
      _ = try await ledger.imports.importOwners(
        [owner("anna")], from: "f", terms: .shop, at: day(41))
      // The renewal alone, after the day of the file: its owner is not known yet.
      try await receive([charge("2", on: 60)], on: 59.5, ledger)
      #expect(try await ledger.owner(of: "2") == nil)
      let runAt = try await ledger.database.query(
        "SELECT run_at FROM tenure.job WHERE kind = 'poll_status'"
      ).decodeOnly(Timestamp.self)
      #expect(runAt == day(41))
      try await receive([charge("1", on: 30), charge("2", on: 60)], on: 59.6, ledger)
      #expect(try await ledger.owner(of: "2") == "anna")
      #expect(try await ledger.auditor.audit().differences == [])
    }
  }

  @Test("two spellings of one character are two accounts")
  func spellings() async throws {
    try await withShop { ledger in
      let names = ["jos\u{e9}", "jose\u{301}"]
      let owners = [owner(names[0], line(0)), owner(names[1], line(1))]
      for verdict in [ImportVerdict.recorded, .known] {
        #expect(
          try await ledger.imports.importOwners(owners, from: "f", terms: .shop, at: day(41))
            == [verdict, verdict])
      }
      for number in 0...1 {
        try await receive(
          [charge(TransactionID("\(number)"), on: 30, line: line(number))], on: 42, ledger)
        let held = try await ledger.holdings.holdings(of: names[number]).holdings
        #expect(held.map(\.charge.line) == [line(number)])
      }
    }
  }

  @Test("a corrected file counts as long as Apple has reported nothing, and is polled again")
  func corrected() async throws {
    try await withShop { ledger in
      func imported(_ bundleID: String, asOf: Double) async throws -> [ImportVerdict] {
        var owner = owner("anna", asOf: asOf)
        owner.bundleID = bundleID
        return try await ledger.imports.importOwners(
          [owner], from: "f", terms: .shop, at: day(asOf + 1))
      }
      #expect(try await imported("com.exmaple", asOf: 40) == [.recorded])
      let job = try #require(
        try await ledger.jobs.claimJobs(
          limits: [.polls: 1], worker: "w", at: day(41), lease: .seconds(60)
        ).first)
      try await ledger.polls.passOver(job, because: "No such app is served here.", at: day(41))
      #expect(try await ledger.exports.importProgress().unverifiable == 1)
      #expect(try await imported("com.example", asOf: 45) == [.recorded])
      #expect(try await ledger.polls.pollRequest(originalKey)?.source.bundleID == "com.example")
      #expect(try await ledger.exports.importProgress().waiting == 1)
    }
  }

  @Test("a guest's line is the member's, whichever of them a file names")
  func mergedGuest() async throws {
    try await withShop { ledger in
      try await ledger.submit([charge("1", on: 30)], claiming: [key("1")], by: "guest", on: 30.1)
      _ = try await ledger.accounts.findOrCreateAccount("anna", at: day(30))
      _ = try await ledger.accounts.merge(
        "guest", into: "anna", by: support, terms: .shop, at: day(31))
      for name in ["guest", "anna"] {
        #expect(
          try await ledger.imports.importOwners(
            [owner(name, asOf: 70)], from: "f", terms: .shop, at: day(71)) != [
              .ownedByAnotherAccount("anna")
            ], "\(name)")
      }
      #expect(
        try await ledger.imports.importOwners(
          [owner("ben", asOf: 70)], from: "f", terms: .shop, at: day(71))
          == [.ownedByAnotherAccount("anna")])
      #expect(try await ledger.auditor.audit().differences == [])
    }
  }

  @Test("who is erased while a file is taken in leaves no receipt behind")
  func erasedMeanwhile() async throws {
    try await withShop { ledger in
      _ = try await ledger.accounts.findOrCreateAccount("anna", at: day(30))
      // Another transaction is writing another original transaction of the file.
      try await ledger.database.withTransaction { other in
        _ = try await other.query(
          """
          INSERT INTO tenure.original_transaction (environment, original_transaction_id,
            head_number, head_hash, head_recorded_at, head_stored_at)
          VALUES ('production', \(line(1).originalTransactionID), 1,
            decode(repeat('00', 32), 'hex'), now(), now())
          """)
        async let imported = ledger.imports.importOwners(
          [owner("anna", receipt: "cmVjZWlwdA=="), owner("ben", line(1))], from: "f",
          terms: .shop, at: day(41))
        try await ledger.waitForALock()
        async let erased = ledger.accounts.erase("anna", by: support, at: day(41))
        try await ledger.waitForALock(
          of: 2, or: "NOT EXISTS (SELECT FROM tenure.account WHERE account_id = 'anna')")
        await other.rollBack()
        _ = try await (imported, erased)
      }
      let sources = try await ledger.database.query("SELECT count(*) FROM tenure.imported_source")
      #expect(try sources.decodeOnly(Int.self) == 0)
    }
  }

  @Test("rebuilding writes the placements of lines again")
  func rebuild() async throws {
    try await withShop { ledger in
      _ = try await ledger.imports.importOwners(
        [owner("anna")], from: "f", terms: .shop, at: day(41))
      try await receive([charge("1", on: 30)], on: 41, ledger)
      try await ledger.database.execute("UPDATE tenure.ownership_action SET effective_from = now()")
      #expect(try await ledger.auditor.audit().isClean == false)
      #expect(try await ledger.auditor.rebuild().rewritten == 1)
      #expect(try await ledger.auditor.audit().differences == [])
    }
  }

  @Test("owners are exported page by page, reported by Apple or not")
  func export() async throws {
    try await withShop { ledger in
      let count = ExportStore.exportPage + 10
      let owners = (0..<count).map { owner("customer-\($0)", line($0)) }
      _ = try await ledger.imports.importOwners(owners, from: "f", terms: .shop, at: day(41))
      try await ledger.submit(
        [charge("1", on: 30)], claiming: [key("1")], by: "anna", on: 30.1)
      try await receive(
        [charge("2", on: 30, line: OriginalTransactionKey(.production, "1"))], on: 31, ledger)
      var (found, place): ([OriginalTransactionKey: String], [String]?) = ([:], nil)
      repeat {
        let page = try await ledger.exports.page(of: .owners, after: place)
        for row in page.rows.map({ exported($0, .owners) }) {
          let line = try #require(
            OriginalTransactionKey(
              subject: "\(row["environment"] ?? "")/\(row["original_transaction_id"] ?? "")"))
          found[line] = row["account_id"]
        }
        place = page.next
      } while place != nil
      var expected = Dictionary(uniqueKeysWithValues: owners.map { ($0.line, $0.accountID) })
      expected[originalKey] = "anna"
      #expect(found == expected, "the unclaimed one has no owner")
      let charges = try await ledger.exports.page(of: .charges)
      #expect(charges.next == nil)
      #expect(Set(charges.rows.map { exported($0, .charges)["account_id"] }) == ["anna", nil])
      let accounts = try await ledger.exports.exportAccounts(after: nil, limit: 100)
      #expect(accounts.rows.count == 100)
      #expect(accounts.next == accounts.rows.last)
    }
  }
}
