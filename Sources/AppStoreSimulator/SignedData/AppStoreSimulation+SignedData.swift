import AppStore
package import Subscriptions

/// What Apple signs, as JWS: what StoreKit 2 gives to apps, and the App Store Server API to
/// servers.
///
/// Each is signed now, and says what Apple knows now. A charge has one id here: restoring under
/// others belongs to the old StoreKit and its receipts.
extension AppStoreSimulation {
  /// The root of everything that is signed here, as PEM: what a verifier has to trust.
  package var rootCertificatePEM: String { signer.rootCertificatePEM }

  /// A charge, by any of its transaction ids.
  package func signedTransaction(of transaction: TransactionID) throws -> String {
    signer.sign(
      try act { state in
        state.transactionPayload(of: try state.chargeNumber(transaction)).json
      })
  }

  /// Whether and as what a subscription renews.
  package func signedRenewalInfo(of line: OriginalTransactionID) throws -> String {
    signer.sign(
      try act { state in
        guard let payload = state.renewalPayload(of: try state.lineNumber(line)) else {
          throw SimulationError(.notPossible, "Nothing renews on \(line) by itself.")
        }
        return payload.json
      })
  }

  // MARK: A device's view

  /// StoreKit's `Transaction.all`: every charge of the Apple ID in an app, in the order of booking,
  /// but for finished consumables.
  package func signedTransactions(on device: DeviceID, bundleID: String? = nil) throws -> [String] {
    try signed(on: device, bundleID) { state, lines in
      lines.flatMap { state.lines[$0].charges }.filter { state.charges[$0].finishedAt == nil }
        .sorted()
    }
  }

  /// StoreKit's `Transaction.currentEntitlements`: what gives access now.
  package func currentEntitlements(on device: DeviceID, bundleID: String? = nil) throws -> [String]
  {
    try signed(on: device, bundleID) { state, lines in
      lines.flatMap { state.entitlements(of: $0) }
    }
  }

  /// StoreKit's `SubscriptionInfo.RenewalInfo` of every subscription of the Apple ID in an app.
  package func signedRenewalInfos(on device: DeviceID, bundleID: String? = nil) throws -> [String] {
    try act { state in
      try state.lines(on: device, bundleID).compactMap { state.renewalPayload(of: $0)?.json }
    }.map(signer.sign)
  }

  /// StoreKit's `AppTransaction.shared`.
  package func signedAppTransaction(on device: DeviceID, bundleID: String? = nil) throws -> String {
    signer.sign(
      try act { state in
        let customer = try state.device(device).customer
        return state.appTransactionPayload(customer: customer, app: try state.appNumber(bundleID))
          .json
      })
  }

  private func signed(
    on device: DeviceID, _ bundleID: String?, _ choose: (AppStoreState, [Int]) -> [Int]
  ) throws -> [String] {
    try act { state in
      choose(state, try state.lines(on: device, bundleID)).map {
        state.transactionPayload(of: $0).json
      }
    }.map(signer.sign)
  }
}

extension AppStoreState {
  /// The lines of whoever is signed in on a device, in one app.
  fileprivate func lines(on device: DeviceID, _ bundleID: String?) throws -> [Int] {
    let customer = try self.device(device).customer
    let app = try appNumber(bundleID)
    return customers[customer].lines.filter { lines[$0].app == app }
  }

  /// The charge of a line that gives access now, if one does.
  ///
  /// https://developer.apple.com/documentation/storekit/transaction/currententitlements
  fileprivate func entitlements(of line: Int) -> [Int] {
    guard let current = currentCharge(of: line), charges[current].stands else { return [] }
    switch charges[current].product.type {
    case .consumable: return []
    case .nonConsumable, .nonRenewing: return [current]
    case .autoRenewable: return [1, 4].contains(subscriptionStatus(of: line)) ? [current] : []
    }
  }
}
