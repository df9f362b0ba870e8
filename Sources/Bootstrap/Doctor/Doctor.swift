import Foundation
package import HTTPAPI
package import JSONText
package import LedgerStorage
package import Logging
import Secrets
import Subscriptions

/// Checks everything that Tenure depends on and suggests fixes; writes to no table, sends no event,
/// and queries Apple only for a transaction that does not exist.
package struct Doctor: Sendable {
  let settings: Settings
  let logger: Logger
  /// That of the running program, for a private database, which has no URL.
  let ledger: Ledger?

  package init(settings: Settings, logger: Logger, ledger: Ledger? = nil) {
    (self.settings, self.logger, self.ledger) = (settings, logger, ledger)
  }

  package func examine() async -> DoctorReport {
    var findings = settingFindings()
    findings += await databaseFindings()
    findings += await appleFindings()
    if let receiver = settings.webhook { findings.append(await finding(on: receiver)) }
    return DoctorReport(findings: findings)
  }

  /// - Parameters:
  ///   - other: The owner of the clock.
  ///   - skew: The time by which it is ahead of this machine's clock.
  ///   - precision: The measurement error of `skew`.
  static func clockFinding(
    _ check: String, of other: String, skew: Duration, precision: Duration
  ) -> DoctorFinding {
    let amount = max(.zero, (skew < .zero ? .zero - skew : skew) - precision)
    let found = "\(other)'s clock differs from this machine's by \(amount.inMilliseconds) ms."
    let remedy = "Synchronize both by NTP; `timedatectl` shows this machine's status."
    // Apple refuses tokens that are a minute off; webhook signatures tolerate five minutes.
    if amount > .seconds(60) { return .fault(check, found, remedy: remedy) }
    if amount > .seconds(2) { return .warning(check, found, remedy: remedy) }
    return .ok(check, found)
  }
}

package struct DoctorReport: JSONWritable {
  package var findings: [DoctorFinding]

  package init(findings: [DoctorFinding]) { self.findings = findings }

  package var isHealthy: Bool { !findings.contains { $0.verdict == .fault } }

  /// One line per check, each followed by its fix.
  package var text: String {
    let width = findings.map(\.check.count).max() ?? 0
    let marks: [DoctorFinding.Verdict: String] = [
      .ok: "ok     ", .warning: "WARNING", .fault: "FAULT  ",
    ]
    let lines = findings.flatMap { finding -> [String] in
      let name = finding.check + String(repeating: " ", count: width - finding.check.count)
      let line = "\(marks[finding.verdict] ?? "")  \(name)  \(finding.found)"
      let indent = String(repeating: " ", count: width + 11)
      return [line] + (finding.remedy.map { ["\(indent)→ \($0)"] } ?? [])
    }
    let counts = DoctorFinding.Verdict.allCases.map { verdict in
      "\(findings.count { $0.verdict == verdict }) \(verdict.rawValue)"
    }
    return (lines + ["", counts.joined(separator: ", ")]).joined(separator: "\n")
  }

  package func write(to json: inout JSONWriter) {
    json.object { json in
      json.member("is_healthy", isHealthy)
      json.member("findings", findings)
    }
  }
}

/// One of several hosts in a connection URI.
struct DatabaseHost: Hashable, Sendable {
  /// The host as written in the URI, with its port.
  let name: String
  /// The URI with only this host, and without `target_session_attrs`.
  let uri: Secret<String>

  /// The hosts of a URI with several; empty for one host or a keyword/value string
  /// (https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-CONNSTRING-URIS).
  static func hosts(in secret: Secret<String>) -> [DatabaseHost] {
    let uri = secret.revealed
    guard let scheme = uri.range(of: "://") else { return [] }
    let rest = uri[scheme.upperBound...]
    let authority = rest.prefix { $0 != "/" && $0 != "?" }
    let hosts = authority[
      (authority.lastIndex(of: "@").map(authority.index(after:)) ?? authority.startIndex)...]
    let names = hosts.split(separator: ",").map(String.init)
    guard names.count > 1 else { return [] }
    let before = uri[..<hosts.startIndex]
    let tail = withoutSessionAttributes(uri[hosts.endIndex...])
    return names.map { DatabaseHost(name: $0, uri: Secret(before + $0 + tail)) }
  }

  /// Removes `target_session_attrs`, so that standbys can be checked too.
  private static func withoutSessionAttributes(_ tail: Substring) -> String {
    let parts = tail.split(separator: "?", maxSplits: 1, omittingEmptySubsequences: false)
    guard parts.count == 2 else { return String(tail) }
    let parameters = parts[1].split(separator: "&").filter {
      !$0.hasPrefix("target_session_attrs=")
    }
    return parts[0] + (parameters.isEmpty ? "" : "?" + parameters.joined(separator: "&"))
  }
}
