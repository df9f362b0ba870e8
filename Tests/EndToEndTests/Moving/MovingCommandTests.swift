import Crypto
import Foundation
import LedgerStorage
import Postgres
import ScratchDatabases
import Subscriptions
import Testing

@testable import Bootstrap
@testable import Development
@testable import Intake
@testable import tenure

@Suite("tenure import, export and compare")
struct MovingCommandTests {
  /// The built program with a separate database.
  private struct Program: Sendable {
    var database: ConnectionPool
    var directory: URL

    func callAsFunction(_ arguments: [String]) async throws -> ChildProcess.Outcome {
      try await start(arguments).outcome()
    }

    func start(_ arguments: [String]) throws -> ChildProcess {
      try ChildProcess(
        try TenureProgram.executable, arguments,
        environment: ["DATABASE_URL": database.uri], in: directory)
    }
  }

  private func withProgram(
    _ test: @Sendable (Ledger, URL, _ run: Program) async throws -> Void
  ) async throws {
    try await withScratchDatabase { database in
      try await withTemporaryDirectory { directory in
        try await test(
          Ledger(database: database), directory,
          Program(database: database, directory: directory))
      }
    }
  }

  private func write(_ text: String, to name: String, in directory: URL) throws -> String {
    let file = directory.appending(path: name)
    try Data(text.utf8).write(to: file)
    return file.path(percentEncoded: false)
  }

  private static let mixed = """
    environment,original_transaction_id,account_id
    production,1000,anna
    sandbox,1000,ben
    production,1001,anna
    production,1000,anna
    production,1000,cora
    live,1002,anna
    production,1.0E+15,anna
    production,1003
    """

