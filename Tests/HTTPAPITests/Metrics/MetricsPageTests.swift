import AppStore
import HTTPTypes
import Hummingbird
import HummingbirdTesting
import JSONText
import LedgerStorage
import Observability
import Postgres
import Subscriptions
import Testing

@testable import HTTPAPI

/// `GET /metrics`: counts by route, never by account.
struct MetricsPageTests {
  private func metrics(_ api: TestAPI) async throws -> String {
    let answer = try await api.get("/metrics", as: .admin)
    #expect(answer.status == 200)
    #expect(answer.headers[.contentType] == "text/plain; version=0.0.4; charset=utf-8")
    return answer.text
  }

  @Test func `requests are counted by method, route and class of status`() async throws {
    try await TestAPI.run { api in
      for account in ["petra", "paul"] {
        _ = try await api.get("/v1/accounts/\(account)/entitlements")
      }
      _ = try await api.get("/v1/accounts/petra/entitlements", as: .anonymous)
      _ = try await api.get("/no/such/path", as: .anonymous)
      let text = try await metrics(api)
      let route = "/v1/accounts/{account_id}/entitlements"
      #expect(
        text.contains(
          #"tenure_http_requests_total{method="GET",route="\#(route)",status="2xx"} 2"#))
      #expect(
        text.contains(
          #"tenure_http_requests_total{method="GET",route="\#(route)",status="4xx"} 1"#))
      #expect(
        text.contains(
          #"tenure_http_request_duration_seconds_count{route="\#(route)"} 3"#))
      #expect(
        text.contains(#"tenure_http_requests_total{method="GET",route="none",status="4xx"} 1"#))
      #expect(!text.contains("petra") && !text.contains("/no/such"))
      // The request for the metrics itself.
      #expect(text.contains("\ntenure_http_requests_in_flight 1\n"))
    }
  }

  @Test func `the series stay within a limit whatever is called`() async throws {
    try await TestAPI.run { api in
      let router = api.api.routes()
      api.api.site?.addRoutes(to: router)
      let paths = Set(router.routes.map(\.path.description))
      #expect(paths.count > 60)
      for path in paths.sorted() {
        let path = path.replacing(/\{[a-z_]+\}/, with: "00000000-0000-0000-0000-000000000000")
        for name in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "BREW"] {
          let method = try #require(HTTPRequest.Method(rawValue: name))
          _ = try await api.client.executeRequest(
            uri: path, method: method,
            headers: [.authorization: "Bearer admin-secret-for-trying"], body: nil)
        }
      }
      let series = try await metrics(api).split(separator: "\n").filter { !$0.hasPrefix("#") }
      #expect(series.count <= 1500)
      #expect(series.contains { $0.contains(#"method="other",route="none""#) })
    }
  }

  @Test func `reads that pass the router by are counted like others`() async throws {
    try await TestAPI.run(.live) { api in
      for _ in 0..<3 { _ = try await api.get("/v1/accounts/petra/entitlements") }
      let text = try await metrics(api)
      let route = "/v1/accounts/{account_id}/entitlements"
      #expect(
        text.contains(
          #"tenure_http_requests_total{method="GET",route="\#(route)",status="2xx"} 3"#))
      #expect(
        text.contains(
          #"tenure_http_request_duration_seconds_count{route="\#(route)"} 3"#))
      #expect(text.contains("\ntenure_http_requests_in_flight 1\n"))
    }
  }

  @Test func `the ledger is read, and not more often than every few seconds`() async throws {
    try await TestAPI.run { api in
      let first = try await metrics(api)
      #expect(first.contains("\ntenure_database_readable 1\n"))
      #expect(first.contains(#"tenure_jobs_parked{kind="reconcile"} 0"#))
      let version = TenureVersion.current
      #expect(first.contains("\ntenure_build_info{version=\"\(version)\"} 1\n"))
      #expect(first.contains("\ntenure_schema_version \(SchemaMigrator.currentVersion)\n"))
      try await api.database.execute(
        """
        INSERT INTO tenure.job (kind, subject, queue, run_at, created_at, discarded_at, last_error)
        VALUES ('reconcile', 'parked', 'maintenance', now(), now(), now(), 'a reason')
        """)
      let start = ContinuousClock.now
      let second = try await metrics(api)
      if ContinuousClock.now - start < .seconds(1) {
        #expect(second.contains(#"tenure_jobs_parked{kind="reconcile"} 0"#))
      }
    }
  }

  @Test func `a database that does not answer hides its numbers, and no others`() async throws {
    try await TestAPI.run { api in
      try await api.database.withTransaction { transaction in
        _ = try await transaction.query("LOCK TABLE tenure.job IN ACCESS EXCLUSIVE MODE")
        let start = ContinuousClock.now
        let text = try await metrics(api)
        #expect(ContinuousClock.now - start >= LedgerReading.deadline)
        #expect(text.contains("\ntenure_database_readable 0\n"))
        #expect(text.contains("# TYPE tenure_database_connections gauge"))
        #expect(!text.contains("tenure_jobs_due"))
        #expect(!text.contains("tenure_feed_position"))
      }
    }
  }
}
