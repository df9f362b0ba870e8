import AppStore
import Foundation
import Logging
import Subscriptions
import Testing

/// The moment at which every test's answer arrives, where Apple doesn't say.
let answeredAt = Timestamp(milliseconds: 1_790_000_000_000)

/// Apps without secrets.
func apps(_ bundleIDs: String...) throws -> AppStoreApps {
  try AppStoreApps(bundleIDs.map { try AppStoreApp(bundleID: $0) })
}

extension ReceiptVerifier {
  init(
    _ transport: any AppStoreTransport, apps: AppStoreApps,
    endpoints: AppleURLs = .verifyReceipt, timeout: Duration = .seconds(240),
    logger: Logger = Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() })
  ) {
    self.init(
      transport: transport, endpoints: endpoints, apps: apps, timeout: timeout, logger: logger,
      now: { answeredAt })
  }
}

/// The verdict on a receipt for which Apple always answers `answer`; the app is `com.example.app`.
func verdict(on answer: JSON) async throws -> ReceiptVerdict {
  let transport = ScriptedTransport { _ in try .json(answer) }
  let verifier = ReceiptVerifier(transport, apps: try apps("com.example.app"))
  return await verifier.verify("cmVjZWlwdA==").verdict
}

/// Reads that answer as a verified receipt.
func receipt(_ answer: JSON) async throws -> VerifiedReceipt {
  try await verdict(on: answer).receipt
}

extension ReceiptVerdict {
  var receipt: VerifiedReceipt {
    get throws {
      guard case .verified(let receipt) = self else {
        Issue.record("not verified: \(self)")
        throw CancellationError()
      }
      return receipt
    }
  }

  var rejection: ReceiptRejection? {
    guard case .rejected(let rejection) = self else { return nil }
    return rejection
  }

  var retry: ReceiptRetry? {
    guard case .retry(let retry) = self else { return nil }
    return retry
  }

  var misconfiguration: (reason: String, appleStatus: Int?)? {
    guard case .misconfigured(let reason, let status) = self else { return nil }
    return (reason, status)
  }
}

/// A published answer.
func sample(_ name: String) throws -> [UInt8] {
  let url = try #require(
    Bundle.module.url(forResource: name, withExtension: "json", subdirectory: "Samples"))
  return Array(try Data(contentsOf: url))
}

extension Timestamp {
  /// A moment in RFC 3339, for tables.
  init(_ text: String) throws {
    self = try #require(Timestamp(rfc3339: text), "\(text)")
  }
}

/// A moment in milliseconds, for tables.
func at(_ milliseconds: Int64) -> Timestamp { Timestamp(milliseconds: milliseconds) }
