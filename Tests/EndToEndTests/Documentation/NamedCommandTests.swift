import Foundation
import Testing

@testable import Bootstrap
@testable import Development
@testable import Intake
@testable import tenure

/// The commands that articles and the README name within a sentence, compared with the program.
@Suite("Commands that texts name")
struct NamedCommandTests {
  /// The words of each `tenure …` between grave accents, without the program's name.
  private static func commands(in text: String) -> [[String]] {
    text.matches(of: /`tenure ([^`]+)`/).map { $0.1.split(separator: " ").map(String.init) }
  }

  @Test("exist, with the options that are named beside them")
  func exist() async throws {
    let readme = try String(
      contentsOf: Article.root.appending(path: "README.md"), encoding: .utf8)
    let texts = try Article.all.map(\.text) + [readme]
    let commands = Set(texts.flatMap(Self.commands)).filter { $0.first != "help" }
    #expect(commands.count > 30)
    var help: [[String]: String] = [:]
    for words in commands {
      // Words with other characters than small letters are placeholders.
      let path = words.prefix { $0.allSatisfy { $0.isLowercase || $0 == "-" } && $0.first != "-" }
      let asked = Array(path)
      if help[asked] == nil {
        help[asked] = try await TenureProgram.run(arguments: asked + ["--help"]).output
      }
      let answer = help[asked] ?? ""
      #expect(answer.contains("USAGE: tenure \(words[0])"), "tenure \(words)")
      for word in words.dropFirst() where path.contains(word) || word.hasPrefix("--") {
        #expect(answer.contains(word), "tenure \(words): no \(word)")
      }
    }
  }
}
