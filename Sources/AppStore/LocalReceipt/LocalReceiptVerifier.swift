import Subscriptions

/// Verifies app receipts without asking Apple: by Apple's signature in them.
package struct LocalReceiptVerifier: Sendable {
  private let roots: TrustedRoots
  private let apps: AppStoreApps
  private let acceptsXcode: Bool

  /// - Parameters:
  ///   - roots: Where the certificates in receipts have to lead to.
  ///   - apps: The apps that are served.
  ///   - acceptsXcode: Whether receipts of StoreKit Testing in Xcode count as sandbox receipts;
  ///     anybody can make those, so only for development.
  package init(
    roots: TrustedRoots = .appleReceipts, apps: AppStoreApps, acceptsXcode: Bool = false
  ) {
    self.roots = roots
    self.apps = apps
    self.acceptsXcode = acceptsXcode
  }

  /// Verifies a receipt as it was submitted, base64.
  ///
  /// `bundleID` is the app that the sender named: only that app's receipts are accepted then.
  package func verify(
    _ receiptData: String, bundleID: String? = nil
  ) -> Result<LocalReceipt, LocalReceiptRefusal> {
    do {
      return .success(try verified(try ReceiptForm.bytes(of: receiptData), named: bundleID))
    } catch let refusal as LocalReceiptRefusal {
      return .failure(refusal)
    } catch {
      return .failure(LocalReceiptRefusal(.malformed, "The receipt can't be read: \(error)."))
    }
  }

  /// The order: what it says it is, then who signed, and only then whose it is.
  ///
  /// The date of the chain's verification is the receipt's own. An expired key that was stolen
  /// could be dated back; Apple asks for it all the same, for devices keep receipts for years.
  private func verified(_ bytes: [UInt8], named: String?) throws -> LocalReceipt {
    guard try ReceiptForm.kind(of: bytes) == .app else {
      throw LocalReceiptRefusal(
        .transactionReceipt, "The receipt is one of iOS 6, which only Apple can check.")
    }
    let container = try ReceiptContainer(parsing: bytes[...])
    let signer = try container.signer()
    let chain = try ReceiptChain(container.certificates, signer: signer.name)
    guard signer.hasSigned(container.content, with: chain.leaf) else {
      throw LocalReceiptRefusal(
        .wrongSignature, "The receipt's signature does not belong to its contents.")
    }
    let contents = try AppReceipt(parsing: container.content)
    guard let createdAt = contents.creationDate else {
      throw ReceiptFault("the creation date is missing")
    }
    // What Xcode signs leads nowhere; its signature holds it together all the same.
    if !(acceptsXcode && contents.isFromXcode) {
      try chain.verify(roots: roots.certificates, at: createdAt)
    }
    return LocalReceipt(
      contents, environment: try environment(of: contents),
      bundleID: try bundleID(of: contents, named: named), createdAt: createdAt)
  }

  private func environment(of contents: AppReceipt) throws -> Environment {
    guard let environment = contents.environment else {
      throw LocalReceiptRefusal(
        .wrongEnvironment, "The receipt names no environment that is known.")
    }
    guard !contents.isFromXcode || acceptsXcode else {
      throw LocalReceiptRefusal(
        .wrongEnvironment, "The receipt was made by Xcode, which is not accepted here.")
    }
    return environment
  }

  private func bundleID(of contents: AppReceipt, named: String?) throws -> String {
    guard let bundleID = contents.bundleID else {
      throw LocalReceiptRefusal(.wrongBundleID, "The receipt names no app.")
    }
    switch apps.owner(of: [bundleID], named: named) {
    case .app(let app), .assumed(let app): return app.bundleID
    case .refused(let reason): throw LocalReceiptRefusal(.wrongBundleID, reason)
    }
  }
}
