import Foundation

/// What no line of a tracked text may contain, or be.
struct TextRule: Sendable {
  /// A regular expression, matched against whole lines.
  var pattern: String
  /// How the names end of the files that are looked at; nil: every text.
  var suffix: String?
  var fault: String

  // The patterns are written so that none matches itself.
  static let all = [
    TextRule(
      pattern: #"[.]{2}/shared\b|/work[/]|/(home|Users)/\w|/[r]oot\b|/tmp[/]w\b|/opt[/]swift"#,
      fault: "a path of one machine: nothing outside the repository is read or named"),
    TextRule(
      pattern: #"\b(docker|ghcr|quay|gcr|mcr|ecr)\.(io|microsoft\.com)\b|\bregistry[.]\w+\.\w+|"#
        + #"\bartifactory\b|:5000[/]"#,
      fault: "the host of a registry: images go by their names"),
    TextRule(
      pattern: "\\b(TO" + "DO|FIX" + "ME|XX" + "X)\\b",
      fault: "done now, or left out"),
    TextRule(
      pattern: #"[ \t]$"#, suffix: ".swift", fault: "ends in white space"),
  ]

  func findings(in text: String, path: String) throws -> [Finding] {
    guard path.hasSuffix(suffix ?? "") else { return [] }
    return try NSRegularExpression.lines(of: text, matching: pattern).map {
      Finding(path: path, line: $0, fault: fault)
    }
  }
}

/// Lines are short enough to be read side by side.
///
/// The linter does not look at comments. Rows of a test's table may be longer, one case in a row,
/// where the formatter is told to leave the table alone.
enum ColumnRule {
  static let limit = 100

  static func findings(in text: String, path: String) -> [Finding] {
    guard path.hasSuffix(".swift") else { return [] }
    var table: Table?
    var findings: [Finding] = []
    let lines = text.split(separator: "\n", omittingEmptySubsequences: false)
    for (index, line) in lines.enumerated() {
      let depth = line.prefix { $0 == " " }.count
      if table?.ends(before: line, at: depth) ?? false { table = nil }
      if path.hasPrefix("Tests/"), line.contains("// swift-format-ignore") {
        table = Table(depth: depth)
      }
      guard table == nil, line.utf8.count > limit, line.count > limit else { continue }
      let fault = "\(line.count) columns: at most \(limit)"
      findings.append(Finding(path: path, line: index + 1, fault: fault))
    }
    return findings
  }

  /// What the formatter leaves alone: to the end of the indented rows.
  private struct Table {
    var depth: Int
    var hasRows = false

    mutating func ends(before line: Substring, at depth: Int) -> Bool {
      guard !line.isEmpty else { return false }
      hasRows = hasRows || depth > self.depth
      return hasRows && depth <= self.depth
    }
  }
}
