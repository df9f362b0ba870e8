import Foundation
import Testing

/// The top level of the repository has six entries.
struct LayoutTests {
  private static let topLevel: Set = [
    "Package.swift", "README.md", "Sources", "Tests", "docker-compose.yml", "schema.sql",
  ]

  private static func visible(_ files: [String]) -> Set<String> {
    Set(
      files.compactMap { $0.split(separator: "/").first.map(String.init) }.filter {
        !$0.hasPrefix(".")
      })
  }

  @Test func theTopLevelIsFixed() {
    #expect(Self.visible(Repository.files) == Self.topLevel)
  }

  @Test(arguments: [
    ["README.md", "LICENSE"], ["Package.swift"], ["Sources/a.swift", "docs/a.md"],
  ])
  func canFail(files: [String]) {
    #expect(Self.visible(files) != Self.topLevel)
  }

  @Test func hiddenFilesAreNotVisible() {
    #expect(Self.visible([".ci/run", "Sources/X/X.swift"]) == ["Sources"])
  }

  /// The schema is one file; the program embeds a link to it.
  @Test func theEmbeddedSchemaIsTheSchema() throws {
    let path = "Sources/LedgerStorage/Resources/schema.sql"
    let target = "../../../schema.sql"
    let found = try? FileManager.default.destinationOfSymbolicLink(
      atPath: Repository.root.appending(path: path).path())
    #expect(found == target, "Fix it with: ln -sf \(target) \(path)")
    #expect(
      Repository.text(of: path) == Repository.text(of: "schema.sql"), "The link leads elsewhere.")
  }
}
