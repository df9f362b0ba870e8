import AppStore
import AppStoreSimulator
import Foundation
import JSONText
import Subscriptions
import Testing

@testable import Bootstrap
@testable import Development
@testable import Intake
@testable import tenure

@Suite("tenure app-store and the simulated App Store, over HTTP")
struct AppStoreConversationTests {
  /// A weekly subscription of more than two pages, which has just been renewed.
  private static let weeks = 45

  /// Petra subscribed long ago, and it is now.
  private func withPetra(
    in environment: Environment = .production,
    _ body: @Sendable (SimulatedApple, OriginalTransactionID) async throws -> Void
  ) async throws {
    let start = Timestamp.now - .days(7 * Self.weeks) - .minutes(5)
    try await SimulatedApple.serving(from: start) { apple in
      let simulation = apple.simulation
      try simulation.addAppleID("petra", environment: environment)
      try simulation.addDevice("phone", appleID: "petra", account: "petra")
      try simulation.buy("news.weekly", on: "phone")
      simulation.advance(by: .days(7 * Self.weeks))
      let line = try #require(simulation.truth(of: AppleID("petra")).first).originalTransactionID
      try await body(apple, line)
    }
  }

  private func json(_ outcome: ChildProcess.Outcome) throws -> JSONValue {
    #expect(outcome.status == 0, "\(outcome.errors)")
    // On a busy machine with the progress of a slow answer.
    let errors = outcome.errors.split(separator: "\n").filter { !$0.hasSuffix(" read") }
    #expect(errors.isEmpty)
    return try JSONValue(parsing: Array(outcome.output.utf8))
  }

  private func ids(_ answer: JSONValue) -> [String] {
    (answer["transactions"]?.array ?? []).compactMap { $0["payload"]?["transactionId"]?.string }
  }

  @Test("a history of several pages, and later only the changes")
  func history() async throws {
    try await withPetra { apple, line in
      let truth = apple.simulation.truth(of: AppleID("petra"))
      #expect(truth.count > 2 * 20)
      let first = try json(await apple.run("history", line.rawValue, "--format", "json"))
      #expect(Set(ids(first)) == Set(truth.map(\.transactionID.rawValue)))
      #expect(ids(first).count == truth.count)
      #expect(first["environment"] == "production")
      let revision = try #require(first["revision"]?.string)
      let none = try json(
        await apple.run(
          "history", line.rawValue, "--revision", revision, "--format", "json"))
      #expect(ids(none).isEmpty)
      // A changed transaction is listed again, after the revision.
      try apple.simulation.refund(truth[3].transactionID)
      let newer = try json(
        await apple.run(
          "history", line.rawValue, "--revision", revision, "--format", "json"))
      #expect(ids(newer) == [truth[3].transactionID.rawValue])
      #expect(newer["revision"]?.string != revision)
      // The revision is of one query.
      let other = try await apple.run(
        "history", line.rawValue, "--revision", revision, "--revoked", "true")
      #expect(other.status == 1)
      #expect(other.errors.contains("code 4000005"), "\(other.errors)")
    }
  }

  @Test("histories and refunds for people")
  func tables() async throws {
    try await withPetra { apple, line in
      let truth = apple.simulation.truth(of: AppleID("petra"))
      try apple.simulation.refund(truth[3].transactionID)
      let history = try await apple.run("history", line.rawValue, "--newest-first")
      #expect(history.status == 0, "\(history.errors)")
      let lines = history.output.split(separator: "\n").map(String.init)
      #expect(lines.first == "environment  production")
      #expect(lines.contains { $0.hasPrefix("PURCHASED ") && $0.hasSuffix("  NOTES") })
      #expect(lines.contains("transactions  \(truth.count)"))
      for charge in truth {
        #expect(lines.contains { $0.contains("  \(charge.transactionID)  ") })
      }
      let refunds = try await apple.run("refunds", line.rawValue)
      #expect(refunds.output.contains("  1.99 USD  revoked \(apple.simulation.now.day)T"))
      #expect(refunds.output.contains("transactions  1"))
    }
  }

