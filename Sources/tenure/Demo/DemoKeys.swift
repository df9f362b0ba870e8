import Foundation

/// The two API keys of one demo.
struct DemoKeys: Sendable {
  let app = secret("app")
  let admin = secret("admin")

  /// The keys as they are configured.
  var setting: String { "app:app:\(app),admin:admin:\(admin)" }

  /// A secret that nobody takes for one to keep.
  private static func secret(_ role: String) -> String {
    "demo-\(role)-\(UUID().uuidString.lowercased().prefix(8))"
  }
}
