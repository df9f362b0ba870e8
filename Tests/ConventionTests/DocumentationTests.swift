import Testing

struct DocumentationTests {
  @Test func everyPackageDeclarationIsDocumented() {
    let rule = DocumentationRule(Repository.sources)
    Repository.sources.flatMap(rule.findings).report()
  }

  @Test(arguments: [
    // a file's text                                                              findings
    ("/// A thing.\npackage struct A {}", 0),
    ("/// A thing.\n@frozen\npackage struct A {}", 0),
    ("package struct A {}", 1),
    ("// A thing.\npackage struct A {}", 1),
    ("struct A {}", 0),
    ("package import struct A.B", 0),
    ("package final class A {}", 1),
    ("/// A thing.\npackage struct A {\n  package static func f() {}\n}", 1),
    ("/// A thing.\npackage struct A {\n  package typealias B = Int\n}", 1),
    ("/// A thing.\npackage struct A {\n  package var a: Int\n  package static let b = 1\n}", 0),
    ("/// A thing.\npackage enum A {\n  case a\n  package enum B { case b }\n}", 1),
    ("extension A {\n  package init(a: Int) {\n    self.a = a\n  }\n}", 0),
    ("extension A {\n  package init(a: Int) { self.a = a }\n}", 0),
    ("extension A {\n  package init(a: Int) { self.a = a + 1 }\n}", 1),
    ("extension A {\n  package init() {}\n}", 0),
    ("extension A {\n  package init() {\n    f()\n  }\n}", 1),
    (
      "extension A {\n  package init(\n    a: Int, b: Int\n  ) {\n    self.a = b\n  }\n}",
      1
    ),
    ("extension A {\n  package init(a: Int) {\n    self.a = a + 1\n  }\n}", 1),
    ("extension A: B {\n  package func f() {}\n}", 0),
    ("extension A where B: C {\n  package func f() {}\n}", 1),
    ("struct A: Comparable {\n  package static func < (l: A, r: A) -> Bool { true }\n}", 0),
    ("struct A: Comparable {\n  package func f() {}\n}", 1),
    (
      "struct A: Comparable {\n  package init(from decoder: any Decoder) throws {\n    f()\n  }\n}",
      0
    ),
    ("protocol P {\n  func f()\n}\nstruct A: P {\n  package func f() {}\n}", 0),
    ("protocol P {\n  func f()\n}\nextension P {\n  package func f() {}\n}", 0),
    ("protocol P {\n  func f()\n}\nextension P {\n  package func g() {}\n}", 1),
    ("protocol P {\n  func f()\n}\nstruct A {\n  package func f() {}\n}", 1),
    ("/// \(String(repeating: "a", count: 151))\npackage struct A {}", 1),
    ("/// A thing. \(String(repeating: "a", count: 151))\npackage struct A {}", 0),
  ])
  func canFail(text: String, findings: Int) {
    let source = SwiftSource(path: "Sources/X/X.swift", text: text)
    #expect(DocumentationRule([source]).findings(in: source).count == findings)
  }
}
