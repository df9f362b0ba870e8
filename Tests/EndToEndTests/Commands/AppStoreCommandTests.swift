import AppStore
import ArgumentParser
import Crypto
import Foundation
import JSONText
import Reports
import Subscriptions
import Testing

@testable import Bootstrap
@testable import Development
@testable import HTTPAPI
@testable import Intake
@testable import tenure

@Suite("The commands that ask the App Store Server API")
struct AppStoreCommandTests {
  static let commands = [
    "transaction", "history", "statuses", "refunds", "app-transaction", "order", "notifications",
    "test-notification", "set-app-account-token", "extend", "extend-all", "extension-status",
    "consumption",
  ]

  @Test("app-store lists its commands, and each has help")
  func help() async throws {
    let all = try await TenureProgram.run("app-store", "--help")
    for command in Self.commands {
      #expect(all.output.contains("\n  \(command) "), "\(command)")
      let outcome = try await TenureProgram.run("app-store", command, "--help")
      #expect(outcome.status == 0)
      #expect(outcome.output.contains("OVERVIEW: "))
      #expect(outcome.output.contains("USAGE: tenure app-store \(command)"))
      for option in ["--bundle-id", "--environment", "--format"] {
        #expect(outcome.output.contains(option), "\(command) \(option)")
      }
    }
  }

  // swift-format-ignore
  @Test("what is not set is named in one line", arguments: [
    // settings                                                        arguments                          named
    (["TENURE_BUNDLE_IDS": "a.b"],                                     ["history", "1"],                  "TENURE_APPSTORE_ISSUER_ID"),
    ([:],                                                              ["history", "1"],                  "TENURE_BUNDLE_IDS"),
    (["TENURE_BUNDLE_IDS": "a.b,c.d"].merging(key) { $1 },             ["history", "1"],                  "--bundle-id: required"),
    (["TENURE_BUNDLE_IDS": "a.b"].merging(key) { $1 },                 ["order", "1", "--bundle-id", "c"], "--bundle-id: the app c"),
    (["TENURE_BUNDLE_IDS": "a.b", "TENURE_APPSTORE_API_URL": "a"],     ["order", "1"],                    "TENURE_APPSTORE_API_URL"),
  ])
  func missingSettings(
    settings: [String: String], arguments: [String], named: String
  ) async throws {
    let outcome = try await Self.run(arguments, environment: settings)
    #expect(outcome.status != 0)
    #expect(outcome.output.isEmpty)
    #expect(outcome.errors.hasPrefix("Error: "), "\(outcome.errors)")
    #expect(outcome.errors.split(separator: "\n").count == 1, "\(outcome.errors)")
    #expect(outcome.errors.contains(named), "\(outcome.errors)")
  }

  // swift-format-ignore
  @Test("an argument that cannot be meant is refused before Apple is asked", arguments: [
    (["extend", "1", "--days", "91", "--reason", "other"],                           "--days must be from 1 to 90"),
    (["extend", "1", "--days", "0", "--reason", "other"],                            "--days must be from 1 to 90"),
    (["extend", "1", "--days", "1", "--reason", "boredom"],                          "boredom"),
    (["extend", "1", "--days", "1", "--reason", "other", "--request-id", "mine"],    "--request-id is not a UUID"),
    (["set-app-account-token", "1", "mine"],                                         "must be a UUID"),
    (["notifications", "--type", "TEST", "--transaction", "1"],                      "can't be combined"),
    (["notifications", "--subtype", "UPGRADE"],                                      "--subtype requires --type"),
    (["notifications", "--from", "yesterday"],                                       "yesterday"),
    (["history", "1", "--type", "car"],                                              "car"),
    (["transaction", "1", "--environment", "xcode"],                                 "xcode"),
    (["consumption", "1", "--delivery", "delivered"],                                "--customer-consented is required"),
    (["consumption", "1", "--delivery", "delivered", "--customer-consented", "--consumed", "101"], "from 0 to 100"),
    (["consumption", "1", "--delivery", "other", "--customer-consented", "--consumed", "1"],       "not delivered"),
  ])
  func arguments(_ arguments: [String], words: String) async throws {
    let settings = Self.key.merging(["TENURE_BUNDLE_IDS": "a.b"]) { $1 }
    let outcome = try await Self.run(arguments, environment: settings)
    #expect(outcome.status != 0)
    #expect(outcome.output.isEmpty)
    #expect(outcome.errors.contains(words), "\(outcome.errors)")
  }

