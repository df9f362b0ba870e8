import Foundation
import Testing

/// Something that a rule of the house forbids, and where it stands.
struct Finding: Hashable, CustomStringConvertible {
  /// Relative to the repository's root.
  var path: String
  /// Counted from 1; nil for the whole file.
  var line: Int?
  /// The fault and its fix.
  var fault: String

  var description: String { "\(path)\(line.map { ":\($0)" } ?? ""): \(fault)" }
}

extension [Finding] {
  /// Fails the test once for each finding, at its place.
  func report() {
    for finding in self {
      Issue.record(
        "\(finding)",
        sourceLocation: SourceLocation(
          // It has to name a module and a file.
          fileID: "Tenure/\(finding.path)",
          filePath: Repository.root.appending(path: finding.path).path(),
          line: finding.line ?? 1, column: 1))
    }
  }
}
