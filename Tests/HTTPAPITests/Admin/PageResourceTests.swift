import Foundation
import Testing
@testable import AdminSite

/// Rules for the templates that the Content-Security-Policy and the escaping of values require.
struct PageResourceTests {
  private static let folder = URL(filePath: #filePath)
    .deletingLastPathComponent().deletingLastPathComponent().deletingLastPathComponent()
    .deletingLastPathComponent().appending(path: "Sources/AdminSite/Resources")

  private static func text(of name: String) throws -> String {
    try String(contentsOf: folder.appending(path: name), encoding: .utf8)
  }

  private static let names: [String] =
    ((try? FileManager.default.contentsOfDirectory(atPath: folder.path())) ?? []).sorted()

  /// Forbidden patterns, each with an example.
  private static let faults: [(pattern: String, example: String)] = [
    // Unescaped values.
    (#"\{\{\{|\{\{&"#, "{{{name}}}"),
    // Inline styles and scripts.
    (#"\sstyle="#, #"<rect style="fill: red">"#),
    (
      #"<style|<script(?! src="\{\{page\.scriptHref\}\}" defer></script>)"#,
      "<script>alert(1)</script>"
    ),
    (#"\son\w+="#, #"<a onclick="x()">"#),
    // Third-party resources.
    (#"https?:|//\w"#, #"<img src="//example.org/x.png">"#),
    (
      #"(src|href|action|formaction)="(?!/admin|#|\{\{(\.?\w*|page\.\w+)\}\}")"#,
      #"<a href="{{a}}:{{b}}">"#
    ),
    // Unquoted attribute values.
    (#"=\{\{"#, "<a href={{href}}>"),
    // Transforms and lambdas.
    (#"\{\{[^}]*\("#, "{{first()}}"),
  ]

  @Test(arguments: faults)
  func `templates have nothing that could run`(pattern: String, example: String) throws {
    let expression = try Regex(pattern)
    #expect(example.contains(expression), "The rule finds nothing.")
    for name in Self.names where name.hasSuffix(".mustache") {
      let text = try Self.text(of: name)
      #expect(text.matches(of: expression).map { text[$0.range] } == [], "\(name)")
    }
  }

  /// Mustache's own escaping compares whole characters and misses a quotation mark with an accent.
  @Test func `every template is escaped in our way`() throws {
    for name in Self.names where name.hasSuffix(".mustache") {
      #expect(try Self.text(of: name).hasPrefix("{{% CONTENT_TYPE:PAGE}}"), "\(name)")
    }
  }

  @Test func `every form that changes something carries its token`() throws {
    for name in Self.names where name.hasSuffix(".mustache") {
      let forms = try Self.text(of: name).split(separator: "<form").dropFirst()
      for form in forms where form.contains(#"method="post""#) {
        #expect(form.contains("{{>csrf}}"), "\(name)")
      }
    }
  }

  @Test func `there are templates, a style sheet of 25 kB at most, and little script`() throws {
    #expect(Self.names.count { $0.hasSuffix(".mustache") } >= 30)
    #expect(try Self.text(of: "admin.css").utf8.count <= 25_000)
    #expect(try Self.text(of: "admin.js").utf8.count <= 5000)
  }

  @Test(arguments: ["admin.css", "admin.js", "icon.svg"])
  func `style sheet, script and icon load nothing from elsewhere`(name: String) throws {
    let text = try Self.text(of: name)
    let addresses = text.replacing("http://www.w3.org/2000/svg", with: "")
    #expect(!addresses.contains("http"))
    #expect(!addresses.contains("@import"))
    #expect(!addresses.contains("url("))
    #expect(!text.contains("innerHTML"))
  }

  @Test func `what stands in the middle of a line ends without one`() throws {
    for name in ["moment.mustache", "badge.mustache", "cell.mustache", "action-note.mustache"] {
      #expect(try !Self.text(of: name).hasSuffix("\n"), "\(name)")
    }
  }
}
