package import Foundation
package import Subscriptions

/// Something that has a form in JSON.
package protocol JSONWritable {
  func write(to json: inout JSONWriter)
}

extension String: JSONWritable {
  package func write(to json: inout JSONWriter) { json.write(self) }
}

extension Bool: JSONWritable {
  package func write(to json: inout JSONWriter) { json.write(self) }
}

extension Int: JSONWritable {
  package func write(to json: inout JSONWriter) { json.write(self) }
}

extension Int64: JSONWritable {
  package func write(to json: inout JSONWriter) { json.write(self) }
}

/// RFC 3339 in UTC with milliseconds.
extension Timestamp: JSONWritable {
  package func write(to json: inout JSONWriter) { json.write(self) }
}

/// In lower case, as Apple writes tokens.
extension UUID: JSONWritable {
  package func write(to json: inout JSONWriter) { json.write(text) }

  /// The form in which answers and paths have it.
  package var text: String { uuidString.lowercased() }
}

extension Optional: JSONWritable where Wrapped: JSONWritable {
  package func write(to json: inout JSONWriter) {
    guard let self else { return json.null() }
    self.write(to: &json)
  }
}

extension Array: JSONWritable where Element: JSONWritable {
  package func write(to json: inout JSONWriter) {
    json.array(self) { json, element in element.write(to: &json) }
  }
}

// Identifiers and enumerations are their raw values: the names of the interface.

extension JSONWritable where Self: RawRepresentable, RawValue == String {
  package func write(to json: inout JSONWriter) { json.write(rawValue) }
}

extension Environment: JSONWritable {}
extension ExactText: JSONWritable {}
extension ProductID: JSONWritable {}
extension ProductType: JSONWritable {}
extension TransactionID: JSONWritable {}
extension OriginalTransactionID: JSONWritable {}
extension OwnershipType: JSONWritable {}
extension PeriodType: JSONWritable {}
extension ChargeKind: JSONWritable {}
extension Decision.Rule: JSONWritable {}
extension RenewalFinding.Ground: JSONWritable {}
extension LedgerEntry.Kind: JSONWritable {}
extension Entitlement.State: JSONWritable {}
extension Entitlement.Source: JSONWritable {}
extension PurchaseOrder.Status: JSONWritable {}
