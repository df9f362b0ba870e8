import struct Foundation.Data

extension LocalReceiptVerifier {
  /// Reads bytes in every way in which something that was submitted as a receipt is read.
  ///
  /// For fuzzing: whatever the bytes, it comes back, soon, and without having held more than some
  /// hundred bytes for each element of ASN.1, of which ``ReceiptBER/mostElements`` are too many.
  ///
  /// - Parameter bytes: The bytes behind base64.
  /// - Returns: How much could be read: 0 for none of it, more for ids, records and a verdict.
  package func exercise(on bytes: [UInt8]) -> Int {
    let text = Data(bytes).base64EncodedString()
    // Wrapped or not, and as the text itself.
    let unwrapped = UnityReceipt.unwrapping(String(decoding: bytes, as: UTF8.self))
    var understood = unwrapped.utf8.count < bytes.count ? 1 : 0
    for receiptData in [UnityReceipt.unwrapping(text), unwrapped] {
      if let form = try? ReceiptForm(receiptData) {
        understood += 1 + form.transactionIDs.count
      }
      if case .success(let receipt) = verify(receiptData) {
        understood += 1 + receipt.records.count
      }
    }
    return understood
  }
}