  @Test("one transaction, field by field, from the sandbox where production does not know it")
  func sandbox() async throws {
    try await withPetra(in: .sandbox) { apple, line in
      let transaction = try await apple.run("transaction", line.rawValue)
      #expect(transaction.status == 0, "\(transaction.errors)")
      let lines = transaction.output.split(separator: "\n").map(String.init)
      #expect(lines.prefix(2) == ["environment  sandbox", "signature    verified"])
      #expect(lines.contains { $0.wholeMatch(of: /productId +news\.weekly/) != nil })
      #expect(lines.contains { $0.wholeMatch(of: /purchaseDate +20.*T.*Z/) != nil })
      let download = try json(
        await apple.run("app-transaction", line.rawValue, "--format", "json"))
      #expect(download["appTransaction"]?["payload"]?["receiptType"] == "Sandbox")
      let production = try await apple.run(
        "transaction", line.rawValue, "--environment", "production")
      #expect(production.status == 1)
      #expect(production.output.isEmpty)
      #expect(production.errors.contains("code 4040010"), "\(production.errors)")
      let nowhere = try await apple.run("history", "12345")
      #expect(nowhere.errors.contains("in either environment"), "\(nowhere.errors)")
      #expect(nowhere.errors.split(separator: "\n").count == 1)
    }
  }

  @Test("statuses say what a line is, and an order what it bought")
  func statusesAndOrders() async throws {
    try await withPetra { apple, line in
      let statuses = try await apple.run("statuses", line.rawValue)
      let row = statuses.output.split(separator: "\n").first { $0.contains("  active  ") }
      #expect(row?.contains("news.weekly") == true && row?.contains("yes") == true)
      try apple.simulation.setAutoRenew(false, line)
      let none = try await apple.run("statuses", line.rawValue, "--status", "2")
      #expect(none.output.contains("subscriptions  0"), "\(none.output) \(none.errors)")
      let last = try #require(apple.simulation.truth(of: AppleID("petra")).last).transactionID
      // As the simulation names the orders of its charges.
      let order = "M" + String(try #require(Int(last.rawValue)), radix: 36).uppercased()
      let bought = try await apple.run("order", order)
      #expect(bought.output.contains("  \(last)  "), "\(bought.output) \(bought.errors)")
      let unknown = try await apple.run("order", "MNONE")
      #expect(unknown.status == 0)
      #expect(unknown.output.contains("not one of this app's"))
    }
  }

  @Test("the limit of requests is reported with the moment that Apple names")
  func rateLimit() async throws {
    try await withPetra { apple, line in
      apple.simulation.setRateLimitScale(0)
      let outcome = try await apple.run("statuses", line.rawValue)
      #expect(outcome.status == 1)
      #expect(outcome.output.isEmpty)
      let reopens = apple.simulation.now + .hours(1)
      #expect(outcome.errors.hasPrefix("Error: The request limit is reached"))
      #expect(outcome.errors.contains("code 4290000). Not before \(reopens)"))
      #expect(outcome.errors.split(separator: "\n").count == 1)
    }
  }

  @Test("notifications, and those that did not arrive")
  func notifications() async throws {
    try await withPetra { apple, line in
      try apple.simulation.setNotificationTargets([
        NotificationTarget(.v2, url: "http://127.0.0.1:1/")
      ])
      for _ in 1...25 { try apple.simulation.buy("coins.100", on: "phone") }
      let from = "\(apple.simulation.now - .minutes(1))"
      let all = try json(await apple.run("notifications", "--from", from, "--format", "json"))
      #expect(all["notifications"]?.array?.count == 25)
      let first = try #require(all["notifications"]?.array?.first)
      #expect(first["notification"]?["payload"]?["notificationType"] == "ONE_TIME_CHARGE")
      #expect(first["transaction"]?["productId"] == "coins.100")
      let id = try #require(first["transaction"]?["transactionId"]?.string)
      let one = try await apple.run("notifications", "--from", from, "--transaction", id)
      #expect(one.output.contains("ONE_TIME_CHARGE"))
      #expect(one.output.contains("notifications  1"), "\(one.output) \(one.errors)")
      let none = try await apple.run("notifications", "--from", from, "--type", "REFUND")
      #expect(none.output.contains("notifications  0"))
      let failures = try await apple.run("notifications", "--from", from, "--failures")
      #expect(failures.output.contains("notifications  25"))
      let tooFar = try await apple.run("notifications", "--from", "2020-01-01")
      #expect(tooFar.errors.contains("code 4000012"), "\(tooFar.errors)")
    }
  }

  @Test("a test notification that has not arrived is no success")
  func testNotification() async throws {
    try await withPetra { apple, _ in
      let nowhere = try await apple.run("test-notification")
      #expect(nowhere.errors.contains("code 4040007"), "\(nowhere.errors)")
      try apple.simulation.setNotificationTargets([
        NotificationTarget(.v2, url: "http://127.0.0.1:1/")
      ])
      let asked = try json(await apple.run("test-notification", "--format", "json"))
      let token = try #require(asked["testNotificationToken"]?.string)
      let outcome = try await apple.run("test-notification", "--token", token)
      #expect(outcome.status == 1)
      #expect(outcome.output.contains("notificationType  TEST"), "\(outcome.output)")
      #expect(outcome.errors.hasPrefix("Error: The app's server has not accepted the test"))
    }
  }

  @Test("what can be changed is changed")
  func changes() async throws {
    try await withPetra { apple, line in
      let last = try #require(apple.simulation.truth(of: AppleID("petra")).last)
      let token = "7e3fb20b-4cdb-47cc-936d-99d65f608138"
      let marked = try await apple.run("set-app-account-token", line.rawValue, token)
      #expect(marked.status == 0, "\(marked.errors)")
      #expect(marked.output.hasSuffix("Apple accepted the request.\n"))
      let truth = try apple.simulation.truth(of: last.transactionID)
      #expect(truth.appAccountToken == UUID(uuidString: token))
      let notOriginal = try await apple.run(
        "set-app-account-token", last.transactionID.rawValue, token)
      #expect(notOriginal.errors.contains("code 4000187"), "\(notOriginal.errors)")

      let extended = try json(
        await apple.run(
          "extend", line.rawValue, "--days", "10", "--reason", "service-issue", "--format", "json"))
      #expect(extended["success"] == true)
      let end = try #require(last.expiresDate) + .days(10)
      #expect(extended["effectiveDate"] == .integer(end.milliseconds))
      #expect(extended["requestIdentifier"]?.string.flatMap(UUID.init(uuidString:)) != nil)

      let shown = try await apple.run(
        "consumption", last.transactionID.rawValue, "--customer-consented", "--delivery",
        "delivered", "--sample-content-provided", "--consumed", "42.5", "--preference", "decline")
      #expect(shown.status == 0, "\(shown.errors)")
      let reports = try apple.simulation.consumptionReports(of: last.transactionID)
      #expect(
        reports == [
          [
            "customerConsented": true, "deliveryStatus": "DELIVERED",
            "sampleContentProvided": true, "consumptionPercentage": 42_500,
            "refundPreference": "DECLINE",
          ]
        ])
    }
  }

