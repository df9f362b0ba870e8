import AppStore
import BackgroundJobs
import Foundation
import Secrets
import Subscriptions

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
