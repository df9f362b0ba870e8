package import Subscriptions

package struct LocalReceiptVerifier: Sendable {
  private let roots: TrustedRoots
  private let apps: AppStoreApps
  private let acceptsXcode: Bool

  /// - Parameter acceptsXcode: Whether receipts from StoreKit Testing in Xcode, which anyone can
  ///   make, count as sandbox receipts; for development only.
  package init(
    roots: TrustedRoots = .appleReceipts, apps: AppStoreApps, acceptsXcode: Bool = false
  ) {
    (self.roots, self.apps, self.acceptsXcode) = (roots, apps, acceptsXcode)
  }

  /// Verifies a receipt in base64.
  ///
  /// - Parameter bundleID: If not nil, only this app's receipts are accepted.
  package func verify(
    _ receiptData: String, bundleID: String? = nil
  ) -> Result<LocalReceipt, LocalReceiptRefusal> {
    do {
      return .success(try verified(try ReceiptContainer(base64: receiptData), named: bundleID))
    } catch let refusal as LocalReceiptRefusal {
      return .failure(refusal)
    } catch {
      let fault = error as? ReceiptFault ?? ReceiptFault("its structure is not that of a receipt")
      return .failure(LocalReceiptRefusal(.malformed, "The receipt can't be read: \(fault)."))
    }
  }

  /// Checks the format, then the signature, with its chain as of the receipt's own date, then the
  /// recipient.
  ///
  /// A stolen expired key could be used for backdating, but devices keep receipts for years.
  private func verified(_ container: ReceiptContainer, named: String?) throws -> LocalReceipt {
    let signer = try container.signer()
    let chain = try ReceiptChain(container.certificates, signer: signer.name)
    guard signer.hasSigned(container.content, with: chain.leaf) else {
      throw LocalReceiptRefusal(
        .wrongSignature, "The receipt's signature does not match its contents.")
    }
    let contents = try AppReceipt(parsing: container.content)
    guard let createdAt = contents.creationDate else {
      throw ReceiptFault("the creation date is missing")
    }
    // Xcode's certificates lead to no root; its signature still protects the contents.
    if !(acceptsXcode && contents.isFromXcode) {
      try chain.verify(roots: roots.certificates, at: createdAt)
    }
    return LocalReceipt(
      contents, environment: try environment(of: contents),
      bundleID: try bundleID(of: contents, named: named), createdAt: createdAt)
  }

  private func environment(of contents: AppReceipt) throws -> Environment {
    guard let environment = contents.environment else {
      throw LocalReceiptRefusal(.wrongEnvironment, "The receipt names no known environment.")
    }
    guard !contents.isFromXcode || acceptsXcode else {
      throw LocalReceiptRefusal(
        .wrongEnvironment, "The receipt was made by Xcode, which is not accepted.")
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

/// A verified app receipt of a configured app, as evidence; it does not contain later events, so it
/// never creates a charge; <doc:LocalReceipts> explains its uses.
package struct LocalReceipt: Hashable, Sendable {
  package let environment: Environment
  package let bundleID: String
  package let createdAt: Timestamp
  /// The end of a volume purchase; nil for all other receipts.
  package let expiresAt: Timestamp?
  /// Each transaction once, by purchase date.
  package let records: [TransactionRecord]
  package let unreadable: [UnreadableRecord]
  package let contents: AppReceipt

  init(_ contents: AppReceipt, environment: Environment, bundleID: String, createdAt: Timestamp) {
    self.environment = environment
    self.bundleID = bundleID
    self.createdAt = createdAt
    self.contents = contents
    expiresAt = contents.expirationDate
    unreadable = contents.unreadable
    var records: [TransactionKey: TransactionRecord] = [:]
    for purchase in contents.inApp {
      // A missing cancellation says nothing, because it may have happened since.
      let record = TransactionRecord(
        purchase, key: purchase.key(in: environment), asOf: createdAt, otherwise: .notSaid)
      // If two differ, which has not been seen, the one that grants less counts.
      records[record.key] =
        records[record.key].map { $0.grantsMore(than: record) ? record : $0 }
        ?? record
    }
    self.records = records.values.sorted { ($0.purchaseDate, $0.key) < ($1.purchaseDate, $1.key) }
  }
}

extension TransactionRecord {
  fileprivate func grantsMore(than other: TransactionRecord) -> Bool {
    if (revocation == .notSaid) != (other.revocation == .notSaid) { return revocation == .notSaid }
    return (expiresDate?.milliseconds ?? .max, chargedAt.milliseconds)
      > (other.expiresDate?.milliseconds ?? .max, other.chargedAt.milliseconds)
  }
}

package struct LocalReceiptRefusal: Error, Hashable, Sendable, CustomStringConvertible {
  package enum Reason: String, CaseIterable, Sendable {
    case notBase64 = "not_base64"
    case tooLarge = "too_large"
    /// Not PKCS#7 SignedData around a receipt.
    case notAReceipt = "not_a_receipt"
    /// An iOS 6 receipt, which Apple signed differently and only Apple can verify.
    case transactionReceipt = "transaction_receipt"
    case malformed
    case notOneSigner = "not_one_signer"
    case unsupportedAlgorithm = "unsupported_algorithm"
    case missingCertificate = "missing_certificate"
    /// A certificate can't be read, or has no place in the chain.
    case strangeCertificate = "strange_certificate"
    case untrustedChain = "untrusted_chain"
    case outsideValidity = "outside_validity"
    /// A certificate is used for another purpose than it was issued for.
    case wrongUse = "wrong_use"
    /// A certificate of Apple's that is not for receipts.
    case missingMarker = "missing_marker"
    case wrongSignature = "wrong_signature"
    case wrongBundleID = "wrong_bundle_id"
    case wrongEnvironment = "wrong_environment"
  }

  package let reason: Reason
  /// One sentence without contents.
  package let description: String

  init(_ reason: Reason, _ description: String) {
    (self.reason, self.description) = (reason, description)
  }
}

/// A problem with a part of a receipt, as a clause without values.
struct ReceiptFault: Error, Hashable, CustomStringConvertible {
  let description: String

  init(_ description: String) { self.description = description }
}
