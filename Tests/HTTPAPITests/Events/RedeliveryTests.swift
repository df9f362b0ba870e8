import AppStore
import HTTPTypes
import JSONText
import LedgerStorage
import Postgres
import Subscriptions
import Testing

@testable import HTTPAPI

/// `POST /v1/events/{event_id}/redelivery`, for administrators.
struct RedeliveryTests {
  private func redeliver(_ id: String, _ api: TestAPI) async throws -> Answer {
    try await api.call(.post, "/v1/events/\(id)/redelivery", as: .admin)
  }

  private func insertEvent(_ api: TestAPI) async throws -> Int64 {
    try await api.database.query(
      """
      INSERT INTO tenure.event (type, occurred_at, data) VALUES ('order.expired', now(),
        '{"order_id":"0192f1c5-2b7e-4c1d-9a53-8f0d6d1c6c11","product_id":"monthly"}')
      RETURNING event_id
      """
    ).decodeOnly(Int64.self)
  }

  @Test func `an event is pushed again, and waits until a worker has done it`() async throws {
    try await TestAPI.run { api in
      _ = try await api.ledger.webhooks.pushEvents(at: .distantPast)
      let id = try await insertEvent(api)
      for _ in 0..<2 {
        let answer = try await redeliver("\(id)", api)
        #expect(answer.status == 202)
        #expect(answer["event_id"] == .string("\(id)"))
      }
      #expect(try await api.ledger.webhooks.webhookStatus().waiting == 1)
      // Being new, it would have been pushed anyway: it is not pushed twice.
      _ = try await api.ledger.webhooks.pushEvents(at: .distantPast)
      #expect(try await api.ledger.webhooks.webhookStatus().waiting == 1)
    }
  }

  @Test func `what is no event is refused, and so is every event without a webhook`() async throws {
    try await TestAPI.run { api in
      let id = try await insertEvent(api)
      let off = try await redeliver("\(id)", api)
      #expect(off.status == 409)
      #expect(off.code == "webhooks_off")
      _ = try await api.ledger.webhooks.pushEvents(at: .distantPast)
      let unknown = try await redeliver("\(id + 1)", api)
      #expect(unknown.status == 404)
      #expect(unknown.code == "unknown_event")
      for text in ["abc", "1.5", "99999999999999999999"] {
        let none = try await redeliver(text, api)
        #expect(none.status == 400)
        #expect(none.field == "event_id")
      }
    }
  }
}

extension Timestamp {
  fileprivate static let distantPast = Timestamp(milliseconds: 0)
}
