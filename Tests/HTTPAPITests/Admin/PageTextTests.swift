import Testing

@testable import AdminSite
@testable import HTTPAPI

struct PageTextTests {
  // swift-format-ignore
  @Test(
    "Whatever callers send is text and nothing else",
    arguments: [
      ("", ""),
      ("anna-1138", "anna-1138"),
      ("é 日本 😀", "é 日本 😀"),
      ("<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"),
      ("Robert'); DROP TABLE account;--", "Robert&#39;); DROP TABLE account;--"),
      ("a & b &amp; c", "a &amp; b &amp;amp; c"),
      ("\" autofocus onfocus=\"x()", "&quot; autofocus onfocus=&quot;x()"),
      // One character each in Swift, two in a browser.
      ("\"\u{301} autofocus", "&quot;\u{301} autofocus"),
      ("'\u{200D}x", "&#39;\u{200D}x"),
      ("<\u{FE0F}b>\u{20DD}", "&lt;\u{FE0F}b&gt;\u{20DD}"),
      ("&\u{308}", "&amp;\u{308}"),
    ])
  func escaping(text: String, expected: String) {
    // Compared by scalars, since strings with equal characters are equal.
    #expect(Array(PageText.escaped(text).unicodeScalars) == Array(expected.unicodeScalars))
  }
}
