package import Subscriptions

/// What an app receipt says, believed or not.
///
/// Apple documents some of the types, the rest is known from receipts:
/// https://developer.apple.com/documentation/appstorereceipts/validating_receipts_on_the_device.
package struct AppReceipt: Hashable, Sendable {
  /// 0, as Apple writes it: "Production", "ProductionSandbox", "Xcode".
  package let environmentName: String?
  /// 2.
  package let bundleID: String?
  /// 3.
  package let applicationVersion: String?
  /// 4, what the device's hash is salted with.
  package let opaqueValue: [UInt8]?
  /// 5, which binds the receipt to a device; a server does not know the device.
  package let deviceHash: [UInt8]?
  /// 8; often empty.
  package let date: Timestamp?
  /// 10.
  package let ageRating: String?
  /// 12: when Apple made and signed it.
  package let creationDate: Timestamp?
  /// 17, in their order.
  package let inApp: [InAppReceipt]
  /// 18.
  package let originalPurchaseDate: Timestamp?
  /// 19.
  package let originalApplicationVersion: String?
  /// 21: the end of a volume purchase; Xcode writes the year 4001.
  package let expirationDate: Timestamp?
  /// Everything else, in its order.
  package let otherAttributes: [ReceiptAttribute]
  /// Purchases that could not be read.
  package let unreadable: [UnreadableRecord]

  /// Throws ``ReceiptFault`` where it is no set of attributes, or where what a receipt is bound by
  /// (app, environment, date) can't be read.
  init(parsing bytes: ArraySlice<UInt8>) throws {
    var attributes = try ReceiptAttributes(parsing: bytes)
    environmentName = try attributes.text(0)
    bundleID = try attributes.identifier(2)
    creationDate = try attributes.moment(12)
    var inApp: [InAppReceipt] = []
    var unreadable: [UnreadableRecord] = []
    for bytes in attributes.all(17) {
      do {
        inApp.append(try InAppReceipt(parsing: bytes))
      } catch {
        unreadable.append(UnreadableRecord(list: "receipt", reason: "\(error)"))
      }
    }
    self.inApp = inApp
    self.unreadable = unreadable
    // Nothing hangs on these: what has another form is kept with the unknown.
    applicationVersion = (try? attributes.text(3)) ?? nil
    opaqueValue = (try? attributes.bytes(4)) ?? nil
    deviceHash = (try? attributes.bytes(5)) ?? nil
    date = (try? attributes.moment(8)) ?? nil
    ageRating = (try? attributes.text(10)) ?? nil
    originalPurchaseDate = (try? attributes.moment(18)) ?? nil
    originalApplicationVersion = (try? attributes.text(19)) ?? nil
    expirationDate = (try? attributes.moment(21)) ?? nil
    otherAttributes = attributes.rest
  }

  /// Where its purchases were made; nil for a word that is not known.
  ///
  /// What Xcode makes counts as sandbox, where it is accepted at all.
  package var environment: Environment? {
    switch environmentName.map(ExactText.init(_:)) {
    case "Production"?, "ProductionVPP"?: .production
    case "ProductionSandbox"?, "ProductionVPPSandbox"?, "Xcode"?: .sandbox
    default: nil
    }
  }

  /// Whether it comes from StoreKit Testing in Xcode, which Apple does not sign.
  package var isFromXcode: Bool { environmentName.map(ExactText.init(_:)) == "Xcode" }
}
