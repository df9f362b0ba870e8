package import AppStore
import Foundation
import LedgerStorage
package import Subscriptions

/// A charge of another backend's history, with the account that owns it there.
package struct ImportedCharge: Codable, Sendable {
  package var record: TransactionRecord
  package var statuses: [RenewalStatus]
  package var accountID: String
}

/// A row of another backend's history, as for `tenure import` or as RevenueCat exports it.
package enum HistoryRow {
  package static let columns: [RowFile.Column] = [
    RowFile.Column("environment", isNeeded: false),
    RowFile.Column("original_transaction_id", "original_store_transaction_id"),
    RowFile.Column("account_id", "account", "rc_original_app_user_id"),
    RowFile.Column("transaction_id", "store_transaction_id", isNeeded: false),
    RowFile.Column("receipt_data", "receipt", isNeeded: false),
    RowFile.Column("bundle_id", isNeeded: false),
    RowFile.Column("product_id", "product_identifier", isNeeded: false),
    RowFile.Column("purchased_at", "start_time", isNeeded: false),
    RowFile.Column("expires_at", "end_time", isNeeded: false),
    RowFile.Column("revoked_at", "refunded_at", isNeeded: false),
    RowFile.Column("auto_renew_off_at", "unsubscribe_detected_at", isNeeded: false),
    RowFile.Column("billing_issue_at", "billing_issues_detected_at", isNeeded: false),
    RowFile.Column("grace_period_ends_at", "grace_period_end_time", isNeeded: false),
    RowFile.Column("price", "purchase_price_in_purchased_currency", isNeeded: false),
    RowFile.Column("price_in_purchased_currency", isNeeded: false),
    RowFile.Column("currency", "purchased_currency", isNeeded: false),
    RowFile.Column("is_trial_period", isNeeded: false),
    RowFile.Column("is_sandbox", isNeeded: false),
    RowFile.Column("store", isNeeded: false),
    RowFile.Column("renewal_number", isNeeded: false),
    RowFile.Column("ownership_type", isNeeded: false),
  ]

  /// The charges of a row or its receipt; none of another store, or without either.
  ///
  /// - Parameter receipts: Reads receipts; nil: they are faults.
  package static func charges(
    _ values: [String?], asOf moment: Timestamp, receipts: LocalReceiptVerifier?
  ) -> Result<[ImportedCharge], RowFault> {
    let fields = Fields(values)
    if let store = fields["store"], !store.lowercased().hasSuffix("app_store") {
      return .success([])
    }
    var owner = Array(values.prefix(OwnerRow.columns.count))
    owner[0] = owner[0] ?? fields["is_sandbox"].map { $0.isTrue ? "sandbox" : "production" }
    return OwnerRow.owner(owner, asOf: moment).flatMap { owner in
      do throws(RowFault) {
        if let record = try fields.record(of: owner) {
          return .success([
            ImportedCharge(
              record: record, statuses: try fields.statuses(), accountID: owner.accountID)
          ])
        }
      } catch {
        return .failure(error)
      }
      guard let text = owner.receipt else { return .success([]) }
      guard let receipts else {
        return .failure(RowFault("invalid_receipt", "Receipts need TENURE_BUNDLE_IDS."))
      }
      return receipts.verify(text, bundleID: owner.bundleID).map { receipt in
        receipt.records.filter { $0.key.line == owner.line }.map {
          ImportedCharge(record: $0, statuses: [], accountID: owner.accountID)
        }
      }.mapError { RowFault("invalid_receipt", "\($0)") }
    }
  }

  private struct Fields {
    private let values: [String?]

    init(_ values: [String?]) { self.values = values }

    subscript(name: String) -> String? {
      columns.firstIndex { $0.names[0] == name }.flatMap { values[$0] }
    }

    /// RFC 3339, or the same in UTC without an offset.
    func moment(_ name: String) throws(RowFault) -> Timestamp? {
      guard let text = self[name] else { return nil }
      let bare = text.hasSuffix(" UTC") ? String(text.dropLast(4)) : text
      guard let moment = Timestamp(rfc3339: bare) ?? Timestamp(rfc3339: bare + "Z") else {
        throw RowFault(
          "invalid_time",
          "\(name) must be a time such as 2026-11-21T09:30:00Z, not “\(text.quotable)”.")
      }
      return moment
    }

    /// The transaction; nil without product and date.
    func record(of owner: ImportedOwner) throws(RowFault) -> TransactionRecord? {
      guard let transaction = owner.transactionID, let product = self["product_id"],
        let purchasedAt = try moment("purchased_at")
      else { return nil }
      let revokedAt = try moment("revoked_at")
      let amount = (self["price"] ?? self["price_in_purchased_currency"]).flatMap(Double.init)
      return TransactionRecord(
        key: TransactionKey(
          line: owner.line, transactionID: transaction, productID: ProductID(product)),
        asOf: owner.asOf, kind: self["renewal_number"] == "1" ? .purchase : .unknown,
        purchaseDate: purchasedAt, expiresDate: try moment("expires_at"),
        ownershipType: self["ownership_type"]?.lowercased() == "family_shared"
          ? .familyShared : .purchased,
        periodType: self["is_trial_period"]?.isTrue == true ? .trial : .normal,
        revocation: revokedAt.map { .revoked(at: $0, reason: nil) } ?? .notRevoked,
        priceMilliunits: amount.flatMap { Int64(exactly: ($0 * 1000).rounded()) },
        currency: self["currency"]?.uppercased())
    }

    func statuses() throws(RowFault) -> [RenewalStatus] {
      var statuses: [RenewalStatus] = []
      if let moment = try moment("auto_renew_off_at") {
        statuses.append(RenewalStatus(asOf: moment, autoRenews: false))
      }
      if let moment = try moment("billing_issue_at") {
        let graceEnd = try self.moment("grace_period_ends_at")
        statuses.append(
          RenewalStatus(
            asOf: moment, autoRenews: nil,
            phase: graceEnd.map { .gracePeriod(until: $0) } ?? .billingRetry))
      }
      return statuses
    }
  }
}

extension String {
  fileprivate var isTrue: Bool { ["true", "t", "1", "yes"].contains(lowercased()) }
}
