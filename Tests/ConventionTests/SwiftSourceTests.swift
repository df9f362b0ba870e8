import Testing

/// Code, comments and literals are separated: every other rule relies on it.
struct SwiftSourceTests {
  @Test(arguments: [
    // written                                      code, blanks as one        literals
    (#"let a = 1 // no "text""#, "let a = 1", []),
    (#"f("x // y")"#, "f( )", ["x // y"]),
    (#"f(/* one /* two */ "no" */ 3)"#, "f( 3)", []),
    (#"f("a \"b\" c", 2)"#, "f( , 2)", ["a  b  c"]),
    (#"f("a \(g("b")) c")"#, "f( g( ) )", ["b", "a $ c"]),
    (##"f(#"a "b" \(c)"#, #"d \#(e)"#)"##, "f( , e )", [#"a "b" \(c)"#, "d $"]),
    ("f(\"\"\"\n  a \"b\"\n  \"\"\")", "f(\n\n )", ["\n  a \"b\"\n  "]),
    (##"f(#""""#)"##, "f( )", [#""""#]),
    ("#if DEBUG\nf()\n#endif", "#if DEBUG\nf()\n#endif", []),
  ])
  func separates(text: String, code: String, literals: [String]) {
    let source = SwiftSource(path: "Sources/X/X.swift", text: text)
    let squeezed = source.code.map { line in
      line.replacing(/\ +/, with: " ").replacing(/\ $/, with: "")
    }
    #expect(squeezed.joined(separator: "\n") == code)
    #expect(source.literals.map(\.text) == literals)
  }

  @Test func literalsKnowTheirLines() {
    let source = SwiftSource(path: "Tests/X/X.swift", text: "f()\n\ng(\"a\")\n")
    #expect(source.literals == [SwiftSource.Literal(line: 3, text: "a")])
    #expect(source.target == "X")
    #expect(source.isTest)
  }

  /// Finds syntax that the scanner does not understand (a new kind of literal, say): it leaves
  /// brackets unbalanced.
  @Test func understandsEveryFile() {
    for source in Repository.sources {
      for (open, close) in [("(", ")"), ("{", "}")] as [(Unicode.Scalar, Unicode.Scalar)] {
        let balance = source.code.reduce(0) { balance, line in
          balance + line.unicodeScalars.count { $0 == open }
            - line.unicodeScalars.count { $0 == close }
        }
        #expect(balance == 0, "\(source.path): \(balance) more \(open) than \(close)")
      }
    }
    #expect(Repository.sources.count > 1)
  }
}
