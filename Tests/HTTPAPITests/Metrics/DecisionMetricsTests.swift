import AppStore
import AppStoreSimulator
import CoreMetrics
import HTTPTypes
import JSONText
import LedgerStorage
import Observability
import Subscriptions
import Testing

@testable import HTTPAPI

/// Decisions are counted exactly once, after the commit.
struct DecisionMetricsTests {
  /// Runs a test whose intake, ledger and Apple count in a separate registry.
  private static func run(
    _ test: @escaping @Sendable (TestAPI, @Sendable () -> String) async throws -> Void
  ) async throws {
    let counted = PrometheusRegistry()
    try await withMetricsFactory(counted) {
      try await TestAPI.run { api in try await test(api) { counted.exposition() } }
    }
    #expect(counted.refused.isEmpty)
  }

  @Test func `submissions, decisions and Apple's answers`() async throws {
    try await Self.run { api, metrics in
      try await api.describe("monthly", "premium")
      try api.addCustomer("anna")
      try api.apple.simulation.buy("monthly", on: "anna")
      for _ in 0..<2 { #expect(try await api.submit("anna", from: "anna").status == 200) }
      let text = metrics()
      #expect(
        text.contains(
          #"tenure_ownership_decisions_total{rule="submitter",action="claimed"} 1"#)
          || text.contains(
            #"tenure_ownership_decisions_total{rule="submitter",action="decided"} 1"#)
      )
      #expect(text.contains(#"tenure_submissions_total{source="receipt",outcome="verified"} 2"#))
      #expect(text.contains(#"tenure_apple_receipt_statuses_total{status="0"} 2"#))
      #expect(
        text.contains(
          #"tenure_apple_requests_total{call="verifyReceipt",environment="production","#
            + #"outcome="succeeded"} 2"#))
      #expect(!text.contains("anna"))
    }
  }

  @Test func `what is posted as a notification, and by whomever`() async throws {
    try await Self.run { api, metrics in
      let path = "/v1/appstore/notifications"
      _ = try await api.call(.post, path, [:], as: .anonymous)
      _ = try await api.call(
        .post, path, ["notification_type": "MADE_UP", "password": "wrong"], as: .anonymous)
      let text = metrics()
      #expect(
        text.contains(
          #"tenure_notifications_total{version="none",type="none",outcome="refused"} 1"#))
      #expect(
        text.contains(
          #"tenure_notifications_total{version="1",type="none",outcome="refused"} 1"#))
      for reason in ["unreadable", "wrong_secret"] {
        #expect(text.contains(#"tenure_notifications_refused_total{reason="\#(reason)"} 1"#))
      }
      #expect(!text.contains("MADE_UP"))
    }
  }
}
