import AppStore
import AppStoreSimulator
import HTTPTypes
import JSONText
import Reports
import Testing

@testable import HTTPAPI

/// Reports over HTTP.
struct ReportTests {
  @Test func `all reports are listed`() async throws {
    try await TestAPI.run { api in
      let answer = try await api.get("/v1/reports", as: .admin)
      #expect(
        answer["reports"]?.array?.compactMap { $0["name"]?.string }
          == Report.all.map(\.name))
      for report in answer["reports"]?.array ?? [] {
        #expect(report["definition"]?.string?.isEmpty == false, "\(report)")
      }
    }
  }

  @Test func `every report is given, and whatever can be chosen of it`() async throws {
    try await TestAPI.run { api in
      let choices: [ReportParameter: String] = [
        .from: "2026-01-01", .to: "2026-02-28", .bucket: "week", .timeZone: "Europe/Berlin",
        .product: "premium", .environment: "sandbox", .includeFamilyShared: "true",
        .includeTrials: "true", .includeGrants: "true", .by: "product", .dateOf: "charge",
        .reportingCurrency: "EUR", .knownAt: "2026-03-01T00:00:00Z",
        .asOf: "2026-03-01T00:00:00Z", .days: "7", .period: "1", .includeSandbox: "true",
      ]
      for report in Report.all {
        let path = "/v1/reports/\(report.name)?limit=10"
        let query = report.parameters.compactMap { parameter in
          choices[parameter].map { "&\(parameter.rawValue)=\($0)" }
        }.joined()
        for query in ["", "&items=true", query, query + "&items=true"] {
          var answer = try await api.get(path + query, as: .admin)
          // It is asked again while it is worked at, as on a machine that has much to do.
          while answer.status == 202 { answer = try await api.get(path + query, as: .admin) }
          #expect(answer.status == 200, "\(path + query): \(answer.text)")
          #expect(answer["report"]?.string == report.name)
        }
      }
    }
  }

  @Test func `a report is given as JSON and as CSV`() async throws {
    let report = Report.intake
    try await TestAPI.run { api in
      // Something to report.
      _ = try await api.submit("anna", receipt: "e25vbmV9")
      _ = try await api.send(.post, "/v1/appstore/notifications", Array("{}".utf8), as: .anonymous)
      for query in ["", "&items=true", "&days=1&limit=1", "&include_sandbox=true"] {
        let path = "/v1/reports/\(report.name)?format="
        let json = try await api.get(path + "json" + query, as: .admin)
        #expect(json.status == 200)
        let rows = try #require(json["rows"]?.array)
        #expect(!rows.isEmpty)
        #expect(json["cut_short"] == .bool(query.contains("limit")))
        let csv = try await api.get(path + "csv" + query, as: .admin)
        #expect(csv.headers[.contentType] == "text/csv; charset=utf-8")
        let lines = csv.text.split(separator: "\r\n")
        #expect(lines.count == rows.count + 1)
        #expect(lines.first.map(String.init) == rows[0].keys.joined(separator: ","))
      }
    }
  }

  @Test func `a caller that would wait too long learns that the report is being made`() async throws
  {
    try await TestAPI.run { api in
      func ask(_ preference: String, for report: String = "subscriptions") async throws -> Answer {
        try await api.call(
          .get, "/v1/reports/\(report)", as: .admin,
          headers: [try #require(HTTPField.Name("Prefer")): preference])
      }
      // However fast it is, it is not there at once.
      let early = try await ask("wait=0")
      #expect(early.status == 202)
      #expect(early["status"] == "working")
      #expect(early.headers[.retryAfter] == "2")
      let there = try await ask("respond-async; Wait = 60")
      #expect(there.status == 200)
      #expect(there["report"] == "subscriptions")
      // It is kept, and so there at once now.
      #expect(try await ask("wait=0").content == there.content)
      // A report that finishes in time is not cached.
      let first = try await ask("wait=60", for: "trials")
      #expect(first.status == 200)
      api.apple.simulation.clock.advance(by: .seconds(1))
      let second = try await ask("wait=60", for: "trials")
      #expect(second["as_of"] != nil)
      #expect(second["as_of"] != first["as_of"])
    }
  }

  @Test func `what there is not is said`() async throws {
    try await TestAPI.run { api in
      let unknown = try await api.get("/v1/reports/weather", as: .admin)
      #expect(unknown.status == 404)
      #expect(unknown.code == "unknown_report")
      for (query, field) in [
        ("format=xml", "format"), ("days=0", "days"), ("limit=10001", "limit"),
        ("items=yes", "items"), ("include_sandbox=1", "include_sandbox"),
        ("known_at=2026-03-01T00:00:00Z", "known_at"), ("column=number", "column"),
        ("form=2026-03-01", "form"), ("format=json&include_trials=false", "include_trials"),
      ] {
        let answer = try await api.get("/v1/reports/intake?\(query)", as: .admin)
        #expect(answer.status == 400)
        #expect(answer.field == field)
      }
      let typo = try await api.get("/v1/reports/intake?form=2026-03-01", as: .admin)
      #expect(typo["detail"]?.string?.contains("use format, items, limit, from, to,") == true)
      for (query, field) in [
        ("from=2026-02-30", "from"), ("from=2026-03-02&to=2026-03-01", "from"),
        ("from=0001-01-01&to=2026-03-01", "from"), ("to=tomorrow", "to"),
        ("time_zone=UTC%00", "time_zone"), ("product=a%00", "product"), ("bucket=year", "bucket"),
        ("time_zone=Mars/Phobos", "time_zone"),
        ("time_zone=UTC%2B3", "time_zone"), ("product=", "product"),
        ("environment=xcode", "environment"), ("reporting_currency=eur", "reporting_currency"),
        ("known_at=yesterday", "known_at"), ("by=country", "by"), ("by_product=true", "by_product"),
        ("column=churned_milliunits", "column"), ("items=true&column=weather", "column"),
        ("days=3", "days"), ("period=1", "period"),
      ] {
        let answer = try await api.get("/v1/reports/mrr?\(query)", as: .admin)
        #expect(answer.status == 400, "\(query)")
        #expect(answer.field == field, "\(query)")
      }
    }
  }
}
