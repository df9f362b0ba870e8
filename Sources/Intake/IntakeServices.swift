package import AppStore
package import LedgerStorage
package import Logging
package import Subscriptions

/// The services and settings that submissions, notifications, polls and write-backs share.
package struct IntakeServices: Sendable {
  package var ledger: Ledger
  package var receipts: ReceiptVerifier
  package var signedData: SignedDataVerifier
  /// Nil without a key for the App Store Server API.
  package var serverAPI: AppStoreServerAPI?
  package var apps: AppStoreApps
  package var catalogue: CatalogueCache
  package var sandboxAccess: SandboxAccess
  /// Never gets the contents of submissions and notifications.
  package var logger: Logger
  package var now: @Sendable () -> Timestamp

  package init(
    ledger: Ledger, receipts: ReceiptVerifier, signedData: SignedDataVerifier,
    serverAPI: AppStoreServerAPI?, apps: AppStoreApps, catalogue: CatalogueCache,
    sandboxAccess: SandboxAccess, logger: Logger, now: @escaping @Sendable () -> Timestamp
  ) {
    (self.ledger, self.receipts, self.signedData) = (ledger, receipts, signedData)
    (self.serverAPI, self.apps, self.catalogue) = (serverAPI, apps, catalogue)
    (self.sandboxAccess, self.logger, self.now) = (sandboxAccess, logger, now)
  }
}

/// A part of the intake, which reads the shared services as its own properties.
protocol IntakePart: Sendable {
  var services: IntakeServices { get }
}

extension IntakePart {
  var ledger: Ledger { services.ledger }
  var serverAPI: AppStoreServerAPI? { services.serverAPI }
  var logger: Logger { services.logger }
  var now: @Sendable () -> Timestamp { services.now }
  var terms: AccessTerms { services.catalogue.terms(services.sandboxAccess) }

  /// The app if it is served; if it is unknown, the only one that is served.
  func app(_ bundleID: String?) -> String? {
    guard let bundleID else {
      return services.apps.all.count == 1 ? services.apps.all[0].bundleID : nil
    }
    return services.apps[bundleID]?.bundleID
  }
}
