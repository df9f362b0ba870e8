/// The statements that lead from the previous version of the schema to ``version``.
///
/// `schema.sql` includes them. A step has several parts where programs use large tables at the same
/// time: each part is applied once, and an interrupted step continues with the missing part.
package struct SchemaStep: Sendable {
  enum Part: Hashable, Sendable {
    /// Statements that are applied in one transaction, together with the note of it.
    case transaction(String)
    /// One CREATE INDEX CONCURRENTLY, which keeps nobody from writing and can't be in a
    /// transaction.
    case index(String)
  }

  let version: Int
  /// The oldest programs that go on working once it is applied, by the version that they know.
  let servesSince: Int
  /// At least one.
  let parts: [Part]

  /// - Parameters:
  ///   - version: Where it leads.
  ///   - servesSince: The oldest programs that go on working; nil: those that know it alone.
  ///   - sql: Its parts, each under a line that says `-- part: transaction` or `-- part: index`;
  ///     without such a line it is one transaction.
  package init(version: Int, servesSince: Int? = nil, sql: String) {
    self.version = version
    self.servesSince = servesSince ?? version
    parts = Self.parts(of: sql)
    precondition(!parts.isEmpty, "Step \(version) of the schema is empty.")
  }

  private static func parts(of sql: String) -> [Part] {
    var parts: [Part] = []
    var lines: [Substring] = []
    var isIndex = false
    func end() {
      let isBlank = lines.allSatisfy { line in
        let content = line.drop(while: \.isWhitespace)
        return content.isEmpty || content.hasPrefix("--")
      }
      let text = lines.joined(separator: "\n")
      if !isBlank { parts.append(isIndex ? .index(text) : .transaction(text)) }
      lines = []
    }
    for line in sql.split(separator: "\n", omittingEmptySubsequences: false) {
      switch line {
      case "-- part: transaction", "-- part: index":
        end()
        isIndex = line.hasSuffix("index")
      default: lines.append(line)
      }
    }
    end()
    return parts
  }
}