  @Test("what is signed by another root is shown as refused, and is no success")
  func refused() async throws {
    try await withPetra { apple, line in
      // Without the log, which reports slow responses.
      let roots = ["TENURE_APPSTORE_ROOT_CERTIFICATES": "", "TENURE_LOG_LEVEL": "error"]
      for command in ["history", "statuses", "transaction"] {
        let outcome = try await apple.run(command, line.rawValue, changing: roots)
        #expect(outcome.status == 1)
        #expect(outcome.output.contains("refused: The signed transaction "), "\(outcome.output)")
        #expect(!outcome.output.contains("news.weekly"))
        #expect(outcome.errors.contains("signed parts were refused"), "\(outcome.errors)")
        #expect(outcome.errors.split(separator: "\n").count == 1)
      }
    }
  }

  @Test("an unknown key is reported with its settings")
  func wrongKey() async throws {
    try await withPetra { apple, line in
      let outcome = try await apple.run(
        "statuses", line.rawValue, changing: ["TENURE_APPSTORE_KEY_ID": "2X9R4HXF34"])
      #expect(outcome.status == 1)
      #expect(outcome.errors.contains("Apple does not accept the key"), "\(outcome.errors)")
      #expect(outcome.errors.contains("TENURE_APPSTORE_KEY_ID"))
    }
  }
}
