import Foundation
import Testing

/// The commands of the README are the ones that are run before every change is accepted.
struct CommandTests {
  /// The commands in the shell blocks of a Markdown text, one for each line.
  private static func commands(in markdown: String) -> [String] {
    var isShell = false
    return markdown.split(separator: "\n").compactMap { line in
      guard line.hasPrefix("```") else { return isShell ? String(line) : nil }
      isShell = line == "```sh"
      return nil
    }
  }

  /// The steps of a chained command before its last; nil if it ends with another.
  private static func preparation(of command: String, before last: String) -> String? {
    let ending = " && " + last
    return command.hasSuffix(ending) ? String(command.dropLast(ending.count)) : nil
  }

  private static func preparations(in markdown: String, before last: String) -> [String] {
    commands(in: markdown).compactMap { preparation(of: $0, before: last) }
  }

  /// The tests need Node, a pooler and a browser, too: where apt has one, for Ubuntu's is a snap.
  @Test func bothCommandsPrepareAlike() throws {
    let readme = try #require(Repository.text(of: "README.md"))
    let demo = Self.preparations(in: readme, before: "swift run tenure demo")
    let test = Self.preparations(in: readme, before: "swift test")
    #expect(demo.count == 1)
    #expect(
      demo.map { $0 + " nodejs pgbouncer python3-venv wrk $(apt-cache pkgnames chromium-driver)" }
        == test)
  }

  @Test func continuousIntegrationRunsTheCommandOfTheREADME() throws {
    let readme = try #require(Repository.text(of: "README.md"))
    let preparation = try #require(Self.preparations(in: readme, before: "swift test").first)
    let script = try #require(Repository.text(of: ".ci/run"))
    let lines = script.split(separator: "\n").map(String.init)
    #expect(lines.contains(preparation + " && swift test"))
    #expect(lines.contains("swift format lint --strict --recursive Sources Tests"))
    #expect(lines.contains("set -euo pipefail"))
    let path = Repository.root.appending(path: ".ci/run").path()
    #expect(FileManager.default.isExecutableFile(atPath: path))
  }

  /// Test suites that the README names exist.
  @Test func namedSuitesExist() throws {
    let readme = try #require(Repository.text(of: "README.md"))
    let suites = readme.matches(of: /swift test --filter (\w+)/).map { String($0.1) }
    #expect(!suites.isEmpty)
    let declared = Repository.sources.filter(\.isTest).flatMap(\.code)
    let missing = suites.filter { suite in !declared.contains { $0.contains("struct \(suite) ") } }
    #expect(missing.isEmpty, "the README names suites that no test target has")
  }

  /// The README is read first and stays short: depth belongs in the articles.
  @Test func readmeIsShort() throws {
    let readme = try #require(Repository.text(of: "README.md"))
    #expect(readme.count { $0 == "\n" } <= 120)
  }

  /// The README's table of commands has those that the program has.
  @Test func everyCommandIsInTheREADME() throws {
    let readme = try #require(Repository.text(of: "README.md"))
    let rows = readme.split(separator: "\n").filter { $0.hasPrefix("| `tenure ") }
    let documented = rows.flatMap { $0.split(separator: "|")[0].matches(of: /`tenure ([a-z-]+)/) }
      .map { String($0.1) }
    let groups = ["tenure/Tenure.swift", "Development/DevelopmentCommands.swift"]
    let texts = try groups.map { try #require(Repository.text(of: "Sources/\($0)")) }
    let types = Set(texts.flatMap { $0.matches(of: /(\w+Command)\.self/) }.map { String($0.1) })
    // ServeCommand is `serve`, AppStoreCommand `app-store`.
    let names = types.map { type in
      type.dropLast("Command".count).reduce(into: "") { name, letter in
        if letter.isUppercase, !name.isEmpty { name += "-" }
        name += letter.lowercased()
      }
    }
    #expect(Set(documented) == Set(names))
  }

  /// The table of settings has the names that the program reads, and no others.
  @Test func everySettingIsInTheArticle() throws {
    let article = try #require(Repository.text(of: "Sources/HTTPAPI/HTTPAPI.docc/Settings.md"))
    let name = /`((?:TENURE_|DATABASE_)[A-Z_]+)`/
    let rows = article.split(separator: "\n").filter { $0.hasPrefix("| `") }
    // The first column; a name in the second is a default.
    let documented = rows.flatMap { $0.split(separator: "|")[0].matches(of: name) }
      .map { String($0.1) }
    let read = Repository.sources.filter { $0.path.hasPrefix("Sources/Bootstrap/Settings/") }
      .flatMap(\.literals).map(\.text).filter { ("`" + $0 + "`").wholeMatch(of: name) != nil }
    #expect(Set(documented) == Set(read))
    #expect(documented.count == Set(documented).count)
  }

  @Test(arguments: [
    // Markdown                                              commands
    ("a\n```sh\nb && c\nd\n```\ne", ["b && c", "d"]),
    ("```\nb\n```\n```json\nc\n```", []),
  ])
  func commandsAreFound(markdown: String, commands: [String]) {
    #expect(Self.commands(in: markdown) == commands)
  }

  @Test func otherEndingsAreNoPreparation() {
    #expect(Self.preparation(of: "a && b && swift test", before: "swift test") == "a && b")
    #expect(Self.preparation(of: "a && swift test -v", before: "swift test") == nil)
    #expect(Self.preparation(of: "swift test", before: "swift test") == nil)
  }
}
