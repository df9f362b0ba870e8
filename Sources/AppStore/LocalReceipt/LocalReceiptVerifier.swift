package import Subscriptions

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

/// An app receipt that Apple signed for an app that is served, in the vocabulary of the rules.
///
/// It is as old as it is: what has happened since its creation is not in it. So it never makes a
/// charge. See <doc:LocalReceipts> for what it may be used for.
package struct LocalReceipt: Hashable, Sendable {
  package let environment: Environment
  /// The configured app that it belongs to.
  package let bundleID: String
  /// When Apple made it.
  package let createdAt: Timestamp
  /// The end of a volume purchase; nil for everybody else's receipts.
  package let expiresAt: Timestamp?
  /// Every transaction once, by purchase date.
  package let records: [TransactionRecord]
  /// What could not be read.
  package let unreadable: [UnreadableRecord]
  /// Everything that it says.
  package let contents: AppReceipt

  init(
    _ contents: AppReceipt, environment: Environment, bundleID: String, createdAt: Timestamp
  ) {
    self.environment = environment
    self.bundleID = bundleID
    self.createdAt = createdAt
    self.contents = contents
    expiresAt = contents.expirationDate
    unreadable = contents.unreadable
    var records: [TransactionKey: TransactionRecord] = [:]
    for purchase in contents.inApp {
      let record = TransactionRecord(purchase, environment: environment, asOf: createdAt)
      // Of two that differ, which has not been seen, the one that says less counts.
      records[record.key] =
        records[record.key].map { $0.grantsMore(than: record) ? record : $0 }
        ?? record
    }
    self.records = records.values.sorted {
      ($0.purchaseDate, $0.key) < ($1.purchaseDate, $1.key)
    }
  }
}

extension TransactionRecord {
  /// A purchase in a receipt of that creation date.
  ///
  /// Receipts don't say why a charge was made, nor its price, its group or its account token. That
  /// no cancellation is named says nothing: it may have come since.
  init(_ purchase: InAppReceipt, environment: Environment, asOf: Timestamp) {
    self.init(
      key: TransactionKey(
        line: LineID(environment, OriginalTransactionID(purchase.line)),
        transactionID: TransactionID(purchase.transactionID),
        productID: ProductID(purchase.productID)),
      asOf: asOf, purchaseDate: purchase.purchaseDate,
      originalPurchaseDate: purchase.originalPurchaseDate, expiresDate: purchase.expiresDate,
      webOrderLineItemID: purchase.webOrderLineItemID.map { WebOrderLineItemID(String($0)) },
      productType: purchase.productType,
      quantity: purchase.quantity.flatMap { Int(exactly: $0) }.map { max($0, 1) } ?? 1,
      periodType: purchase.periodType, offerID: purchase.promotionalOfferID,
      revocation: purchase.cancellationDate.map { .mentioned(at: $0, reason: nil) } ?? .notSaid)
  }

  /// Whether this would let its owner use more than `other`, another report of the transaction.
  fileprivate func grantsMore(than other: TransactionRecord) -> Bool {
    if (revocation == .notSaid) != (other.revocation == .notSaid) { return revocation == .notSaid }
    return (expiresDate?.milliseconds ?? .max, chargedAt.milliseconds)
      > (other.expiresDate?.milliseconds ?? .max, other.chargedAt.milliseconds)
  }
}

extension InAppReceipt {
  fileprivate var periodType: PeriodType {
    if isTrialPeriod == true { return .trial }
    if isInIntroOfferPeriod == true { return .intro }
    return promotionalOfferID == nil ? .normal : .offer
  }
}

/// Why a local receipt is not believed.
package struct LocalReceiptRefusal: Error, Hashable, Sendable, CustomStringConvertible {
  /// What is wrong, one case per kind of fault or forgery.
  package enum Reason: String, CaseIterable, Sendable {
    case notBase64 = "not_base64"
    case tooLarge = "too_large"
    /// Something else than PKCS#7 SignedData around a receipt.
    case notAReceipt = "not_a_receipt"
    /// A receipt of iOS 6: Apple signed it in another way, and only Apple can check it.
    case transactionReceipt = "transaction_receipt"
    /// The parts are there and can't be read.
    case malformed
    /// Nobody signed, or several did.
    case notOneSigner = "not_one_signer"
    case unsupportedAlgorithm = "unsupported_algorithm"
    /// The certificate of the signer is not in the receipt.
    case missingCertificate = "missing_certificate"
    /// A certificate can't be read, or has no place in the chain.
    case strangeCertificate = "strange_certificate"
    /// The chain does not end at a root that is trusted.
    case untrustedChain = "untrusted_chain"
    /// A certificate was not valid when the receipt was made.
    case outsideValidity = "outside_validity"
    /// A certificate is used for what it was not issued for.
    case wrongUse = "wrong_use"
    /// A certificate of Apple's, but not one for receipts.
    case missingMarker = "missing_marker"
    case wrongSignature = "wrong_signature"
    case wrongBundleID = "wrong_bundle_id"
    case wrongEnvironment = "wrong_environment"
  }

  package let reason: Reason
  /// One plain sentence, without contents.
  package let description: String

  init(_ reason: Reason, _ description: String) {
    self.reason = reason
    self.description = description
  }
}

/// What is wrong with a part of a receipt, as a clause and without its values.
struct ReceiptFault: Error, Hashable, CustomStringConvertible {
  let description: String

  init(_ description: String) { self.description = description }
}
