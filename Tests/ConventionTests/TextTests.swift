import Testing

struct TextTests {
  @Test(arguments: TextRule.all)
  func holdsInEveryFile(rule: TextRule) throws {
    for path in Repository.files {
      guard let text = Repository.text(of: path) else { continue }
      try rule.findings(in: text, path: path).report()
    }
  }

  @Test func everyLineIsShort() {
    for path in Repository.files {
      guard let text = Repository.text(of: path) else { continue }
      ColumnRule.findings(in: text, path: path).report()
    }
  }

  @Test(arguments: [
    // file        line                                                        is a finding
    ("README.md", "see ../" + "shared/spec", true),
    ("README.md", "see /wor" + "k/main", true),
    ("README.md", "~/wor" + "k and network/work", false),
    ("a.swift", "/hom" + "e/me", true),
    ("a.swift", "/roo" + "t/.cache", true),
    ("a.swift", "a/rooted", false),
    ("a.yml", "image: ghcr" + ".io/a/b", true),
    ("a.yml", "image: registry" + ".example.com/a/b", true),
    ("a.yml", "image: postgres:17.7-bookworm", false),
    ("a.swift", "// TO" + "DO: later", true),
    ("a.swift", "let todo = 1", false),
    ("a.swift", "a ", true),
  ])
  func canFail(path: String, line: String, isFinding: Bool) throws {
    let findings = try TextRule.all.flatMap { try $0.findings(in: line, path: path) }
    #expect(findings.isEmpty != isFinding)
  }

  private static let long = String(repeating: "é", count: ColumnRule.limit + 1)

  @Test(arguments: [
    // file            text                                                     findings
    ("Sources/a.swift", String(long.dropLast()), 0),
    ("Sources/a.swift", long, 1),
    ("README.md", long, 0),
    ("Tests/a.swift", "  // swift-format-ignore\n  @Test([\n    \(long)\n\n    \(long)\n  ])", 0),
    ("Tests/a.swift", "// swift-format-ignore: A\nlet a = [\n  \(long)\n]\n\(long)", 1),
    ("Sources/a.swift", "// swift-format-ignore\nlet a = [\n  \(long)\n]", 1),
  ])
  func columnsCanFail(path: String, text: String, findings: Int) {
    #expect(ColumnRule.findings(in: text, path: path).count == findings)
  }
}
