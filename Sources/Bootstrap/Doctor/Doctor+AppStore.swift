import AppStore
import BackgroundJobs
import Foundation
import HTTPAPI
import Secrets
import Subscriptions
import Synchronization

/// Checks that Apple is reachable and accepts the key.
extension Doctor {
  /// An ID that no transaction has; Apple answers "not found" only if it accepts the key.
  private static let unknownTransaction = TransactionID("1")
  private static let timeout: Duration = .seconds(10)

  func appleFindings() async -> [DoctorFinding] {
    do {
      return try await withHTTPClient { client in
        let transport = DatedTransport(HTTPClientTransport(client: client))
        var findings: [DoctorFinding] = []
        for environment in Environment.allCases {
          findings.append(await verifyReceipt(in: environment, over: transport))
        }
        findings += await serverAPI(over: transport)
        if !settings.isClockSet, let (skew, precision) = transport.skew {
          findings.append(
            Doctor.clockFinding("apple.clock", of: "Apple", skew: skew, precision: precision))
        }
        return findings
      }
    } catch {
      return [
        .fault("apple", "The check failed: \(error).", remedy: "This is a bug: please report it.")
      ]
    }
  }

  /// Sends an empty receipt, which Apple answers with an error status in the body.
  private func verifyReceipt(
    in environment: Environment, over transport: any AppStoreTransport
  ) async -> DoctorFinding {
    let check = "apple.verify_receipt.\(environment.rawValue)"
    let request = AppStoreRequest(
      method: "POST", url: settings.verifyReceipt[environment],
      headers: [HTTPHeader("Content-Type", "application/json")],
      body: Array(#"{"receipt-data":""}"#.utf8),
      timeout: min(settings.appStoreTimeout, Self.timeout))
    do {
      let response = try await transport.send(request)
      guard response.status == 200 else {
        return .fault(
          check, "verifyReceipt (\(environment.rawValue)) answered HTTP \(response.status).",
          remedy: "Check TENURE_APPSTORE_VERIFY_RECEIPT_URL, its sandbox counterpart and proxies. "
            + "Until then receipts stay pending.")
      }
      return .ok(check, "verifyReceipt is reachable (\(environment.rawValue)).")
    } catch {
      return .fault(
        check, "verifyReceipt (\(environment.rawValue)): \(error)",
        remedy: "Allow connections to \(settings.verifyReceipt[environment]). Until then receipts "
          + "stay pending.")
    }
  }

  private func serverAPI(over transport: any AppStoreTransport) async -> [DoctorFinding] {
    guard let key = settings.serverAPIKey, let apps = try? settings.appStoreApps() else {
      return []
    }
    let now = settings.clock.now
    let api = AppStoreServerAPI(
      transport: transport, addresses: settings.serverAPIAddresses, key: key,
      verifier: SignedDataVerifier(
        roots: settings.trustedRoots, apps: apps, acceptsXcode: settings.acceptsXcode, now: now),
      timeout: min(settings.appStoreTimeout, Self.timeout), logger: logger, now: now)
    var findings: [DoctorFinding] = []
    for app in apps.all {
      for environment in Environment.allCases {
        findings.append(await accepts(app.bundleID, in: environment, api))
      }
    }
    return findings
  }

  private func accepts(
    _ bundleID: String, in environment: Environment, _ api: AppStoreServerAPI
  ) async -> DoctorFinding {
    let check = "apple.server_api.\(environment.rawValue)"
    do {
      _ = try await api.transactionInfo(Self.unknownTransaction, of: bundleID, in: environment)
      return .ok(check, "Apple accepts the key for \(bundleID) (\(environment.rawValue)).")
    } catch let error as AppStoreServerAPIError {
      switch error.kind {
      case .notFound, .invalidRequest:
        return .ok(check, "Apple accepts the key for \(bundleID) (\(environment.rawValue)).")
      case .unauthorized where environment == .production:
        return .warning(
          check, "\(error)",
          remedy: "Ignore this until the app is released: until then production does not know it. "
            + "Otherwise check the key, the issuer ID and the bundle ID.")
      case .unauthorized:
        return .fault(
          check, "\(error)",
          remedy:
            "Check in App Store Connect that the key is active and that it and \(bundleID) belong "
            + "to the same team.")
      case .rateLimited, .unavailable:
        return .warning(check, "\(error)", remedy: "Try again later.")
      case .forbidden, .unreachable, .unexpectedAnswer, .misconfigured:
        return .fault(
          check, "\(error)",
          remedy: "Allow connections to Apple, and check TENURE_APPSTORE_API_URL and "
            + "TENURE_APPSTORE_SANDBOX_API_URL.")
      }
    } catch {
      return .fault(check, "\(error)", remedy: "Try again.")
    }
  }
}

/// Checks that the settings are complete and consistent.
extension Doctor {
  func settingFindings() -> [DoctorFinding] {
    oddSettings() + [apiKeys(), apps(), sharedSecrets(), privateKey()] + rootCertificates()
  }

