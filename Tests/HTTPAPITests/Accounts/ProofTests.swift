import AppStoreSimulator
import Foundation
import HTTPTypes
import JSONText
import LedgerStorage
import Subscriptions
import Testing

@testable import HTTPAPI

/// Checkpoints, and the proof of a charge's entries.
struct ProofTests {
  @Test func `a charge's entries are proven up to the latest checkpoint`() async throws {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      try api.addCustomer("anna")
      let bought = try api.apple.simulation.buy("monthly", on: "anna")
      _ = try await api.submit("4711", from: "anna")
      let none = try await api.get("/v1/checkpoints", as: .admin)
      #expect(none["checkpoints"]?.array?.isEmpty == true)

      let (checkpoint, audit) = try await api.ledger.auditor.checkpoint(age: .zero - .minutes(1))
      #expect(audit.differences.map(\.description) == [])
      let listed = try await api.get("/v1/checkpoints", as: .admin)
      #expect(listed["checkpoints"]?.array?.count == 1)
      #expect(listed["checkpoints"]?[0]["number"] == 1)
      #expect(listed["next"] == .null)

      let path = "/v1/transactions/\(bought.transactionID)/evidence"
      let entries = try await api.get(path, as: .admin)
      #expect(entries["checkpoint"] == .null)
      let answer = try await api.get("\(path)?proof=1", as: .admin)
      #expect(answer["entries"] == entries["entries"])
      let proof = try JSONDecoder().decode(LedgerProof.self, from: Data(answer.body))
      try proof.verify()
      #expect(proof.checkpoint == checkpoint)
      #expect(String(proof.covered) == proof.entries.last?.fields[3])
      #expect(try await api.call(.get, "\(path)?proof=yes", as: .admin).status == 400)
      #expect(try await api.call(.get, path).status == 403)
      #expect(try await api.call(.get, "/v1/checkpoints").status == 403)
    }
  }
}
