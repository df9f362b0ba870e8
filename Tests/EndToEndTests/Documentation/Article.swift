import Foundation
import Testing

@testable import Bootstrap
@testable import Development
@testable import Intake
@testable import tenure

/// A block of code in an article, between two fences.
struct CodeBlock: Sendable {
  /// The language on its fence; empty if there is none.
  var language: String
  var code: String
  /// The line of the fence above it.
  var line: Int
  /// The heading above it.
  var section: String
  /// The reason, from the comment above, why the block is not run; nil if it is run.
  ///
  /// Written as `<!-- Not run: the reason. -->`, which neither DocC nor GitHub shows.
  var reasonNotRun: String?

  /// Whether it is given to a program.
  var isRun: Bool { reasonNotRun == nil && ["sh", "sql"].contains(language) }

  /// Whether it is a file of settings, a name and a value in each line.
  var isSettings: Bool {
    language.isEmpty && !settings.isEmpty
      && settings.count == code.split(separator: "\n").count
  }

  /// The names of such a file.
  var settings: [String] {
    code.matches(of: /(?m)^([A-Z][A-Z_]+)=/).map { String($0.1) }
  }

  /// Whether it can be the output of the block before it.
  var isAnswer: Bool { reasonNotRun == nil && ["json", "http", "text"].contains(language) }
}

/// An article of a DocC catalogue, as far as its code is concerned.
struct Article: Sendable, CustomTestStringConvertible {
  /// Relative to the repository's root.
  var path: String
  var text: String

  /// Without folders and ending, as links name it.
  var name: String { URL(filePath: path).deletingPathExtension().lastPathComponent }
  var testDescription: String { name }

  /// The articles of all catalogues.
  static var all: [Article] {
    get throws {
      let sources = root.appending(path: "Sources")
      let paths = try FileManager.default.subpathsOfDirectory(atPath: sources.path())
      return try paths.filter { $0.contains(".docc/") && $0.hasSuffix(".md") }.sorted().map {
        Article(
          path: "Sources/\($0)",
          text: try String(contentsOf: sources.appending(path: $0), encoding: .utf8))
      }
    }
  }

  static let root = (0..<4).reduce(URL(filePath: #filePath)) { url, _ in
    url.deletingLastPathComponent()
  }

  static func named(_ name: String) throws -> Article {
    guard let article = try all.first(where: { $0.name == name }) else { throw Missing(name: name) }
    return article
  }

  struct Missing: Error { let name: String }

  /// The fenced blocks, in order; fences may be indented.
  var blocks: [CodeBlock] {
    var blocks: [CodeBlock] = []
    var open: (block: CodeBlock, indent: Int)?
    var section = ""
    var reason: String?
    let lines = text.split(separator: "\n", omittingEmptySubsequences: false)
    for (index, line) in lines.enumerated() {
      let content = line.drop { $0 == " " }
      if let (block, indent) = open {
        if content.hasPrefix("```") {
          blocks.append(block)
          open = nil
        } else {
          open?.block.code += line.dropFirst(min(indent, line.count - content.count)) + "\n"
        }
      } else if content.hasPrefix("```") {
        let block = CodeBlock(
          language: String(content.dropFirst(3)), code: "", line: index + 1, section: section,
          reasonNotRun: reason)
        open = (block, line.count - content.count)
        reason = nil
      } else if let comment = content.wholeMatch(of: /<!-- Not run(?: here)?: (.+) -->/) {
        reason = String(comment.1)
      } else if content.hasPrefix("#") {
        section = String(content.drop { $0 == "#" }.dropFirst())
      } else if !content.isEmpty {
        reason = nil
      }
    }
    return blocks
  }

  /// The blocks to run, each with its expected output, and the blocks that are neither.
  var examples: (run: [Example], left: [CodeBlock]) {
    var (run, left): ([Example], [CodeBlock]) = ([], [])
    var mayAnswer = false
    for block in blocks {
      if block.isRun {
        run.append(Example(block: block))
        mayAnswer = true
      } else if block.isAnswer, mayAnswer, let last = run.indices.last {
        run[last].answer = block
        mayAnswer = false
      } else {
        if block.reasonNotRun == nil, !block.isSettings { left.append(block) }
        mayAnswer = false
      }
    }
    return (run, left)
  }
}

/// Something that an article runs.
struct Example: Sendable {
  var block: CodeBlock
  /// The expected output, if the article contains it.
  var answer: CodeBlock?
}