  @Test("takes over what it can, and writes the rest beside the file with the reason")
  func imports() async throws {
    try await withProgram { ledger, directory, run in
      let file = try write(Self.mixed, to: "owners.csv", in: directory)
      let dry = try await run(["import", file, "--dry-run"])
      #expect(dry.status == 1, "\(dry.errors)")
      #expect(dry.output.contains(/to record +3\n/), "\(dry.output)")
      #expect(try await ledger.accounts.account("anna") == nil)

      for isFirst in [true, false] {
        let outcome = try await run(["import", file])
        #expect(outcome.status == 1, "\(outcome.errors)")
        #expect(outcome.output.contains(isFirst ? /recorded +3\n/ : /recorded +0\n/))
        #expect(outcome.output.contains(isFirst ? /known +0\n/ : /known +3\n/))
        #expect(outcome.output.contains(/lines +8\n/))
        #expect(outcome.output.contains(/repeated +1\n/))
        #expect(outcome.output.contains(/errors +4\n/))
        let errors = try String(
          contentsOf: directory.appending(path: "owners.csv.errors.csv"), encoding: .utf8)
        let codes = errors.split(separator: "\r\n").map { line in
          line.split(separator: ",").prefix(2).joined(separator: " ")
        }
        #expect(
          codes == [
            "line code", "6 different_accounts", "7 unknown_environment",
            "8 invalid_original_transaction_id", "9 unreadable",
          ])
      }
      let status = try await run(["import", "--status"])
      #expect(status.status == 1)
      #expect(status.output.contains(/imported +3\n/), "\(status.output)")
      #expect(status.output.contains(/waiting +3\n/))
      let jobs = try await run(["jobs"])
      #expect(jobs.output.contains(/poll_status +polls +2\b/), "\(jobs.output)")
      #expect(try await ledger.auditor.audit().differences == [])
    }
  }

  @Test("large receipts end a chunk, however few its lines are")
  func chunks() async throws {
    try await withProgram { ledger, directory, _ in
      let lines = (0..<10).map { "production,\(1000 + $0),anna,cmVjZWlwdA==\n" }
      let file = try write(
        "environment,original_transaction_id,account_id,receipt\n" + lines.joined(),
        to: "owners.csv", in: directory)
      var taking = OwnerImport(
        ledger: ledger, terms: AccessTerms(catalogue: Catalogue([])), source: "owners.csv",
        asOf: .now, isDryRun: false, now: { .now })
      taking.chunkBytes = 20
      let rows = try RowFile(
        FileBytes(FileHandle(forReadingFrom: URL(filePath: file))), columns: OwnerRow.columns)
      var rounds: [Int] = []
      let summary = try await taking.run(
        rows, report: { _ in }, progress: { rounds.append($0.recorded) })
      #expect(summary.recorded == 10)
      // Two lines are more than 20 bytes, and two chunks are recorded at once.
      #expect(rounds == [4, 8, 10])
    }
  }

  @Test("what another account has in Tenure is left alone")
  func conflict() async throws {
    try await withProgram { ledger, directory, run in
      let head = "environment,original_transaction_id,account_id\n"
      let first = try write(head + "production,1000,anna\n", to: "a.csv", in: directory)
      let second = try write(head + "production,1000,ben\n", to: "b.csv", in: directory)
      #expect(try await run(["import", first]).status == 0)
      let errors = directory.appending(path: "wrong.csv").path(percentEncoded: false)
      let outcome = try await run(["import", second, "--errors", errors])
      #expect(outcome.status == 1)
      let text = try String(contentsOfFile: errors, encoding: .utf8)
      #expect(text.contains("2,owned_by_another_account,production/1000 belongs to anna"))
      #expect(try await ledger.accounts.account("ben") == nil)
    }
  }

  @Test("says what it does not understand, and writes nothing")
  func refuses() async throws {
    try await withProgram { _, directory, run in
      let semicolons = try write("environment;account_id\n", to: "s.csv", in: directory)
      let other = try write("environment,account_id\n", to: "o.csv", in: directory)
      // swift-format-ignore
      let wrong: [([String], String)] = [
        (["import"],                                         "--status"),
        (["import", semicolons],                             "commas"),
        (["import", other],                                  "original_transaction_id"),
        (["import", "nowhere.csv"],                          "nowhere.csv"),
        (["import", "/"],                                    "directory"),
        (["import", other, "--as-of", "yesterday"],          "--as-of"),
        (["export", "everything"],                           "owners"),
        (["compare", other, "--tolerance", "-1"],            "--tolerance"),
      ]
      for (arguments, named) in wrong {
        let outcome = try await run(arguments)
        #expect(outcome.status != 0, "\(arguments)")
        #expect(outcome.output.isEmpty, "\(arguments)")
        #expect(outcome.errors.contains(named), "\(arguments): \(outcome.errors)")
      }
    }
  }

  @Test("one that is killed is begun again, and comes to the same")
  func killed() async throws {
    try await withProgram { ledger, directory, run in
      let count = 30_000
      let lines = (0..<count).map { "production,\(50_000 + $0),customer-\($0 % 20_000)\n" }
      let file = try write(
        "environment,original_transaction_id,account_id\n" + lines.joined(), to: "owners.csv",
        in: directory)
      let process = try run.start(["import", file])
      // As soon as something is there: in the middle, unless the machine is very fast.
      while process.isRunning, try await ledger.exports.importProgress().lines == 0 {
        try await Task.sleep(for: .milliseconds(2))
      }
      await process.kill()
      let before = try await ledger.exports.importProgress().lines
      print("Killed after \(before) of \(count) lines")
      #expect(before > 0)

      let again = try await run(["import", file])
      #expect(again.status == 0, "\(again.errors)")
      #expect(again.output.contains(/known +[1-9]/), "\(again.output)")
      #expect(try await ledger.exports.importProgress().lines == count)
      let owners = try await run(["export", "owners"])
      #expect(owners.output.split(separator: "\r\n").count == count + 1)
    }
  }

  @Test(
    "what is exported is imported elsewhere, and exported the same", arguments: RowFormat.allCases)
  func roundTrip(_ format: RowFormat) async throws {
    try await withProgram { _, directory, run in
      let file = try write(
        """
        environment,original_transaction_id,account_id,transaction_id,bundle_id
        production,1000,anna,,
        sandbox,1000,ben,77,com.example.app
        production,1001,anna,,com.example.app
        """, to: "owners.csv", in: directory)
      #expect(try await run(["import", file]).status == 0)
      let exported = directory.appending(path: "exported").path(percentEncoded: false)
      let outcome = try await run(["export", "owners", "--format", "\(format)", "-o", exported])
      #expect(outcome.status == 0, "\(outcome.errors)")
      let text = try String(contentsOfFile: exported, encoding: .utf8)
      let last = format == .csv ? "ben,com.example.app,77" : #""transaction_id":"77"}"#
      #expect(text.hasSuffix("\(last)\(format == .csv ? "\r\n" : "\n")"), "\(text)")
      try await withProgram { _, _, elsewhere in
        let imported = try await elsewhere(["import", exported])
        #expect(imported.status == 0, "\(imported.errors)\(imported.output)")
        #expect(imported.output.contains(/recorded +3\n/))
        let again = try await elsewhere(["export", "owners", "--format", "\(format)"])
        #expect(again.output == text)
      }
    }
  }

  @Test("what is written to stays what it is: a link a link, and the input the input")
  func replacesContentsAlone() async throws {
    try await withProgram { _, directory, run in
      let text =
        "environment,original_transaction_id,account_id,bundle_id,transaction_id\r\n"
        + "production,1000,anna,com.example.app,\r\n"
      let file = try write(text, to: "owners.csv", in: directory)
      #expect(try await run(["import", file, "--errors", file]).status == 1)
      #expect(try String(contentsOfFile: file, encoding: .utf8) == text)
      #expect(try await run(["import", file]).status == 0)

      let target = try write("older, and longer: \(text)\(text)", to: "target", in: directory)
      let link = directory.appending(path: "link").path(percentEncoded: false)
      try FileManager.default.createSymbolicLink(atPath: link, withDestinationPath: target)
      #expect(try await run(["export", "owners", "-o", link]).status == 0)
      #expect(try FileManager.default.destinationOfSymbolicLink(atPath: link) == target)
      #expect(try String(contentsOfFile: target, encoding: .utf8) == text)

      let wrong = try write(text + "production,x y,anna,,\r\n", to: "wrong.csv", in: directory)
      #expect(try await run(["import", wrong, "--errors", link]).status == 1)
      #expect(try FileManager.default.destinationOfSymbolicLink(atPath: link) == target)
      let errors = try String(contentsOfFile: target, encoding: .utf8)
      #expect(errors.hasPrefix("line,code,reason\r\n3,"), "\(errors)")
    }
  }

  @Test("orders and grants are exported with whose they are")
  func records() async throws {
    try await withProgram { ledger, _, run in
      let now = Timestamp.now
      _ = try await ledger.products.describe(
        Product(
          id: "monthly", validFrom: now, type: .autoRenewable, entitlements: ["premium"]))
      let order = try await ledger.orders.openOrder(
        accountID: "anna", productID: "monthly", at: now
      ).order
      _ = try await ledger.accounts.findOrCreateAccount("ben", at: now)
      let given = try await ledger.grants.grant(
        "gold", to: "ben", until: nil,
        by: Administrator(name: "support", reason: "He asked, and it was right."),
        terms: AccessTerms(catalogue: Catalogue([])), at: now
      ).grant.grant
      let orders = try await run(["export", "orders"])
      #expect(orders.status == 0, "\(orders.errors)")
      #expect(
        orders.output.contains(
          "\r\n\(order.id.uuidString.lowercased()),anna,monthly,open,\(now),,,,,\r\n"),
        "\(orders.output)")
      let grants = try await run(["export", "grants"])
      #expect(grants.status == 0, "\(grants.errors)")
      #expect(
        grants.output.contains(
          "\r\n\(given.id.uuidString.lowercased()),ben,gold,grant,\(now),,,"
            + #""He asked, and it was right.""# + ",\(now),,,\r\n"), "\(grants.output)")
    }
  }

  @Test("what everything follows from is exported, and who did what")
  func history() async throws {
    try await withProgram { ledger, _, run in
      let now = Timestamp.now
      _ = try await ledger.products.describe(
        Product(
          id: "monthly", validFrom: now - .days(1), type: .autoRenewable,
          entitlements: ["a \"b\"", "premium"], priceMilliunits: 990, currency: "EUR"))
      _ = try await ledger.products.describe(
        Product(
          id: "monthly", validFrom: now, type: .autoRenewable, entitlements: [],
          period: CalendarPeriod(months: 1)))
      let submission = UUID()
      let line = OriginalTransactionKey(.production, "1000")
      let key = TransactionKey(line: line, transactionID: "1", productID: "monthly")
      let stored = try await ledger.submissions.store(
        ledger.submissions.new(
          id: submission, accountID: "anna", receivedAt: now, payload: .receipt("r"),
          transactionID: nil, orderID: nil, isRestore: true, bundleID: "com.example",
          retryAt: now + .minutes(1)))
      _ = try await ledger.polls.record(
        [
          .transaction(
            TransactionRecord(
              key: key, asOf: now, purchaseDate: now, expiresDate: now + .days(30)))
        ], polledAs: "p", at: now,
        terms: AccessTerms(catalogue: try await ledger.products.catalogue()))
      _ = try await ledger.writeBacks.setConsumptionConsent(true, of: "ben", at: now)
      let support = Administrator(name: "support", reason: "She asked, twice.")
      let anna = try #require(try await ledger.accounts.account("anna"))
      try await ledger.administration.recordExport(of: anna, by: support, at: now)

      func exported(_ subject: String) async throws -> [String] {
        let outcome = try await run(["export", subject, "--format", "jsonl"])
        #expect(outcome.status == 0, "\(outcome.errors)")
        return outcome.output.split(separator: "\n").map(String.init)
      }
      let products = try await exported("products")
      #expect(
        products == [
          #"{"product_id":"monthly","valid_from":"\#(now - .days(1))","type":"auto_renewable","#
            + #""entitlements":"[\"a \\\"b\\\"\",\"premium\"]","subscription_group":null,"#
            + #""level":null,"period":null,"price_milliunits":"990","currency":"EUR","#
            + #""display_name":null}"#,
          #"{"product_id":"monthly","valid_from":"\#(now)","type":"auto_renewable","#
            + #""entitlements":"[]","subscription_group":null,"level":null,"period":"P1M","#
            + #""price_milliunits":null,"currency":null,"display_name":null}"#,
        ])
      let accounts = try await exported("accounts")
      #expect(accounts.count == 2)
      let key1 = anna.key.rawValue.uuidString.lowercased()
      let token = anna.appAccountToken.uuidString.lowercased()
      #expect(
        accounts.contains(
          #"{"account_key":"\#(key1)","account_id":"anna","app_account_token":"\#(token)","#
            + #""created_at":"\#(now)","erased_at":null,"merged_into_key":null,"#
            + #""consumption_consent":null,"#
            + #""consent_decided_at":null}"#), "\(accounts)")
      #expect(
        accounts.contains {
          $0.contains(#""account_id":"ben""#)
            && $0.hasSuffix(#""consumption_consent":"true","consent_decided_at":"\#(now)"}"#)
        }, "\(accounts)")
      #expect(
        try await exported("submissions") == [
          #"{"submission_id":"\#(stored.id.uuidString.lowercased())","account_id":"anna","#
            + #""received_at":"\#(now)","restore":"true","transaction_id":null,"order_id":null,"#
            + #""bundle_id":"com.example","status":"pending","environment":null,"#
            + #""decided_at":null,"problem":null}"#
        ])
      let entries = try await exported("ledger")
      // Of two items: the override and the decision.
      let entry = try #require(entries.first)
      #expect(entries.count == 1)
      #expect(
        entry.hasPrefix(
          #"{"environment":"production","original_transaction_id":"1000","number":"2","#))
      #expect(entry.contains(#""format":"1","body":"[{"#), "\(entry)")
      #expect(entry.contains(/"hash":"[0-9a-f]{64}","stored_at":"20.*"/), "\(entry)")
      let actions = try await exported("actions")
      #expect(actions.count == 1)
      #expect(actions.first?.contains(#""reason":"She asked, twice.","account_id":"anna""#) == true)
    }
  }

  @Test("what was bought is exported with its order and its delivery")
  func charges() async throws {
    try await withProgram { ledger, _, run in
      try await fill(ledger)
      let account = try #require(try await ledger.accounts.account("same"))
      let key = TransactionKey(
        line: OriginalTransactionKey(.production, "1"), transactionID: "1", productID: "monthly")
      let order = UUID()
      let now = Timestamp.now
      _ = try await ledger.orders.acknowledgeDelivery(of: key, by: account.key, at: now)
      _ = try await run.database.execute(
        """
        UPDATE tenure.store_transaction SET order_id = \(order) WHERE transaction_id = '1'
        """)
      let charges = try await run(["export", "charges"]).output.split(separator: "\r\n")
      #expect(charges.first?.hasSuffix(",currency,order_id,delivered_at") == true)
      #expect(charges.count == 7)
      #expect(charges[1].hasSuffix(",\(order.uuidString.lowercased()),\(now)"), "\(charges)")
      #expect(charges.dropFirst(2).allSatisfy { $0.hasSuffix(",,") }, "\(charges)")
    }
  }

  @Test("notifications, write-backs and rates are exported")
  func conversations() async throws {
    try await withProgram { ledger, _, run in
      let now = Timestamp.now
      let anna = try await ledger.accounts.findOrCreateAccount("anna", at: now)
      _ = try await ledger.notifications.store(
        NewNotification(
          id: "n1", version: .two, receivedAt: now, body: "ey.a\n\"b", notificationType: "TEST",
          environment: .sandbox, bundleID: "com.example", signedAt: now),
        processAt: nil)
      _ = try await run.database.execute(
        """
        INSERT INTO tenure.app_store_write_back (environment, original_transaction_id, kind, sent_at,
          transaction_id, notification_id, account_key, outcome, reason, http_status, error_code)
        VALUES
          ('production', '1000', 'ownership', \(now), NULL, NULL, \(anna.key), 'accepted', NULL,
            NULL, NULL),
          ('production', '1001', 'consumption', \(now), '7', 'n1', \(anna.key), 'refused', NULL,
            400, 4000185),
          ('production', '1002', 'ownership', \(now), NULL, NULL, NULL, 'skipped', 'unowned',
            NULL, NULL)
        """)
      _ = try await run.database.execute(
        """
        INSERT INTO tenure.exchange_rate (reporting_currency, currency, valid_from, rate,
          recorded_at)
        VALUES ('EUR', 'USD', '2026-01-31', 0.8500, '2026-02-01T09:30:00.5Z')
        """)
      let notifications = try await run(["export", "notifications", "--format", "jsonl"])
      #expect(notifications.status == 0, "\(notifications.errors)")
      let hash = SHA256.hash(data: Data("ey.a\n\"b".utf8)).map {
        String($0 >> 4, radix: 16) + String($0 & 15, radix: 16)
      }.joined()
      #expect(
        notifications.output == #"{"notification_id":"n1","version":"2","received_at":"\#(now)","#
          + #""arrival":"delivered","signed_at":"\#(now)","notification_type":"TEST","#
          + #""subtype":null,"environment":"sandbox","bundle_id":"com.example","#
          + #""original_transaction_id":null,"transaction_id":null,"processed_at":"\#(now)","#
          + #""outcome":"nothing_to_record","problem":null,"aged_out_at":null,"bytes":"7","#
          + #""sha256":"\#(hash)","body":"ey.a\n\"b"}"# + "\n")
      let writeBacks = try await run(["export", "write-backs"])
      #expect(writeBacks.status == 0, "\(writeBacks.errors)")
      let lines = writeBacks.output.split(separator: "\r\n").dropFirst().map { line in
        line.split(separator: ",", omittingEmptySubsequences: false).enumerated()
          .filter { $0.offset != 2 }.map(\.element).joined(separator: ",")
      }
      #expect(
        lines == [
          "production,1000,ownership,\(now),,,,anna,accepted,,,,",
          "production,1001,consumption,\(now),,7,n1,anna,refused,,400,4000185,",
          "production,1002,ownership,\(now),,,,,skipped,unowned,,,",
        ])
      let rates = try await run(["export", "rates"])
      #expect(
        rates.output
          == "reporting_currency,currency,valid_from,rate,recorded_at\r\n"
          + "EUR,USD,2026-01-31,0.8500,2026-02-01T09:30:00.500000Z\r\n")
      let checkpoints = try await run(["export", "checkpoints"])
      #expect(checkpoints.status == 0, "\(checkpoints.errors)")
      #expect(checkpoints.output == "number,stored_before,chains,entries,heads,previous,digest\r\n")
    }
  }

  @Test("everything that can be exported is explained, by the program and in the article")
  func explained() async throws {
    let help = try await TenureProgram.run("export", "--help").output
    let article = try Article.named("MovingIn").text
    for subject in ExportCommand.Subject.allCases {
      let explanation = try Regex(#"\b\#(subject.rawValue)(\s+and\s+[a-z]+)?:\s"#)
      #expect(help.contains(explanation), "\(subject)")
      #expect(article.contains("`tenure export \(subject.rawValue)`"), "\(subject)")
    }
  }

  // MARK: Comparing

  /// A shop with customers of every kind.
  private func fill(_ ledger: Ledger) async throws {
    _ = try await ledger.products.describe(
      Product(
        id: "monthly", validFrom: Timestamp(milliseconds: 0), type: .autoRenewable,
        entitlements: ["premium"]))
    let now = Timestamp.now
    func take(
      _ id: String, _ account: String?, ends: Duration, revoked: Bool = false
    ) async throws {
      let line = OriginalTransactionKey(.production, OriginalTransactionID(id))
      let record = TransactionRecord(
        key: TransactionKey(line: line, transactionID: TransactionID(id), productID: "monthly"),
        asOf: now, purchaseDate: now - .days(10), expiresDate: now + ends,
        revocation: revoked ? .revoked(at: now - .days(1), reason: nil) : .notRevoked)
      if let account {
        _ = try await ledger.imports.importOwners(
          [ImportedOwner(line: line, accountID: account, asOf: now)], from: "f",
          terms: AccessTerms(catalogue: try await ledger.products.catalogue()), at: now)
      }
      _ = try await ledger.polls.record(
        [.transaction(record)], polledAs: "p", at: now,
        terms: AccessTerms(catalogue: try await ledger.products.catalogue()))
    }
    try await take("1", "same", ends: .days(20))
    try await take("2", "longer", ends: .days(20))
    try await take("3", "lapsed", ends: .zero - .days(1))
    try await take("4", "refunded", ends: .days(20), revoked: true)
    try await take("5", "here", ends: .days(20))
    try await take("7", "endless", ends: .days(20))
    _ = try await ledger.imports.importOwners(
      [
        ImportedOwner(
          line: OriginalTransactionKey(.production, "6"), accountID: "waiting", asOf: now)
      ], from: "f", terms: AccessTerms(catalogue: try await ledger.products.catalogue()), at: now)
  }

  @Test("every difference is reported with Tenure's reason")
  func compares() async throws {
    try await withProgram { ledger, directory, run in
      try await fill(ledger)
      let later = "\(Timestamp.now + .days(20))"
      let much = "\(Timestamp.now + .days(50))"
      let file = try write(
        """
        account_id,entitlement,active,until
        same,premium,true,\(later)
        same,gold,true,\(later)
        longer,premium,true,\(much)
        lapsed,premium,true,\(later)
        refunded,premium,true,\(later)
        here,premium,false,
        waiting,premium,true,\(later)
        unknown,premium,true,\(later)
        same,silver,true,\(later)
        endless,premium,true,
        """, to: "reported.csv", in: directory)
      let outcome = try await run(["compare", file, "--format", "csv"])
      #expect(outcome.status == 1, "\(outcome.errors)")
      let lines = outcome.output.split(separator: "\r\n").dropFirst().map(String.init)
      // swift-format-ignore
      let expected: [(String, String)] = [
        ("other_end,longer,premium,",   "is paid until"),
        ("only_there,lapsed,premium,",  "expired on"),
        ("only_there,refunded,premium,", "was refunded"),
        ("only_here,here,premium,",     "is paid until"),
        ("only_there,waiting,premium,", "Apple has not confirmed it yet"),
        ("only_there,unknown,premium,",  "Unknown account"),
        ("only_there,same,gold,",       "No product grants gold"),
        ("other_end,endless,premium,,", "is paid until"),
      ]
      #expect(lines.count == expected.count, "\(outcome.output)")
      #expect(outcome.errors.contains("line 10: Rows must be grouped by account"))
      for (beginning, reason) in expected {
        #expect(
          lines.contains { $0.hasPrefix(beginning) && $0.contains(reason) },
          "\(beginning): \(outcome.output)")
      }
      #expect(outcome.errors.contains(/only_there +5\n/), "\(outcome.errors)")
      let table = try await run(["compare", file])
      #expect(
        table.output.contains("only_there  same  gold  there until \(later): No product"),
        "\(table.output)")
      #expect(
        table.output.contains(/other_end   endless  premium  there without end, here until 2/),
        "\(table.output)")
    }
  }

  @Test("accounts missing from the file are reported on request")
  func comparesAll() async throws {
    try await withProgram { ledger, directory, run in
      try await fill(ledger)
      // More than are asked for at once, who have nothing; and one of them has something.
      let (accounts, now) = (EntitlementReader.maximumBatch * 2 + 10, Timestamp.now)
      for number in 0..<accounts {
        _ = try await ledger.accounts.findOrCreateAccount("guest-\(number)", at: now)
      }
      _ = try await ledger.grants.grant(
        "gold", to: "guest-\(accounts - 1)", until: nil,
        by: Administrator(name: "support", reason: "Why not."),
        terms: AccessTerms(catalogue: Catalogue([])), at: now)
      let later = "\(now + .days(20))"
      let file = try write(
        """
        account_id,entitlement,active,until
        same,premium,true,\(later)
        longer,premium,true,tomorrow
        """, to: "reported.csv", in: directory)
      let some = try await run(["compare", file, "--format", "csv"])
      #expect(some.output.split(separator: "\r\n").count == 1, "\(some.output)")
      let all = try await run(["compare", file, "--format", "csv", "--all"])
      #expect(all.status == 1)
      let lines = all.output.split(separator: "\r\n").dropFirst().map(String.init)
      let last = "guest-\(accounts - 1)"
      // A line that can't be read is one of the file all the same.
      #expect(lines.count == 3, "\(all.output)")
      let expected = ["endless,premium", "\(last),gold", "here,premium"]
      for (line, account) in zip(lines, expected) {
        #expect(line.hasPrefix("only_here,\(account),,"), "\(line)")
        #expect(line.contains("The account is not in the file. "), "\(line)")
      }
      #expect(all.errors.contains(/only_here +3\n/), "\(all.errors)")
      let whole = directory.appending(path: "whole.csv").path(percentEncoded: false)
      #expect(try await run(["export", "entitlements", "-o", whole]).status == 0)
      let none = try await run(["compare", whole, "--all"])
      #expect(none.status == 0, "\(none.output)\(none.errors)")
    }
  }

  @Test("what is exported of entitlements compares as the same")
  func comparesItself() async throws {
    try await withProgram { ledger, directory, run in
      try await fill(ledger)
      let file = directory.appending(path: "reported.csv").path(percentEncoded: false)
      #expect(try await run(["export", "entitlements", "-o", file]).status == 0)
      let outcome = try await run(["compare", file])
      #expect(outcome.status == 0, "\(outcome.output)\(outcome.errors)")
      #expect(outcome.output.contains(/only_here +0\n/))
    }
  }
}
