import Bootstrap
import Foundation
import JSONText
import Logging
import Secrets
import Subscriptions

/// Looks at everything that Tenure depends on, and says of each thing how it is and what to do.
///
/// It changes nothing: it writes to no table, sends no event to the webhook, and asks Apple only
/// for what does not exist.
struct Doctor: Sendable {
  let settings: Settings
  let logger: Logger

  /// Examines everything, one thing after the other.
  func examine() async -> DoctorReport {
    var findings = settingFindings()
    findings += await databaseFindings()
    findings += await appleFindings()
    findings += await webhookFindings()
    return DoctorReport(findings: findings)
  }

  /// What is said of clocks that differ.
  ///
  /// - Parameters:
  ///   - check: The name of the check.
  ///   - other: Whose clock it is.
  ///   - skew: How far it is ahead of ours.
  ///   - precision: How exactly that is known.
  /// - Returns: The finding.
  static func clockFinding(
    _ check: String, of other: String, skew: Duration, precision: Duration
  ) -> DoctorFinding {
    let amount = max(.zero, (skew < .zero ? .zero - skew : skew) - precision)
    let found = "\(other)'s clock differs from this machine's by \(amount.inMilliseconds) ms."
    let remedy = "Have both kept by NTP: `timedatectl` says whether this one is."
    // A token for Apple that is a minute off is refused; signatures of webhooks hold five minutes.
    if amount > .seconds(60) { return .fault(check, found, remedy: remedy) }
    if amount > .seconds(2) { return .warning(check, found, remedy: remedy) }
    return .ok(check, found)
  }
}

/// What the doctor says of one thing.
struct DoctorFinding: Hashable, Sendable {
  /// How grave it is.
  enum Verdict: String, CaseIterable, Sendable {
    case ok
    /// It works, and something is better mended before it does not.
    case warning
    /// Something does not work.
    case fault
  }

  /// A stable name, as in `database.version`.
  var check: String
  var verdict: Verdict
  /// One sentence.
  var found: String
  /// What to do about it; nil where there is nothing to be done.
  var remedy: String?

  static func ok(_ check: String, _ found: String) -> DoctorFinding {
    DoctorFinding(check: check, verdict: .ok, found: found)
  }

  static func warning(_ check: String, _ found: String, remedy: String) -> DoctorFinding {
    DoctorFinding(check: check, verdict: .warning, found: found, remedy: remedy)
  }

  static func fault(_ check: String, _ found: String, remedy: String) -> DoctorFinding {
    DoctorFinding(check: check, verdict: .fault, found: found, remedy: remedy)
  }
}

extension DoctorFinding: JSONWritable {
  func write(to json: inout JSONWriter) {
    json.object { json in
      json.member("check", check)
      json.member("verdict", verdict.rawValue)
      json.member("found", found)
      json.memberIfPresent("remedy", remedy)
    }
  }
}

/// All that the doctor says.
struct DoctorReport: JSONWritable {
  var findings: [DoctorFinding]

  var isHealthy: Bool { !findings.contains { $0.verdict == .fault } }

  /// For people: one line for each check, and below it what to do.
  var text: String {
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

  func write(to json: inout JSONWriter) {
    json.object { json in
      json.member("is_healthy", isHealthy)
      json.member("findings", findings)
    }
  }
}

/// One of the hosts that a connection URI names.
struct DatabaseHost: Hashable, Sendable {
  /// As it stands in the URI, with its port.
  let name: String
  /// The URI with this host alone, whatever its part in the cluster.
  let uri: Secret<String>

  /// The hosts of a URI that names several; none where there is but one, or no URI.
  ///
  /// https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-CONNSTRING-URIS
  static func hosts(in secret: Secret<String>) -> [DatabaseHost] {
    let uri = secret.revealed
    guard let scheme = uri.range(of: "://") else { return [] }
    let rest = uri[scheme.upperBound...]
    let authority = rest.prefix { $0 != "/" && $0 != "?" }
    let hosts = authority[
      (authority.lastIndex(of: "@").map(authority.index(after:))
        ?? authority.startIndex)...]
    let names = hosts.split(separator: ",").map(String.init)
    guard names.count > 1 else { return [] }
    let before = uri[..<hosts.startIndex]
    let tail = withoutSessionAttributes(uri[hosts.endIndex...])
    return names.map { DatabaseHost(name: $0, uri: Secret(before + $0 + tail)) }
  }

  /// A standby is asked as well as the primary.
  private static func withoutSessionAttributes(_ tail: Substring) -> String {
    let parts = tail.split(separator: "?", maxSplits: 1, omittingEmptySubsequences: false)
    guard parts.count == 2 else { return String(tail) }
    let parameters = parts[1].split(separator: "&").filter {
      !$0.hasPrefix("target_session_attrs=")
    }
    return parts[0] + (parameters.isEmpty ? "" : "?" + parameters.joined(separator: "&"))
  }
}
