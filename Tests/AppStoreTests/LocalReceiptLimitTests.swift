import AppStore
import Testing

/// Inputs larger or nested deeper than any receipt; `tenure fuzz` covers damaged ones.
struct LocalReceiptLimitTests {
  /// How much can be read of bytes in every way in which a receipt is read; 0 for none of it.
  private func understood(_ bytes: [UInt8], _ verifier: LocalReceiptVerifier) -> Int {
    var understood = 0
    for text in [bytes.base64, String(decoding: bytes, as: UTF8.self)] {
      let receiptData = UnityReceipt.unwrapping(text)
      if receiptData != text { understood += 1 }
      if (try? AppReceipt(unverified: receiptData)) != nil { understood += 1 }
      if verifier.verify(receiptData).failure == nil { understood += 1 }
    }
    return understood
  }

  @Test func `what is deep, wide or cut off comes to its end`() throws {
    let verifier = try ReceiptAuthority.shared.verifier()
    let count = 1 << 13
    let pieces: [[UInt8]] = [
      [0x30, 0x80], [0x24, 0x80], [0x05, 0x00], [0x00, 0x00], [0x1f, 0x80], [0x30, 0x84],
      [0x04, 0xff], [0x31, 0x00], [0xa0, 0x80], [0x30, 0x02],
    ]
    for piece in pieces {
      let bytes = Array(repeatElement(piece, count: count).joined())
      #expect(understood(bytes, verifier) == 0, "\(piece)")
      // The same as a well-formed element's contents, and as those of a receipt.
      let wrapped = ASN1Bytes.element(0x30, bytes)
      #expect(understood(wrapped, verifier) == 0, "\(piece)")
      var receipt = TestReceipt(by: try ReceiptAuthority.shared)
      receipt.attributes.append((17, bytes))
      receipt.attributes.append((99, bytes))
      #expect(understood(try receipt.bytes(), verifier) > 0, "\(piece)")
    }
  }

  @Test func `a receipt with more elements than are held at a time is refused`() throws {
    var receipt = TestReceipt(by: try ReceiptAuthority.shared)
    receipt.attributes += (0..<32_000).map { (1000 + $0, []) }
    let verifier = try ReceiptAuthority.shared.verifier()
    #expect(verifier.verify(try receipt.base64()).failure == nil)
    receipt.attributes += (0..<1000).map { (100_000 + $0, []) }
    #expect(verifier.verify(try receipt.base64()).failure?.reason == .malformed)
  }
}
