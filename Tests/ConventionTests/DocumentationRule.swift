/// What crosses targets is documented: every `package` type and function says what it is or does.
///
/// swift-format's own rule looks at `public` only. Properties and cases may stand without a
/// sentence where their names say it all. So may what does as it is told elsewhere: an initializer
/// that only assigns its arguments, and what a protocol asks for.
struct DocumentationRule {
  /// The first sentence stands in lists and pop-ups: it has to fit.
  static let longestSummary = 150

  /// The protocols of this project, and what they ask for.
  private var protocols: Set<String> = []
  private var requirements: Set<String> = []
  /// The same of Swift's and the libraries' protocols, where a type adopts them in its head.
  private static let foreignRequirements: Set = [
    "==", "<", "hash", "encode", "init(from", "init(rawValue", "init(stringLiteral", "next",
    "makeAsyncIterator", "makeIterator", "run",
    "validate", "subscript", "init(literalCapacity", "appendLiteral",
  ]

  init(_ sources: [SwiftSource]) {
    for source in sources where !source.isTest {
      for declaration in source.declarations {
        if declaration.kind == "protocol" { protocols.insert(declaration.name) }
        guard source.head(around: declaration)?.kind == "protocol" else { continue }
        requirements.insert(declaration.name)
      }
    }
  }

  func findings(in source: SwiftSource) -> [Finding] {
    guard !source.isTest else { return [] }
    return source.declarations.filter { $0.isPackage && $0.kind != "extension" }
      .compactMap { declaration in
        guard let fault = fault(of: declaration, in: source) else { return nil }
        return Finding(
          path: source.path, line: declaration.index + 1,
          fault: "`\(declaration.name)` \(fault)")
      }
  }

  private func fault(of declaration: Declaration, in source: SwiftSource) -> String? {
    guard let documentation = source.documentation(of: declaration) else {
      return isToldElsewhere(declaration, in: source)
        ? nil : "has no documentation comment: say what it means"
    }
    let paragraph = documentation.prefix { !$0.isEmpty }.joined(separator: " ")
    let summary = paragraph.split(separator: ". ").first ?? ""
    return summary.count > Self.longestSummary
      ? "begins with a sentence of \(summary.count) characters: at most \(Self.longestSummary)"
      : nil
  }

  private func isToldElsewhere(_ declaration: Declaration, in source: SwiftSource) -> Bool {
    if declaration.kind == "init", source.onlyAssigns(declaration) { return true }
    guard let head = source.head(around: declaration) else { return false }
    // An extension that adopts a protocol holds what the protocol asks for.
    if head.kind == "extension", head.namesProtocols { return true }
    guard head.namesProtocols || protocols.contains(head.name) else { return false }
    return requirements.union(Self.foreignRequirements).contains(declaration.name)
  }
}

extension SwiftSource {
  /// Whether an initializer gives each property the argument of its name, and nothing else.
  fileprivate func onlyAssigns(_ declaration: Declaration) -> Bool {
    body(of: declaration).allSatisfy { line in
      let sides = line.split(separator: "=").map { $0.filter { !$0.isWhitespace } }
      switch sides.count {
      case 0: return true
      case 1: return sides[0].isEmpty
      default: return sides.count == 2 && (sides[0] == sides[1] || sides[0] == "self." + sides[1])
      }
    }
  }
}
