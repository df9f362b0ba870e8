import JSONText

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
