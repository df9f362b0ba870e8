/// The statements that upgrade the schema to ``version``; `schema.sql` includes them.
///
/// A step that changes large tables has several parts; an interrupted one continues.
package struct SchemaStep: Sendable {
  enum Part: Hashable, Sendable {
    /// Statements applied in one transaction, together with the row that records the part.
    case transaction(String)
    /// One CREATE INDEX CONCURRENTLY, which blocks no writers and can't run in a transaction.
    case index(String)
  }

  let version: Int
  /// The oldest version whose programs keep working.
  let servesSince: Int
  let parts: [Part]

  /// - Parameter sql: Parts, each after a line `-- part: transaction` or `-- part: index`; without
  ///   such lines, one transaction.
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
