/// A type, function or initializer, as its first line of code shows it.
///
/// What belongs to it is found by indentation: the formatter's layout is relied upon, which the
/// linter holds.
struct Declaration {
  /// `struct`, `func`, `init` and so on.
  var kind: String
  /// The name, or the operator; of an initializer `init(` with its first label.
  var name: String
  var isPackage: Bool
  /// The index of its first line, attributes on lines of their own not counted.
  var index: Int

  static let types: Set = ["struct", "class", "enum", "actor", "protocol", "extension"]
  private static let kinds = types.union(["typealias", "func", "init", "subscript", "macro"])
  private static let modifiers: Set = [
    "package", "internal", "fileprivate", "private", "static", "final", "indirect", "mutating",
    "nonmutating", "consuming", "borrowing", "nonisolated", "convenience", "required", "override",
    "prefix", "postfix", "infix", "distributed", "isolated", "async",
  ]

  /// Reads a line of code; nil if no such declaration begins in it.
  init?(_ line: String, at index: Int) {
    var words = line.split(whereSeparator: \.isWhitespace).drop { $0.hasPrefix("@") }
    isPackage = false
    while let word = words.first, Self.modifiers.contains(String(word.prefix { $0 != "(" })) {
      isPackage = isPackage || word == "package"
      words.removeFirst()
    }
    guard let word = words.popFirst() else { return nil }
    kind = String(word.prefix { $0.isLetter })
    guard Self.kinds.contains(kind) else { return nil }
    name = Self.name(word == word.prefix { $0.isLetter } ? words.first ?? word : word)
    self.index = index
  }

  /// The name in a word such as `f(a:`, `Box<Value>:`, `<` or `init(from`.
  private static func name(_ word: Substring) -> String {
    if word.hasPrefix("init") { return String(word.prefix { $0 != ":" && $0 != ")" }) }
    let name = word.prefix { !"(:{".contains($0) }
    let bare = name.prefix { $0 != "<" }
    return String(bare.isEmpty ? name : bare)
  }
}

extension SwiftSource {
  /// Every type, function and initializer of the file.
  var declarations: [Declaration] {
    code.enumerated().compactMap { Declaration($1, at: $0) }
  }

  /// The documentation comment of a declaration, line by line without its slashes; nil for none.
  func documentation(of declaration: Declaration) -> [String]? {
    var comment: [String] = []
    for line in lines[..<declaration.index].reversed() {
      let line = line.drop { $0 == " " }
      if line.hasPrefix("///") {
        comment.insert(String(line.dropFirst(3).drop { $0 == " " }), at: 0)
      } else if !line.hasPrefix("@") {
        break
      }
    }
    return comment.isEmpty ? nil : comment
  }

  /// The head of a type or extension.
  struct Head {
    var kind: String
    var name: String
    /// Whether it names something after a colon, constraints apart.
    var namesProtocols: Bool
  }

  /// The head of the type or extension that a declaration stands in; nil if in none.
  func head(around declaration: Declaration) -> Head? {
    let depth = indentation(declaration.index)
    guard depth > 0 else { return nil }
    for index in code.indices[..<declaration.index].reversed() where indentation(index) < depth {
      guard let outer = Declaration(code[index], at: index),
        Declaration.types.contains(outer.kind)
      else { continue }
      let end = code[index...].firstIndex { $0.contains("{") } ?? index
      let head = code[index...end].joined(separator: " ").prefix { $0 != "{" }
      return Head(
        kind: outer.kind, name: outer.name,
        namesProtocols: head.split(separator: " where ").first?.contains(":") ?? false)
    }
    return nil
  }

  /// The lines of code in a declaration's braces.
  func body(of declaration: Declaration) -> [String] {
    let depth = indentation(declaration.index)
    let rest = code[declaration.index...]
    guard let opening = rest.firstIndex(where: { $0.contains("{") }) else { return [] }
    guard code[opening].hasSuffix("{") else {
      return [String(code[opening].drop { $0 != "{" }.dropFirst().prefix { $0 != "}" })]
    }
    return Array(
      rest[(opening + 1)...].prefix { $0.allSatisfy(\.isWhitespace) || $0.depth > depth })
  }

  private func indentation(_ index: Int) -> Int { code[index].depth }
}

extension String {
  /// How many spaces a line begins with.
  fileprivate var depth: Int { prefix { $0 == " " }.count }
}
