package import JSONText

package struct DoctorFinding: Hashable, Sendable {
  package enum Verdict: String, CaseIterable, Sendable {
    case ok
    /// It works, but should be fixed before it stops working.
    case warning
    /// It does not work.
    case fault
  }

  /// A stable name such as `database.version`.
  package var check: String
  package var verdict: Verdict
  package var found: String
  /// The suggested fix; nil for ``Verdict/ok``.
  package var remedy: String?

  package static func ok(_ check: String, _ found: String) -> DoctorFinding {
    DoctorFinding(check: check, verdict: .ok, found: found)
  }

  package static func warning(_ check: String, _ found: String, remedy: String) -> DoctorFinding {
    DoctorFinding(check: check, verdict: .warning, found: found, remedy: remedy)
  }

  package static func fault(_ check: String, _ found: String, remedy: String) -> DoctorFinding {
    DoctorFinding(check: check, verdict: .fault, found: found, remedy: remedy)
  }
}

extension DoctorFinding: JSONObjectWritable {
  package func writeMembers(to json: inout JSONWriter) {
    json.member("check", check)
    json.member("verdict", verdict.rawValue)
    json.member("found", found)
    json.memberIfPresent("remedy", remedy)
  }
}
