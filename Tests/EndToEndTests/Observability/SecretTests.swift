import AppStore
import BackgroundJobs
import Crypto
import HTTPAPI
import Postgres
import Secrets
import Testing

@testable import Bootstrap
@testable import Development
@testable import Intake
@testable import tenure

@Suite("Secrets are not printed")
struct SecretTests {
  /// Everything that Swift prints of a value without being asked for its members by name.
  private static func printed(_ value: some Any) -> String {
    var dumped = ""
    dump(value, to: &dumped)
    return ["\(value)", String(describing: value), String(reflecting: value), dumped]
      .joined(separator: "\n")
  }

  @Test func `a secret shows a placeholder and compares its bytes`() {
    let secret: Secret<String> = "hunter2-hunter2"
    #expect(!Self.printed(secret).contains("hunter2"))
    #expect(!Self.printed([secret: [Optional(secret)]]).contains("hunter2"))
    #expect(!Self.printed(Secret(["name": "hunter2-hunter2"])).contains("hunter2"))
    #expect(secret == Secret("hunter2-hunter2"))
    #expect(Secret("\u{E9}") != Secret("e\u{301}"))
    #expect(Set([Secret("\u{E9}"), Secret("e\u{301}"), Secret("\u{E9}")]).count == 2)
  }

  @Test func `what holds secrets can be printed`() async throws {
    let secrets = SecretSettings.all
    let source = try await SettingSource(
      flags: ["DATABASE_URL": SecretSettings.databaseURL],
      environment: SecretSettings.environment(databaseURL: SecretSettings.databaseURL))
    let settings = try Settings(source)
    let pool = ConnectionPool.Configuration(uri: try #require(settings.databaseURL))
    let values: [any Sendable] = [
      source, settings, pool,
      VerifyReceiptRequest(receiptData: "", password: "5ecret-of-apple"), try settings.apiKeys(),
      try settings.appStoreApps(),
      try #require(settings.webhook), WebhookSender(to: try #require(settings.webhook)),
      try settings.neededServerAPIKey(), try #require(settings.traces),
    ]
    for value in values {
      let text = Self.printed(value)
      for secret in secrets { #expect(!text.contains(secret), "\(type(of: value))") }
    }
  }
}

/// Settings with a secret in each place that can have one.
enum SecretSettings {
  static let databaseURL = "postgresql://tenure:5ecret-of-db@127.0.0.1:1/none"
  /// The key's lines, as a log that escapes line ends would show them.
  private static let privateKey = P256.Signing.PrivateKey().pemRepresentation
  private static let strings = [
    "5ecret-of-db", "5ecret-of-an-app-server", "5ecret-of-an-administrator", "5ecret-of-apple",
    "5ecret-of-webhooks-1", "5ecret-of-webhooks-2", "5ecret-token-of-url", "5ecret-of-collector",
  ]

  /// Texts that no output may contain.
  static let all =
    strings + privateKey.split(separator: "\n").map(String.init).filter { !$0.hasPrefix("-----") }

  /// The settings of a program; the URL of the database names the password above.
  static func environment(databaseURL: String) -> [String: String] {
    [
      "DATABASE_URL": databaseURL, "TENURE_BUNDLE_IDS": "com.example.app",
      "TENURE_API_KEYS": "shop:app:5ecret-of-an-app-server,ops:admin:5ecret-of-an-administrator",
      "TENURE_APPSTORE_SHARED_SECRET": "5ecret-of-apple",
      "TENURE_APPSTORE_ISSUER_ID": "57246542-96fe-1a63-e053-0824d011072a",
      "TENURE_APPSTORE_KEY_ID": "2X9R4HXF34", "TENURE_APPSTORE_PRIVATE_KEY": privateKey,
      "TENURE_WEBHOOK_URL": "http://127.0.0.1:1/events?token=5ecret-token-of-url",
      "TENURE_WEBHOOK_SECRET": "5ecret-of-webhooks-1,5ecret-of-webhooks-2",
      "TENURE_WEBHOOK_ALLOW_PRIVATE": "on", "TENURE_OTLP_ENDPOINT": "http://127.0.0.1:1",
      "TENURE_OTLP_HEADERS": "x-token=5ecret-of-collector",
    ]
  }
}
