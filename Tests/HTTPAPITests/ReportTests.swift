import AppStore
import HTTPTypes
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
          == Report.allCases.map(\.rawValue))
    }
  }

  @Test(arguments: Report.allCases)
  func `a report is given as JSON and as CSV`(report: Report) async throws {
    try await TestAPI.run { api in
      // Something to report.
      _ = try await api.submit("anna", receipt: "bm9uZQ==")
      _ = try await api.send(.post, "/v1/appstore/notifications", Array("{}".utf8), as: .nobody)
      for query in ["", "&items=true", "&days=1&limit=1", "&include_sandbox=true"] {
        let path = "/v1/reports/\(report.rawValue)?format="
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

  @Test func `what there is not is said`() async throws {
    try await TestAPI.run { api in
      let unknown = try await api.get("/v1/reports/weather", as: .admin)
      #expect(unknown.status == 404)
      #expect(unknown.code == "unknown_report")
      for (query, field) in [
        ("format=xml", "format"), ("days=0", "days"), ("limit=10001", "limit"),
        ("items=yes", "items"), ("include_sandbox=1", "include_sandbox"),
      ] {
        let answer = try await api.get("/v1/reports/intake?\(query)", as: .admin)
        #expect(answer.status == 400)
        #expect(answer.field == field)
      }
    }
  }
}
