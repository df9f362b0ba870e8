import AppStoreSimulator
import Foundation
import JSONText
import LedgerStorage
import Postgres
import ScratchDatabases
import Subscriptions
import Testing

@testable import Bootstrap
@testable import Development
@testable import Intake
@testable import tenure

@Suite("tenure what-if")
struct WhatIfCommandTests {
  @Test("the sample ledger under two policies, and what is refused")
  func ledger() async throws {
    try await withScratchDatabase { database in
      let ledger = try await SampleLedger(submissions: 2, in: database)
      let count = ledger.samples.count
      func run(_ arguments: String...) async throws -> ChildProcess.Outcome {
        try await TenureProgram.run(
          arguments: ["what-if"] + arguments, environment: ["DATABASE_URL": database.uri])
      }
      let same = try await run("present-rule")
      #expect(same.status == 0, "\(same.errors)")
      #expect(
        same.output == """
          policy                 present-rule
          original transactions  \(count)
          charges                \(count)

          No charge would have another owner.

          """)
      // No sample has a token.
      let token = try await run("token-decides", "--list", "-", "--list-format", "jsonl")
      let rows = token.output.split(separator: "\n").filter { $0.hasPrefix("{") }
      #expect(rows.count == count)
      #expect(rows.allSatisfy { $0.hasPrefix(#"{"change":"loses","account_id":""#) })
      #expect(token.output.contains("\ntotal "), "\(token.output)")
      let json = try await run("token-decides", "--format", "json")
      let totals = try JSONValue(parsing: Array(json.output.utf8))
      #expect(totals["elsewhere"]?["charges"] == .integer(Int64(count)))

      for (arguments, fault) in [
        (["mine"], "The policy must be one of present-rule, until-it-lapses"),
        (
          ["shared", "--billing-retry-days", "1"],
          "The policy must be present-rule, the only policy with constants."
        ),
        (
          ["shared", "--bundle-id", "a", "--account-id", "b"],
          "--account-id can't be combined with --bundle-id."
        ),
        (["shared", "--account-id", "nobody"], "No account has this ID."),
        (["shared", "--original-transaction-id", "1"], "is not recorded"),
        (["shared", "--account-id", "a", "--import", "a.csv"], "has no scope"),
        (["shared", "--import", "missing.csv"], "can't be read"),
      ] {
        let outcome = try await TenureProgram.run(
          arguments: ["what-if"] + arguments, environment: ["DATABASE_URL": database.uri])
        #expect(outcome.status != 0)
        #expect(outcome.errors.contains(fault), "\(outcome.errors)")
      }
    }
  }

  /// As RevenueCat exports transactions, with some of the columns: Ben got Anna's renewal, and Cora
  /// bought again after Dora had lapsed.
  private static let transactions = """
    rc_original_app_user_id,product_identifier,start_time,end_time,store,is_sandbox,\
    store_transaction_id,original_store_transaction_id,refunded_at,unsubscribe_detected_at,\
    purchased_currency,purchase_price_in_purchased_currency,renewal_number
    anna,monthly,2026-01-01 00:00:00,2026-02-01 00:00:00,app_store,false,1,1,,,EUR,9.99,1
    ben,monthly,2026-02-01 00:00:00,2026-03-01 00:00:00,app_store,false,2,1,,,EUR,9.99,2
    dora,monthly,2026-01-01 00:00:00,2026-02-01 00:00:00,app_store,false,3,3,,2026-01-10 00:00:00,EUR,9.99,1
    cora,monthly,2026-03-01 00:00:00,2026-04-01 00:00:00,app_store,false,4,3,,,EUR,9.99,2
    emil,monthly,2026-03-01 00:00:00,2026-04-01 00:00:00,play_store,false,5,5,,,EUR,9.99,1
    fay,monthly,yesterday,2026-04-01 00:00:00,app_store,false,6,6,,,EUR,9.99,1
    """

  @Test("RevenueCat's transactions are compared in a temporary table")
  func imported() async throws {
    try await withScratchDatabase { database in
      try await withTemporaryDirectory { directory in
        let file = directory.appending(path: "transactions.csv")
        try Data(Self.transactions.utf8).write(to: file)
        let path = file.path(percentEncoded: false)
        func run(_ policy: String) async throws -> ChildProcess.Outcome {
          try await TenureProgram.run(
            "what-if", policy, "--list", "-", "--import", path,
            environment: ["DATABASE_URL": database.uri])
        }
        let outcome = try await run("present-rule")
        #expect(outcome.status == 1)
        #expect(
          outcome.errors.contains("line 7: purchased_at must be a time"), "\(outcome.errors)")
        #expect(outcome.errors.contains("without a charge  1\n"), "\(outcome.errors)")
        let rows = outcome.output.split(separator: "\r\n").dropFirst().prefix { $0.contains(",") }
        #expect(rows.map { $0.prefix(10) } == ["gains,anna", "loses,ben,"], "\(outcome.output)")
        #expect(
          rows.first?.contains(
            ",2,monthly,2026-02-01T00:00:00.000Z,2026-03-01T00:00:00.000Z,28,9990,EUR,ben,"
              + "The file assigns it to “ben”.") == true, "\(rows)")
        #expect(
          outcome.output.contains("2026-02          1         2              28  9.99 EUR\n"),
          "\(outcome.output)")
        let keeps = try await run("first-owner-keeps")
        #expect(keeps.output.contains("gains,dora,production,3,4,"), "\(keeps.output)")

        let entries = try await database.query("SELECT count(*) FROM tenure.ledger_entry")
        #expect(try entries.decodeOnly(Int.self) == 0)
      }
    }
  }

  @Test("the charges of a receipt in a file of `tenure import` are compared")
  func receipt() async throws {
    try await withScratchDatabase { database in
      try await SimulatedApple.serving(from: .now - .days(100)) { apple in
        let simulation = apple.simulation
        try simulation.addAppleID("anna")
        try simulation.addDevice("phone", appleID: "anna")
        try simulation.buy("monthly", on: "phone")
        simulation.advance(by: .days(100))
        let ids = simulation.truth().map(\.transactionID)
        #expect(ids.count > 2)
        let file =
          "environment,original_transaction_id,account_id,receipt\n"
          + "production,\(ids[0]),anna,\(try simulation.receipt(on: "phone"))\n"
          + "production,\(ids[0]),anna,\n"
        try await withTemporaryDirectory { directory in
          let path = directory.appending(path: "owners.csv")
          try Data(file.utf8).write(to: path)
          func run(_ policy: String) async throws -> ChildProcess.Outcome {
            try await TenureProgram.run(
              "what-if", policy, "--list", "-", "--import", path.path(percentEncoded: false),
              environment: apple.settings.merging(["DATABASE_URL": database.uri]) { $1 })
          }
          let same = try await run("present-rule")
          #expect(same.status == 0, "\(same.errors)")
          #expect(same.errors.contains("without a charge  1\n"), "\(same.errors)")
          #expect(same.output.contains("charges                \(ids.count)\n"), "\(same.output)")
          #expect(same.output.contains("No charge would have another owner."))
          // A receipt has no tokens.
          let token = try await run("token-decides")
          let losses = token.output.split(separator: "\r\n").filter {
            $0.hasPrefix("loses,anna,production,\(ids[0]),")
          }
          #expect(losses.count == ids.count, "\(token.output)")
        }
      }
    }
  }

  // swift-format-ignore
  static let rows: [(json: String, expected: String)] = [
    // Rows of `tenure import`: nothing but the owner.
    (#"{"environment":"sandbox","original_transaction_id":"1","account_id":"a"}"#, "none"),
    (#"{"environment":"moon","original_transaction_id":"1","account_id":"a"}"#, "unknown_environment"),
    (#"{"environment":"production","original_transaction_id":"1","account_id":"a","receipt_data":"MIIT"}"#, "invalid_receipt"),
    // Transactions.
    (#"{"is_sandbox":"true","original_transaction_id":"1","transaction_id":"2","account_id":"a","product_id":"p","purchased_at":"2026-01-01T00:00:00Z"}"#, "sandbox 2"),
    (#"{"environment":"production","original_transaction_id":"1","transaction_id":"2","account_id":"a","product_id":"p","purchased_at":"2026-01-01 00:00:00 UTC","expires_at":"2026-02-01 00:00:00","renewal_number":1,"is_trial_period":true}"#, "production 2 until 2026-02-01T00:00:00.000Z purchase trial"),
    (#"{"environment":"production","original_transaction_id":"1","transaction_id":"2","account_id":"a","product_id":"p","purchased_at":"2026-01-01 00:00:00","price":"4.5","currency":"usd","refunded_at":"2026-01-02 00:00:00"}"#, "production 2 4500 USD refunded"),
    (#"{"environment":"production","original_transaction_id":"1","transaction_id":"2","account_id":"a","product_id":"p","purchased_at":"2026-01-01 00:00:00","unsubscribe_detected_at":"2026-01-05 00:00:00","billing_issues_detected_at":"2026-01-06 00:00:00"}"#, "production 2 statuses 2"),
    (#"{"store":"stripe","is_sandbox":"false","original_transaction_id":"sub_1","account_id":"a"}"#, "none"),
    (#"{"store":"mac_app_store","is_sandbox":"false","original_transaction_id":"1","account_id":"a"}"#, "none"),
    (#"{"is_sandbox":"false","original_transaction_id":"1.0E+15","account_id":"a"}"#, "invalid_original_transaction_id"),
  ]

  @Test("the forms of rows", arguments: rows.indices)
  func forms(_ index: Int) async throws {
    let (json, expected) = Self.rows[index]
    try await withTemporaryDirectory { directory in
      let path = directory.appending(path: "rows.jsonl")
      try Data(json.utf8).write(to: path)
      var file = try RowFile(
        FileBytes(FileHandle(forReadingFrom: path)), columns: HistoryRow.columns)
      let row = try #require(try file.next())
      let charges = row.values.flatMap {
        HistoryRow.charges($0, asOf: Timestamp(milliseconds: 0), receipts: nil)
      }
      switch charges {
      case .failure(let fault): #expect(fault.code == expected)
      case .success(let charges):
        let texts = charges.map { charge in
          let record = charge.record
          var words = [record.key.line.environment.rawValue, record.key.transactionID.rawValue]
          if let end = record.expiresDate { words.append("until \(end)") }
          if record.kind == .purchase { words.append("purchase") }
          if record.periodType == .trial { words.append("trial") }
          if let price = record.priceMilliunits {
            words.append("\(price) \(record.currency ?? "")")
          }
          if record.revocation != .notRevoked { words.append("refunded") }
          if !charge.statuses.isEmpty { words.append("statuses \(charge.statuses.count)") }
          return words.joined(separator: " ")
        }
        #expect((texts.first ?? "none") == expected)
      }
    }
  }
}
