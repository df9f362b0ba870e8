import AppStore
import AppStoreSimulator
import JSONText
import Logging
import Subscriptions

/// Answers of verifyReceipt, as they come over HTTP.
struct VerifyReceiptFuzz: FuzzSubject {
  let samples: FuzzSamples

  func input(_ random: inout SplitMix64) -> FuzzInput {
    let value = random.mutated(
      random.element(samples.receiptAnswers), donors: samples.receiptAnswers)
    return FuzzInput(bytes: random.chance(0.6) ? value.bytes : random.mutated(value.bytes))
  }

  func accepts(_ bytes: [UInt8]) async throws -> Bool {
    let apps = try AppStoreApps([AppStoreApp(bundleID: FuzzSamples.bundleID)])
    let verifier = ReceiptVerifier(
      transport: OneAnswer(body: bytes), apps: apps, timeout: .seconds(10),
      logger: Logger(label: "fuzz") { _ in SwiftLogNoOpLogHandler() },
      now: { FuzzSamples.signedAt })
    guard case .verified(let receipt) = await verifier.verify("cmVjZWlwdA==").verdict else {
      return false
    }
    guard Set(receipt.records.map(\.key)).count == receipt.records.count else {
      throw FuzzFinding("A receipt has the same transaction twice.")
    }
    return true
  }

  /// Says the same to everybody.
  private struct OneAnswer: AppStoreTransport {
    let body: [UInt8]

    func send(_ request: AppStoreRequest) async throws -> AppStoreResponse {
      AppStoreResponse(
        status: 200, headers: [HTTPHeader("Content-Type", "application/json")], body: body)
    }
  }
}
