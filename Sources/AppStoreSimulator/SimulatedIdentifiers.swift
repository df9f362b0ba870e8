import Subscriptions

/// Who pays: a customer's account with Apple.
package struct AppleID: TextIdentifier {
  package let rawValue: String
  package init(rawValue: String) { self.rawValue = rawValue }
}

/// A phone or tablet on which one Apple ID is signed in.
package struct DeviceID: TextIdentifier {
  package let rawValue: String
  package init(rawValue: String) { self.rawValue = rawValue }
}

/// The account of the app that is logged in on a device.
///
/// Apple knows nothing of it. The simulation keeps it only to say afterwards who really acted.
package struct AppAccountID: TextIdentifier {
  package let rawValue: String
  package init(rawValue: String) { self.rawValue = rawValue }
}
