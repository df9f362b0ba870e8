import AppStore
import BackgroundJobs
import Foundation
import HTTPAPI
import Secrets
import Subscriptions
import Synchronization

/// Whether Apple can be asked, and accepts the key.
extension Doctor {
  /// An id that Apple gives to no transaction: to ask for it costs nothing, and tells whether the
  /// key is accepted.
  private static let unknownTransaction = TransactionID("1")
  /// An endless wait for Apple is no finding.
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
        .fault("apple", "Apple could not be asked: \(error).", remedy: "Report it: it is a fault.")
      ]
    }
  }

  /// Shows Apple an empty receipt, of which it says that it is none.
  private func verifyReceipt(
    in environment: Environment, over transport: any AppStoreTransport
  ) async -> DoctorFinding {
    let check = "apple.verify_receipt.\(environment.rawValue)"
    let request = AppStoreRequest(
      method: "POST", url: settings.verifyReceipt[environment],
      headers: [HTTPHeader("Content-Type", "application/json")],
      body: Array(#"{"receipt-data":""}"#.utf8),
      timeout: min(settings.appStoreTimeout, Self.timeout)
    )
    do {
      let response = try await transport.send(request)
      guard response.status == 200 else {
        return .fault(
          check, "verifyReceipt answers HTTP \(response.status).",
          remedy: "See whether TENURE_APPSTORE_VERIFY_RECEIPT_URL and the one of the sandbox are "
            + "Apple's, and whether a proxy answers instead. Receipts wait meanwhile.")
      }
      return .ok(check, "verifyReceipt answers.")
    } catch {
      return .fault(
        check, "\(error)",
        remedy: "Let this machine connect to \(settings.verifyReceipt[environment]). Receipts wait "
          + "meanwhile.")
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
      return .ok(check, "Apple accepts the key for \(bundleID).")
    } catch let error as AppStoreServerAPIError {
      switch error.kind {
      case .notFound, .invalidRequest:
        return .ok(check, "Apple accepts the key for \(bundleID).")
      case .unauthorized where environment == .production:
        return .warning(
          check, "\(error)",
          remedy:
            "An app that was never released is unknown in production: then this ends with the "
            + "release. Otherwise the key, the issuer id or the bundle id is wrong.")
      case .unauthorized:
        return .fault(
          check, "\(error)",
          remedy:
            "See in App Store Connect whether the key is active and of this team, and whether "
            + "\(bundleID) is this team's app.")
      case .rateLimited, .unavailable:
        return .warning(check, "\(error)", remedy: "Ask again later.")
      case .forbidden, .unreachable, .unexpectedAnswer, .misconfigured:
        return .fault(
          check, "\(error)",
          remedy: "Let this machine connect to Apple, and see whether TENURE_APPSTORE_API_URL and "
            + "the one of the sandbox are Apple's.")
      }
    } catch {
      return .fault(check, "\(error)", remedy: "Ask again.")
    }
  }
}

/// Whether the settings are complete, and fit each other.
extension Doctor {
  func settingFindings() -> [DoctorFinding] {
    unread() + [apiKeys(), apps(), sharedSecrets(), privateKey()]
      + rootCertificates() + developmentSettings()
  }

  private func unread() -> [DoctorFinding] {
    guard !settings.unread.isEmpty else { return [] }
    return [
      .warning(
        "settings.unread", "Set, and no setting: \(settings.unread.joined(separator: ", ")).",
        remedy: "See whether a name is misspelt: what was meant has its default.")
    ]
  }

  private func apiKeys() -> DoctorFinding {
    let check = "settings.api_keys"
    do {
      _ = try settings.apiKeys()
      return .ok(check, "There are API keys.")
    } catch {
      return .fault(
        check, "\(error).", remedy: "Set TENURE_API_KEYS: `tenure serve` needs one, a worker none.")
    }
  }

  private func apps() -> DoctorFinding {
    let check = "settings.apps"
    do {
      let ids = try settings.appStoreApps().all.map(\.bundleID)
      return .ok(check, "Apps served: \(ids.joined(separator: ", ")).")
    } catch {
      return .fault(check, "\(error).", remedy: "Set TENURE_BUNDLE_IDS, or TENURE_APPS.")
    }
  }

  private func sharedSecrets() -> DoctorFinding {
    let check = "settings.shared_secret"
    let missing = settings.apps.filter { $0.sharedSecret == nil }.map(\.bundleID)
    guard missing.isEmpty else {
      return .warning(
        check, "There is no shared secret for \(missing.joined(separator: ", ")).",
        remedy: "Set TENURE_APPSTORE_SHARED_SECRET: without it Apple verifies no receipt with "
          + "subscriptions, and notifications of version 1 are refused.")
    }
    let odd = settings.apps.filter { $0.sharedSecret.map(Self.isUsual) == false }.map(\.bundleID)
    guard odd.isEmpty else {
      return .warning(
        check, "The shared secret of \(odd.joined(separator: ", ")) does not look like one.",
        remedy: "Copy it from App Store Connect into TENURE_APPSTORE_SHARED_SECRET: it has 32 "
          + "hexadecimal digits. With a wrong one Apple verifies no receipt with subscriptions.")
    }
    return .ok(
      check, "Every app has a shared secret. It was not tried: Apple checks it only with a receipt."
    )
  }

  /// Whether a secret has the form of those in App Store Connect.
  private static func isUsual(_ secret: Secret<String>) -> Bool {
    secret.revealed.wholeMatch(of: /[0-9a-f]{32}/) != nil
  }

