import AppStore
import Foundation
import Secrets
import Subscriptions
import Testing

/// Secrets and personal data stay out of the log, at every level.
struct LogTests {
  @Test func `logs and descriptions name no receipt, secret or token`() async throws {
    let log = CollectedLog()
    let token = "7e3fb20b-4cdb-47cc-936d-99d65f608138"
    let items: JSON = [
      month.with(["app_account_token": .text(token)]),
      month.with(["transaction_id": "12", "app_account_token": "customer-17"]),
      month.with(["transaction_id": "13", "quantity": "0xsecretquantity"]),
    ]
    let good = answer(latest: items, receipt: ["bundle_id": .null])
      .with(["latest_receipt": "bGF0ZXN0"])
    let app = try AppStoreApp(bundleID: "com.example.app", appleID: 17, sharedSecret: "5ec4e7")
    for answer: JSON in [good, ["status": 21002], ["status": 21004], ["status": 21003], [:]] {
      let transport = ScriptedTransport { _ in try .json(answer) }
      let verifier = ReceiptVerifier(
        transport, apps: try AppStoreApps([app]), logger: log.logger)
      let verification = await verifier.verify("cmVjZWlwdA==")
      #expect(!"\(verification.exchanges)".contains("5ec4e7"))
    }
    let lines = log.lines
    #expect(lines.count >= 7)
    let body = VerifyReceiptRequest(receiptData: "cmVjZWlwdA==", password: "5ec4e7")
    let request = AppStoreRequest(
      method: "POST", url: "u", headers: [], body: Array("5ec4e7".utf8), timeout: .zero)
    let descriptions = [
      "\(app)", "\(try AppStoreApps([app]))", String(reflecting: app),
      "\(body)", "\(request)", "\(body.password as Any)", String(reflecting: body.password),
    ]
    for line in lines + descriptions {
      for secret in ["5ec4e7", "cmVjZWlwdA", "bGF0ZXN0", token, "customer-17", "secretquantity"] {
        #expect(!line.lowercased().contains(secret.lowercased()), "\(line)")
      }
    }
  }

  @Test func `what could not be read is logged, and an app that had to be assumed`() async throws {
    let log = CollectedLog()
    let answer = answer(
      latest: [month.with(["quantity": "many"]), month], receipt: ["bundle_id": .null])
    let transport = ScriptedTransport { _ in try .json(answer) }
    _ = await ReceiptVerifier(transport, apps: try apps("com.example.app"), logger: log.logger)
      .verify("cmVjZWlwdA==")
    #expect(log.lines.contains { $0.hasPrefix("warning") && $0.contains("quantity") })
    #expect(log.lines.contains { $0.hasPrefix("notice") && $0.contains("com.example.app") })
  }
}
