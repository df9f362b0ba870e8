import AppStore
import Foundation
import Testing

/// The short part of the fuzzing of receipts; `tenure fuzz` goes on for as long as one likes.
struct LocalReceiptFuzzTests {
  private func samples() throws -> [[UInt8]] {
    let authority = try ReceiptAuthority.shared
    var receipt = TestReceipt(by: authority)
    receipt.add(TestPurchase("11", of: "10", from: "2024-05-10T00:00:00Z"))
    var xcode = receipt
    xcode.encoding = .xcode
    xcode.signsAttributes = true
    let info = Array("{ \"transaction-id\" = \"1\"; bid = com.example.app; }".utf8).base64
    return [
      try receipt.bytes(), try xcode.bytes(),
      Array("{ \"signature\" = \"Ag==\"; \"purchase-info\" = \"\(info)\"; }".utf8),
      Array(
        """
        {"Store":"AppleAppStore","TransactionID":"1","Payload":"\(try receipt.base64())"}
        """.utf8),
    ]
  }

  @Test func `mutated receipts are read or refused, and nothing else`() throws {
    let environment = ProcessInfo.processInfo.environment
    let times = environment["TENURE_TEST_TIMES"].flatMap(Int.init) ?? 1
    let first = environment["TENURE_TEST_SEED"].flatMap(UInt64.init) ?? .random(in: 0...1 << 48)
    let iterations = 100 * times
    print("mutated receipts: \(iterations) times from TENURE_TEST_SEED=\(first)")
    let verifier = try ReceiptAuthority.shared.verifier()
    var readable = 0
    for sample in try samples() {
      #expect(verifier.exercise(on: sample) > 0)
      for offset in 0..<UInt64(iterations) {
        var mutator = ByteMutator(seed: first &+ offset)
        if verifier.exercise(on: mutator.mutated(sample)) > 0 { readable += 1 }
      }
    }
    // Mutations that nothing survives would test the first byte only.
    #expect(readable > 0)
  }

  @Test func `what is deep, wide or cut off comes to its end`() throws {
    let verifier = try ReceiptAuthority.shared.verifier()
    let count = 1 << 15
    let pieces: [[UInt8]] = [
      [0x30, 0x80], [0x24, 0x80], [0x05, 0x00], [0x00, 0x00], [0x1f, 0x80], [0x30, 0x84],
      [0x04, 0xff], [0x31, 0x00], [0xa0, 0x80], [0x30, 0x02],
    ]
    for piece in pieces {
      let bytes = Array(repeatElement(piece, count: count).joined())
      #expect(verifier.exercise(on: bytes) == 0, "\(piece)")
      // The same as a well-formed element's contents, and as those of a receipt.
      let wrapped = ASN1Bytes.element(0x30, bytes)
      #expect(verifier.exercise(on: wrapped) == 0, "\(piece)")
      var receipt = TestReceipt(by: try ReceiptAuthority.shared)
      receipt.attributes.append((17, bytes))
      receipt.attributes.append((99, bytes))
      #expect(verifier.exercise(on: try receipt.bytes()) > 0, "\(piece)")
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
