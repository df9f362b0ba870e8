import Foundation
import Subscriptions
import Testing

/// The table of stories in *Deciding ownership*, compared with the scenarios that are run.
struct ArticleScenarioTests {
  /// A row of the table: which story, whose its last charge is, and by which row of the rule.
  struct Row: Equatable, CustomTestStringConvertible {
    var number: String
    var owner: String
    var rule: String
    var testDescription: String { "\(number): \(owner), row \(rule)" }
  }

  private static let article = (0..<3).reduce(URL(filePath: #filePath)) { url, _ in
    url.deletingLastPathComponent()
  }.appending(path: "Sources/Subscriptions/Subscriptions.docc/DecidingOwnership.md")

  /// The rows of the article's table.
  static var rows: [Row] {
    get throws {
      let text = try String(contentsOf: article, encoding: .utf8)
      let row = /\| (\d+\w?) \| [^|]+ \| (A|B|none) \(row (\dt?)\)[^|]*\|/
      return text.split(separator: "\n").compactMap { line in
        line.wholeMatch(of: row).map { match in
          Row(number: String(match.1), owner: String(match.2), rule: String(match.3))
        }
      }
    }
  }

  private static func number(of scenario: Scenario) -> String {
    String(scenario.name.prefix { $0.isNumber || $0.isLetter })
  }

  /// The same of the first scenario with a number: the others are its variations.
  private static func row(of scenario: Scenario) -> Row? {
    guard let last = scenario.owners.max(by: { $0.key.rawValue < $1.key.rawValue }) else {
      return nil
    }
    let (account, rule) = last.value
    let owner = account.map { $0 == a ? "A" : "B" } ?? "none"
    let row =
      switch rule {
      case .administrator: "0"
      case .activelyAutoRenewing: "1"
      case .submitter: "2"
      // No story ends with a provisional owner when it is first recorded.
      case .appAccountToken: "1t"
      case .unclaimed: "4"
      }
    return Row(number: number(of: scenario), owner: owner, rule: row)
  }

  @Test func theArticleMatchesTheScenarios() throws {
    var seen: Set<String> = []
    let first = WorkedScenarioTests.scenarios.filter { seen.insert(Self.number(of: $0)).inserted }
    #expect(try Self.rows == first.compactMap(Self.row))
  }
}