  @Test("a key can stand in a file that a setting's FILE names")
  func keyFile() async throws {
    try await withTemporaryDirectory { directory in
      let file = directory.appending(path: "key.p8")
      try P256.Signing.PrivateKey().pemRepresentation
        .write(to: file, atomically: true, encoding: .utf8)
      let path = file.path(percentEncoded: false)
      for name in ["TENURE_APPSTORE_PRIVATE_KEY", "TENURE_APPSTORE_PRIVATE_KEY_FILE"] {
        let settings = try Settings(
          await SettingSource(environment: [
            "TENURE_APPSTORE_ISSUER_ID": "i", "TENURE_APPSTORE_KEY_ID": "k", name: path,
          ]))
        #expect(settings.serverAPIKey?.keyID == "k")
        #expect(settings.serverAPIAddresses == .serverAPI)
      }
    }
    #expect(try Settings(await SettingSource(environment: [:])).serverAPIKey == nil)
  }

  @Test("without an answer, one line says so")
  func unreachable() async throws {
    let outcome = try await Self.run(
      ["statuses", "1", "--bundle-id", "com.example.app"],
      environment: Self.key.merging(["TENURE_APPSTORE_API_URL": "http://127.0.0.1:1"]) { $1 })
    #expect(outcome.status == 1)
    #expect(outcome.output.isEmpty)
    #expect(outcome.errors.hasPrefix("Error: No response to Get All Subscription Statuses"))
    #expect(outcome.errors.split(separator: "\n").count == 1, "\(outcome.errors)")
  }

  // MARK: Text

  @Test("columns are as wide as their widest cell")
  func columns() {
    let rows = [["A", "B", "C"], ["long", "", "x"], ["é", "two", ""]].aligned()
    #expect(rows == ["A     B    C", "long       x", "é     two"])
  }

  @Test("fields have their path, dates are written, and the rest stays as it is")
  func fields() {
    let json: JSONValue = [
      "purchaseDate": 1_748_779_200_000, "price": 9990, "isUpgraded": true,
      "commitmentInfo": ["totalBillingPeriods": 12],
      "items": [["SKU": "a"], ["SKU": "b", "names": ["x", "y"]]],
    ]
    #expect(
      AppStoreText.fields(json).map { "\($0.name)=\($0.value)" } == [
        "purchaseDate=2025-06-01T12:00:00.000Z", "price=9990", "isUpgraded=true",
        "commitmentInfo.totalBillingPeriods=12", "items.1.SKU=a", "items.2.SKU=b",
        "items.2.names=x, y",
      ])
  }

  @Test(
    "prices",
    arguments: [
      (9990, "USD", "9.99 USD"), (0, "EUR", "0.00 EUR"), (1, nil, "0.001"),
      (-1500, "JPY", "-2 JPY"),
      (nil, "USD", ""), (12_345, nil, "12.345"),
    ] as [(Int64?, String?, String)])
  func prices(milliunits: Int64?, currency: String?, text: String) {
    #expect(AppStoreText.price(milliunits, currency) == text)
  }

  @Test("moments are RFC 3339, or a day that begins at midnight UTC")
  func moments() throws {
    #expect(try ArgumentText.moment("2025-06-01").description == "2025-06-01T00:00:00.000Z")
    #expect(
      try ArgumentText.moment("2025-06-01T12:00:00+02:00").description
        == "2025-06-01T10:00:00.000Z")
    for text in ["2025-02-30", ""] {
      #expect(throws: ValidationError.self) { try ArgumentText.moment(text) }
    }
  }

  // MARK: Support

  /// A valid key that Apple does not know.
  static let key = [
    "TENURE_APPSTORE_ISSUER_ID": "57246542-96fe-1a63-e053-0824d011072a",
    "TENURE_APPSTORE_KEY_ID": "2X9R4HXF34",
    "TENURE_APPSTORE_PRIVATE_KEY": P256.Signing.PrivateKey().pemRepresentation,
  ]

  static func run(
    _ arguments: [String], environment: [String: String]
  ) async throws -> ChildProcess.Outcome {
    try await withTemporaryDirectory { directory in
      try await ChildProcess.run(
        try TenureProgram.executable, ["app-store"] + arguments, environment: environment,
        in: directory)
    }
  }
}
