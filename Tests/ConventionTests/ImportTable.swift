/// The allowed imports between our targets.
///
/// SwiftPM lets a target import modules that it never declared, if another target has built them.
/// So the dependencies are checked here. They point downward only: a row names earlier rows.
enum ImportTable {
  /// The product without its executable and `Bootstrap`.
  private static let product: Set<String> = [
    "AdminSite", "AppStore", "BackgroundJobs", "HTTPAPI", "Intake", "JSONText", "LedgerStorage",
    "Observability", "Postgres", "Reports", "Secrets", "Subscriptions",
  ]
  private static let development: Set<String> = [
    "AppStoreSimulator", "Bootstrap", "PrivatePostgres",
  ]

  /// No target of the product imports one of `Sources/Development`, except that `Bootstrap` may
  /// start a private PostgreSQL.
  static let rows: [(target: String, mayImport: Set<String>)] = [
    ("Subscriptions", []),
    ("JSONText", ["Subscriptions"]),
    ("Secrets", []),
    ("Observability", ["JSONText", "Secrets"]),
    ("CLibpq", []),
    ("Postgres", ["CLibpq", "Secrets"]),
    ("PrivatePostgres", []),
    ("CZlib", []),
    ("LedgerStorage", ["CZlib", "JSONText", "Postgres", "Subscriptions"]),
    ("Reports", ["JSONText", "Postgres", "Subscriptions"]),
    ("AppStore", ["JSONText", "Secrets", "Subscriptions"]),
    ("AppStoreSimulator", ["AppStore", "JSONText", "Subscriptions"]),
    ("Intake", ["AppStore", "JSONText", "LedgerStorage", "Subscriptions"]),
    ("BackgroundJobs", ["Intake", "LedgerStorage", "Secrets", "Subscriptions"]),
    (
      "HTTPAPI",
      [
        "Intake", "JSONText", "LedgerStorage", "Observability", "Reports", "Secrets",
        "Subscriptions",
      ]
    ),
    (
      "AdminSite",
      ["HTTPAPI", "JSONText", "LedgerStorage", "Reports", "Secrets", "Subscriptions"]
    ),
    ("Bootstrap", product.union(["PrivatePostgres"])),
    ("Development", product.union(development)),
    ("tenure", product.union(development).union(["Development"])),
    (
      "ScratchDatabases", ["LedgerStorage", "Postgres", "PrivatePostgres", "Reports", "Secrets"]
    ),
  ]

  /// The targets that every test target may import in addition to the tested one.
  static let support: Set<String> = ["AppStoreSimulator", "PrivatePostgres", "ScratchDatabases"]

  /// The outside modules that the rules may import: values, without sockets, loggers or libraries.
  ///
  /// Other targets import any dependency in the manifest.
  static let pure: [String: Set<String>] = ["Subscriptions": ["Foundation"]]

  private static let allowed = Dictionary(
    uniqueKeysWithValues: rows.map { ($0.target, $0.mayImport) })

  /// Our targets that a target may import; nil if the table doesn't know it.
  ///
  /// A test target may import the tested one with everything below it, and the support targets.
  static func mayImport(_ target: String) -> Set<String>? {
    if let row = allowed[target] { return row }
    guard target.hasSuffix("Tests") else { return nil }
    if target == "ConventionTests" { return [] }
    // `EndToEndTests` test the programs, `HTTPAPITests` the pages, too.
    let tested =
      ["EndToEndTests": "tenure", "HTTPAPITests": "AdminSite"][target]
      ?? String(target.dropLast("Tests".count))
    guard let row = rows.first(where: { $0.target == tested }) else { return nil }
    return below([row.target]).union(below(support))
  }

  /// Targets, and everything that they may import, directly or not.
  private static func below(_ targets: Set<String>) -> Set<String> {
    let next = targets.union(targets.flatMap { allowed[$0] ?? [] })
    return next == targets ? targets : below(next)
  }

  /// Compares the imports of a file with the table.
  static func findings(in source: SwiftSource) -> [Finding] {
    guard let target = source.target else { return [] }
    guard let allowed = mayImport(target) else {
      let fault = "target \(target) is not in the import table: give it a row"
      return [Finding(path: source.path, line: nil, fault: fault)]
    }
    return source.code.enumerated().compactMap { index, line in
      guard let module = importedModule(line) else { return nil }
      let isOurs = Self.allowed[module] != nil
      let isAllowed = isOurs ? allowed.contains(module) : pure[target]?.contains(module) ?? true
      let fault = "\(target) may not import \(module)"
      return isAllowed ? nil : Finding(path: source.path, line: index + 1, fault: fault)
    }
  }

  /// The module that a line of code imports, as in `@testable import X` or
  /// `package import struct X.Y`.
  static func importedModule(_ line: String) -> String? {
    let words = line.split(whereSeparator: \.isWhitespace).drop { word in
      word.hasPrefix("@")
        || ["public", "package", "internal", "fileprivate", "private"].contains(word)
    }
    let kinds = ["typealias", "struct", "class", "enum", "protocol", "let", "var", "func"]
    guard words.first == "import" else { return nil }
    return words.dropFirst().first { !kinds.contains(String($0)) }?
      .split(separator: ".").first.map(String.init)
  }
}
