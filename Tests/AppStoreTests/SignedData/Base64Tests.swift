import Foundation
import JSONText
import Testing

/// Base64 in two alphabets, each strictly.
struct Base64Tests {
  @Test func `every length and every byte, in both alphabets`() {
    for length in 0..<260 {
      let bytes = (0..<length).map { UInt8(truncatingIfNeeded: $0 &* 37 &+ length) }
      let standard = Data(bytes).base64EncodedString()
      #expect(Base64.decode(standard: Array(standard.utf8)) == bytes)
      #expect(Base64.decode(url: Array(DraftJWS.base64url(bytes).utf8)[...]) == bytes)
      #expect(Base64.encode(url: bytes) == DraftJWS.base64url(bytes))
    }
  }

  // swift-format-ignore
  @Test(arguments: [
    "A", "AAAAA", "AA=", "AA==", "AAA=", "AB", "AAB", "AA A", "AAA\n", "+AAA", "/AAA", "AA+/", "AAAÄ", "=", "*AAA", "A\u{0}AA",
  ])
  func `no base64url`(text: String) {
    #expect(Base64.decode(url: Array(text.utf8)[...]) == nil)
  }

  // swift-format-ignore
  @Test(arguments: [
    "A", "AA", "AAA", "AAAA=", "A===", "====", "==", "AB==", "AAB=", "AA=A", "=AAA", "-AAA", "_AAA", "AAA\n", "AA==AAAA", "AAAA====",
  ])
  func `no base64`(text: String) {
    #expect(Base64.decode(standard: Array(text.utf8)) == nil)
  }
}