  private func privateKey() -> DoctorFinding {
    let check = "settings.app_store_key"
    guard settings.serverAPIKey != nil else {
      return .warning(
        check, "There is no key for the App Store Server API.",
        remedy: "Make one in App Store Connect (Users and Access, Integrations, In-App Purchase) "
          + "and set TENURE_APPSTORE_ISSUER_ID, _KEY_ID and _PRIVATE_KEY: without it missed "
          + "notifications are not found, and receipts alone are polled.")
    }
    guard let path = settings.serverAPIKeyPath,
      let attributes = try? FileManager.default.attributesOfItem(atPath: path),
      let mode = (attributes[.posixPermissions] as? NSNumber)?.intValue
    else { return .ok(check, "The key can be read, and is one of P-256.") }
    guard mode & 0o077 == 0 else {
      return .warning(
        check, "The key's file can be read by others: its mode is \(String(mode, radix: 8)).",
        remedy: "chmod 600, and chown to the programs' user.")
    }
    return .ok(check, "The key can be read, by its owner alone, and is one of P-256.")
  }

  private func rootCertificates() -> [DoctorFinding] {
    let now = settings.clock.now()
    let roots = settings.trustedRoots.ends + settings.trustedReceiptRoots.ends
    return Dictionary(roots.map { ($0.subject, $0.end) }) { min($0, $1) }
      .sorted { $0.key < $1.key }.map { subject, end in
        let check = "settings.root_certificates"
        let remedy =
          "Take Apple's current roots from its certificate authority's page into "
          + "TENURE_APPSTORE_ROOT_CERTIFICATES."
        if end <= now {
          return .fault(check, "\(subject) has ended at \(end).", remedy: remedy)
        }
        if end - now < .days(90) {
          return .warning(check, "\(subject) ends at \(end).", remedy: remedy)
        }
        return .ok(check, "\(subject) is valid until \(end).")
      }
  }

  private func developmentSettings() -> [DoctorFinding] {
    var findings: [DoctorFinding] = []
    if settings.acceptsXcode {
      findings.append(
        .warning(
          "settings.xcode", "What Xcode made is believed, and anybody can make it.",
          remedy: "Unset TENURE_APPSTORE_ACCEPT_XCODE, unless this is for development."))
    }
    if settings.isClockSet {
      findings.append(
        .warning(
          "settings.clock", "The time is what a file says.",
          remedy: "Unset TENURE_CLOCK_FILE, unless this is for development."))
    }
    if settings.databaseURL == nil {
      findings.append(
        .warning(
          "settings.database", "The database is a private one under \(settings.dataDirectory).",
          remedy: "Set DATABASE_URL: the private one is for trying things."))
    }
    return findings
  }
}

/// Whether somebody is there to receive events.
extension Doctor {
  func webhookFindings() async -> [DoctorFinding] {
    guard let receiver = settings.webhook else { return [] }
    let check = "webhook.receiver"
    let sender = WebhookSender(to: receiver)
    let reached = await sender.reach()
    await sender.shutDown()
    switch reached {
    case .success(300..<400):
      return [
        .fault(
          check, "The receiver redirects, and events don't follow.",
          remedy: "Set TENURE_WEBHOOK_URL to where it leads.")
      ]
    case .success(let status) where status >= 500 && status != 501:
      return [
        .warning(
          check, "The receiver answers, but with an error of its own (HTTP \(status) to HEAD).",
          remedy: "See its log: while it fails, events wait, and are given up after three days.")
      ]
    case .success(let status):
      // Most receivers take POST alone: that they say so, be it with 501, is enough.
      return [.ok(check, "The receiver answers (HTTP \(status) to HEAD, without an event).")]
    case .failure(let unreachable):
      return [
        .fault(
          check, unreachable.reason,
          remedy: "Start the receiver, or mend TENURE_WEBHOOK_URL, DNS, firewall or certificate.")
      ]
    }
  }
}

/// The way to Apple, and what Apple's clock says on it: the header field `Date` of each answer.
final class DatedTransport: AppStoreTransport {
  private let transport: any AppStoreTransport
  private let last = Mutex<(skew: Duration, precision: Duration)?>(nil)

  init(_ transport: any AppStoreTransport) {
    self.transport = transport
  }

  /// How far Apple's clock was ahead of ours at its last answer, and how exactly that is known.
  var skew: (skew: Duration, precision: Duration)? { last.withLock(\.self) }

  func send(_ request: AppStoreRequest) async throws -> AppStoreResponse {
    let (before, start) = (Timestamp.now, ContinuousClock.now)
    let response = try await transport.send(request)
    let took = ContinuousClock.now - start
    if let date = response.header("Date").flatMap(Self.date) {
      let skew = date - (before + took / 2)
      // The field has whole seconds.
      last.withLock { $0 = (skew, took / 2 + .seconds(1)) }
    }
    return response
  }

  /// The preferred form of RFC 9110, section 5.6.7.
  private static func date(_ text: String) -> Timestamp? {
    let formatter = DateFormatter()
    formatter.locale = Locale(identifier: "en_US_POSIX")
    formatter.timeZone = .gmt
    formatter.dateFormat = "EEE, dd MMM yyyy HH:mm:ss 'GMT'"
    return formatter.date(from: text).map {
      Timestamp(milliseconds: Int64($0.timeIntervalSince1970) * 1000)
    }
  }
}
