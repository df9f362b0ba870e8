/// A discount that the customer used for a purchase, other than the introductory one.
package struct SimulatedOffer: Hashable, Sendable {
  /// How the customer got it.
  package enum Kind: String, Sendable {
    /// Shown by receipts as `promotional_offer_id`.
    case promotional
    /// Redeemed with a code; shown by receipts as `offer_code_ref_name`.
    case code

    /// The field of receipts that names it.
    var receiptKey: String {
      self == .promotional ? "promotional_offer_id" : "offer_code_ref_name"
    }
    /// Apple's `offerType`.
    var number: Int64 { self == .promotional ? 2 : 3 }
  }

  package var kind: Kind
  package var name: String
  /// What the first period costs.
  package var priceMilliunits: Int64

  /// An offer; free in its first period unless a price is given.
  package init(_ kind: Kind, _ name: String, priceMilliunits: Int64 = 0) {
    self.kind = kind
    self.name = name
    self.priceMilliunits = priceMilliunits
  }
}
