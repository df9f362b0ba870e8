import AppStore
import Crypto
import Foundation
import JSONText
import Subscriptions
import Testing

/// Secrets and personal data stay out of the log, at every level.
struct ServerAPILogTests {
  @Test func `logs and descriptions name no token, key, id or signed text`() async throws {
    let log = CollectedLog()
    let token = "7e3fb20b-4cdb-47cc-936d-99d65f608138"
    let payload = Signed.transaction.with(["appAccountToken": .string(token)])
    let signed = try DraftJWS(payload).text
    let forged = try DraftJWS(payload).with { $0.leaf = .forger }.text
    var descriptions = ["\(ScriptedServerAPI.key)", String(reflecting: ScriptedServerAPI.key)]
    for (response, _) in [
      (AppStoreResponse.api(["signedTransactionInfo": .string(signed)]), 0),
      (.api(["signedTransactionInfo": .string(forged)]), 1), (.refusal(401), 2),
      (.refusal(404, code: 4_040_010), 3), (.refusal(429, code: 4_290_000), 4),
      (AppStoreResponse(status: 200, body: Array(signed.utf8)), 5),
    ] {
      let api = ScriptedServerAPI(response)
      let client = try api.client(logger: log.logger)
      do {
        let answer = try await client.transactionInfo("1177225588", of: "com.example.app")
        descriptions.append("\(answer.content)")
      } catch {
        descriptions.append("\(error)")
      }
      _ = try? await client.setAppAccountToken(
        try #require(UUID(uuidString: token)), on: "1177225588", of: "com.example.app")
      let secrets =
        api.asked.map(\.token)
        + [
          signed, forged, token, "1177225588", ScriptedServerAPI.privateKey.pemRepresentation,
          String(signed.split(separator: ".")[1].prefix(40)),
        ]
      for line in log.lines + descriptions {
        for secret in secrets {
          #expect(!line.lowercased().contains(secret.lowercased()), "\(line)")
        }
      }
    }
    #expect(log.lines.count >= 12)
    #expect(log.lines.contains { $0.contains("Get Transaction Info") && $0.contains("404") })
  }
}