  /// Settings that are misspelt or for development only.
  private func oddSettings() -> [DoctorFinding] {
    [
      (
        !settings.unread.isEmpty, "unread",
        "Unknown settings: \(settings.unread.joined(separator: ", ")).",
        "Check the spelling of these names; they have no effect."
      ),
      (
        settings.acceptsXcode, "xcode",
        "Transactions signed by Xcode are accepted; anyone can forge them.",
        "Unset TENURE_APPSTORE_ACCEPT_XCODE outside of development."
      ),
      (
        settings.isClockSet, "clock", "The time is read from a file.",
        "Unset TENURE_CLOCK_FILE outside of development."
      ),
      (
        settings.databaseURL == nil, "database",
        "The database is a private one in \(settings.dataDirectory).",
        "Set DATABASE_URL: the private database is for evaluation only."
      ),
    ].filter(\.0).map { .warning("settings.\($1)", $2, remedy: $3) }
  }

  private func apiKeys() -> DoctorFinding {
    let check = "settings.api_keys"
    do {
      _ = try settings.apiKeys()
      return .ok(check, "API keys are configured.")
    } catch {
      return .fault(
        check, "\(error).", remedy: "Set TENURE_API_KEYS. Only `tenure serve` needs it.")
    }
  }

  private func apps() -> DoctorFinding {
    let check = "settings.apps"
    do {
      let ids = try settings.appStoreApps().all.map(\.bundleID)
      return .ok(check, "Apps served: \(ids.joined(separator: ", ")).")
    } catch {
      return .fault(check, "\(error).", remedy: "Set TENURE_BUNDLE_IDS or TENURE_APPS.")
    }
  }

  private func sharedSecrets() -> DoctorFinding {
    let check = "settings.shared_secret"
    let missing = settings.apps.filter { $0.sharedSecret == nil }.map(\.bundleID)
    guard missing.isEmpty else {
      return .warning(
        check, "No shared secret for \(missing.joined(separator: ", ")).",
        remedy: "Set TENURE_APPSTORE_SHARED_SECRET: without it Apple verifies no receipt with "
          + "subscriptions, and version 1 notifications are refused.")
    }
    let odd = settings.apps.filter { $0.sharedSecret.map(Self.isUsual) == false }.map(\.bundleID)
    guard odd.isEmpty else {
      return .warning(
        check, "The shared secret of \(odd.joined(separator: ", ")) does not look like one.",
        remedy: "Copy it from App Store Connect into TENURE_APPSTORE_SHARED_SECRET: 32 hexadecimal "
          + "digits. With a wrong one Apple verifies no receipt with subscriptions.")
    }
    return .ok(
      check, "Every app has a shared secret. It was not tried: Apple checks it only with receipts.")
  }

  private static func isUsual(_ secret: Secret<String>) -> Bool {
    secret.revealed.wholeMatch(of: /[0-9a-f]{32}/) != nil
  }

