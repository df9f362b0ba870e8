import Testing

/// Every article can be found, and the names in the articles and the README exist.
struct CataloguePageTests {
  /// The page that names all others.
  private static let landingPage = "Sources/tenure/Tenure.docc/Tenure.md"

  private static let articles = Repository.files.filter {
    $0.contains(".docc/") && $0.hasSuffix(".md")
  }

  /// How links from other catalogues name an article; that of a module's own page is the module's.
  private static func address(of article: String) -> String {
    let parts = article.split(separator: "/")
    let (module, name) = (parts[1], parts[parts.count - 1].dropLast(3))
    return "doc://\(module)/documentation/\(module)" + (name == module ? "" : "/\(name)")
  }

  /// The links between articles in a text.
  private static func links(in text: String) -> [String] {
    text.matches(of: /<(doc:[^>]+)>|\]\((doc:[^\x29]+)\)/).map { String($0.1 ?? $0.2 ?? "") }
  }

  /// Finds the links under the heading Topics.
  private static func topics(in text: String) -> [String] {
    guard let heading = text.firstRange(of: "\n## Topics\n") else { return [] }
    return links(in: String(text[heading.upperBound...]))
  }

  @Test func eachCatalogueListsItsArticles() throws {
    for article in Self.articles where article != Self.landingPage {
      let parts = article.split(separator: "/")
      let page = parts.dropLast().joined(separator: "/") + "/\(parts[1]).md"
      guard article != page else { continue }
      let text = try #require(Repository.text(of: page), "\(article) has no catalogue")
      let name = parts[parts.count - 1].dropLast(3)
      #expect(Self.topics(in: text).contains("doc:\(name)"), "\(page) does not list \(name)")
    }
  }

  @Test func everyLinkBetweenArticlesLeadsSomewhere() throws {
    let known = Set(Self.articles.map(Self.address))
    for article in Self.articles {
      let module = article.split(separator: "/")[1]
      for link in Self.links(in: try #require(Repository.text(of: article))) {
        let isWhole = link.hasPrefix("doc://")
        let address =
          isWhole ? link : "doc://\(module)/documentation/\(module)/\(link.dropFirst(4))"
        #expect(known.contains(address), "\(article) links to \(link)")
      }
    }
  }

  @Test func whatTheREADMENamesExists() throws {
    let readme = try #require(Repository.text(of: "README.md"))
    let linked = readme.matches(of: /\]\(([^\x29#:]+)\)/).map { String($0.1) }
    let named = readme.matches(of: /`((?:Sources|Tests)\/[^`<* ]+)`/).map { String($0.1) }
    #expect(!linked.isEmpty)
    for path in linked + named {
      let isThere = Repository.files.contains { $0 == path || $0.hasPrefix(path + "/") }
      #expect(isThere, "the README names \(path)")
    }
  }

  @Test(arguments: [
    // Markdown                                                 links
    ("see <doc:A> and [that](doc:B), [no](https://a.b)", ["doc:A", "doc:B"]),
    ("- <doc://A/documentation/A>", ["doc://A/documentation/A"]),
    ("<https://a.b>", []),
  ])
  func linksAreFound(markdown: String, links: [String]) {
    #expect(Self.links(in: markdown) == links)
  }
}
