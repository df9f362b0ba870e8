import AppStore
import AppStoreSimulator
import HTTPTypes
import JSONText
import LedgerStorage
import Postgres
import Observability
import Testing

@testable import HTTPAPI

struct HealthTests {
  @Test func `alive and ready`() async throws {
    try await TestAPI.run { api in
      let alive = try await api.get("/healthz", as: .anonymous)
      #expect(alive.text == #"{"status":"alive","version":"\#(TenureVersion.current)"}"#)
      #expect(try await Self.untilReady(api).text == #"{"status":"ready"}"#)
    }
  }

  /// Asks until the answer is yes: on a busy machine the database may take longer than is waited.
  @discardableResult
  private static func untilReady(_ api: TestAPI) async throws -> Answer {
    var answer = try await api.get("/readyz", as: .anonymous)
    for _ in 0..<100 where answer.status != 200 {
      answer = try await api.get("/readyz", as: .anonymous)
    }
    #expect(answer.status == 200)
    return answer
  }

  @Test func `a schema of another version is not ready, and says what to do`() async throws {
    try await TestAPI.run { api in
      _ = try await api.database.execute(
        "INSERT INTO tenure.schema_version VALUES (1000, now(), 1000)")
      let answer = try await api.get("/readyz", as: .anonymous)
      #expect(answer.status == 503)
      #expect(answer.code == "unavailable")
      #expect(answer["detail"]?.string?.contains("update Tenure") == true)
      #expect(try await api.get("/healthz", as: .anonymous).status == 200)
    }
  }

  @Test func `a database that does not answer is not waited for`() async throws {
    try await TestAPI.run { api in
      let start = ContinuousClock.now
      // Another session locks the table, as a migration does.
      try await api.database.withTransaction { transaction in
        _ = try await transaction.query(
          "LOCK TABLE tenure.schema_version IN ACCESS EXCLUSIVE MODE")
        let answer = try await api.get("/readyz", as: .anonymous)
        #expect(answer.status == 503)
        #expect(answer.code == "unavailable")
      }
      let waited = ContinuousClock.now - start
      #expect(waited >= .seconds(2))
      #expect(waited < .seconds(240))
      try await Self.untilReady(api)
    }
  }
}