  private func privateKey() -> DoctorFinding {
    let check = "settings.app_store_key"
    guard settings.serverAPIKey != nil else {
      return .warning(
        check, "No key for the App Store Server API.",
        remedy: "Create one in App Store Connect (Users and Access, Integrations, In-App Purchase) "
          + "and set TENURE_APPSTORE_ISSUER_ID, _KEY_ID and _PRIVATE_KEY. Without it missed "
          + "notifications are not found, and polling needs receipts.")
    }
    guard let path = settings.serverAPIKeyPath,
      let attributes = try? FileManager.default.attributesOfItem(atPath: path),
      let mode = (attributes[.posixPermissions] as? NSNumber)?.intValue
    else { return .ok(check, "The key for the App Store Server API is valid.") }
    guard mode & 0o077 == 0 else {
      return .warning(
        check, "Other users can read the key file (mode \(String(mode, radix: 8))).",
        remedy: "Run chmod 600 on it, and chown to the user that runs Tenure.")
    }
    return .ok(
      check, "The key for the App Store Server API is valid, and only its owner can read it.")
  }

  private func rootCertificates() -> [DoctorFinding] {
    let now = settings.clock.now()
    let roots = settings.trustedRoots.ends + settings.trustedReceiptRoots.ends
    return Dictionary(roots.map { ($0.subject, $0.end) }) { min($0, $1) }
      .sorted { $0.key < $1.key }.map { subject, end in
        let check = "settings.root_certificates"
        let remedy =
          "Download Apple's current root certificates from its PKI page and name their file in "
          + "TENURE_APPSTORE_ROOT_CERTIFICATES."
        if end <= now {
          return .fault(check, "The root certificate \(subject) expired at \(end).", remedy: remedy)
        }
        if end - now < .days(90) {
          return .warning(
            check, "The root certificate \(subject) expires at \(end).", remedy: remedy)
        }
        return .ok(check, "The root certificate \(subject) is valid until \(end).")
      }
  }
}

/// Checks that the webhook's receiver responds.
extension Doctor {
  func finding(on receiver: WebhookReceiver) async -> DoctorFinding {
    let check = "webhook.receiver"
    let sender = WebhookSender(to: receiver)
    let reached = await sender.reach()
    await sender.shutDown()
    switch reached {
    case .success(300..<400):
      return .fault(
        check, "The receiver redirects, which deliveries do not follow.",
        remedy: "Set TENURE_WEBHOOK_URL to the redirect's target.")
    case .success(let status) where status >= 500 && status != 501:
      return .warning(
        check, "The receiver responds with a server error (HTTP \(status) to HEAD).",
        remedy: "See its log. Deliveries are retried for three days, then given up.")
    case .success(let status):
      // Most receivers accept only POST; an error that says so, even 501, is enough.
      return .ok(
        check,
        "The webhook's receiver is reachable (HTTP \(status) to HEAD). Only a delivery shows that "
          + "it accepts events.")
    case .failure(let unreachable):
      return .fault(
        check, unreachable.reason,
        remedy: "Start the receiver, or fix TENURE_WEBHOOK_URL, DNS, firewall or certificate.")
    }
  }
}

/// Measures the skew of Apple's clock by the `Date` header of responses.
final class DatedTransport: AppStoreTransport {
  private let transport: any AppStoreTransport
  private let last = Mutex<(skew: Duration, precision: Duration)?>(nil)

  init(_ transport: any AppStoreTransport) { self.transport = transport }

  /// The time by which Apple's clock was ahead at the last response, and its measurement error.
  var skew: (skew: Duration, precision: Duration)? { last.withLock(\.self) }

  func send(_ request: AppStoreRequest) async throws -> AppStoreResponse {
    let (before, start) = (Timestamp.now, ContinuousClock.now)
    let response = try await transport.send(request)
    let took = ContinuousClock.now - start
    if let date = response.header("Date").flatMap(Timestamp.init(httpDate:)) {
      let skew = date - (before + took / 2)
      // `Date` has a resolution of one second.
      last.withLock { $0 = (skew, took / 2 + .seconds(1)) }
    }
    return response
  }
}
