/// Something that cannot happen in the simulated App Store, with the reason in one sentence.
package struct SimulationError: Error, Hashable, CustomStringConvertible {
  /// The reason as a word, for programs.
  package enum Code: String, Sendable {
    case unknownApp = "unknown_app"
    case unknownProduct = "unknown_product"
    case unknownAppleID = "unknown_apple_id"
    case unknownDevice = "unknown_device"
    case unknownTransaction = "unknown_transaction"
    case unknownLine = "unknown_line"
    case alreadyExists = "already_exists"
    case notPossible = "not_possible"
    case paymentDeclined = "payment_declined"
  }

  package let code: Code
  package let description: String

  /// An error with its sentence for people.
  package init(_ code: Code, _ description: String) {
    self.code = code
    self.description = description
  }
}
