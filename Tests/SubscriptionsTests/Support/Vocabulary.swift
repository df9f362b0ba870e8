import Foundation
import Subscriptions

// The words that the tests are written in: days of one invented story, accounts, products, and what
// Apple says. A row of a table should read like the specification.

/// A moment of the story: so many days after it begins, give or take.
func day(_ days: Double, _ offset: Duration = .zero) -> Timestamp {
  Timestamp(milliseconds: 1_767_225_600_000 + Int64((days * 86_400_000).rounded())) + offset
}

let ms = Duration.milliseconds(1)
let second = Duration.seconds(1)

func minus(_ duration: Duration) -> Duration { .zero - duration }

extension AccountKey {
  /// A name of one letter for each account.
  init(_ letter: Character) {
    let value = letter.asciiValue ?? 0
    self.init(
      rawValue: UUID(uuid: (0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, value)))
  }
}

let a = AccountKey("A")
let b = AccountKey("B")
let c = AccountKey("C")
/// The account that tokens name.
let t = AccountKey("T")

/// The token that the ledger issued to an account.
func issuedToken(_ account: AccountKey) -> UUID {
  var bytes = account.rawValue.uuid
  bytes.0 = 0xAA
  return UUID(uuid: bytes)
}

/// A token that this ledger never issued.
let strangeToken = UUID(uuid: (9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9))

let mainKey = OriginalTransactionKey(.production, "1000")
let otherKey = OriginalTransactionKey(.production, "2000")

extension ProductID {
  static let monthly: ProductID = "monthly"
  static let quarterly: ProductID = "quarterly"
  static let gems: ProductID = "gems"
  static let lifetime: ProductID = "lifetime"
  static let season: ProductID = "season"
}

/// Monthly and quarterly grant the same; a season lasts a month by the calendar, later two.
let catalogue = Catalogue([
  Product(id: .monthly, validFrom: day(0), type: .autoRenewable, entitlements: ["premium"]),
  Product(id: .quarterly, validFrom: day(0), type: .autoRenewable, entitlements: ["premium"]),
  Product(id: "basic", validFrom: day(0), type: .autoRenewable, entitlements: ["basic"]),
  Product(
    id: "both", validFrom: day(0), type: .autoRenewable, entitlements: ["premium", "basic"]),
  Product(id: .gems, validFrom: day(0), type: .consumable, entitlements: ["gems"]),
  Product(id: .lifetime, validFrom: day(0), type: .nonConsumable, entitlements: ["premium"]),
  Product(
    id: .season, validFrom: day(0), type: .nonRenewing, entitlements: ["premium"],
    period: CalendarPeriod(months: 1)),
  Product(
    id: .season, validFrom: day(100), type: .nonRenewing, entitlements: ["premium"],
    period: CalendarPeriod(months: 2)),
])

func key(
  _ id: TransactionID, _ product: ProductID = .monthly, line: OriginalTransactionKey = mainKey
) -> TransactionKey {
  TransactionKey(line: line, transactionID: id, productID: product)
}

/// One answer about a charge; its kind is unknown, as receipts leave it.
func charge(
  _ id: TransactionID, _ product: ProductID = .monthly, from start: Timestamp,
  to end: Timestamp? = nil, asOf: Timestamp? = nil, kind: ChargeKind = .unknown,
  line: OriginalTransactionKey = mainKey, item: WebOrderLineItemID? = nil, token: UUID? = nil,
  isUpgraded: Bool = false, revocation: RevocationStatus = .notRevoked,
  productType: ProductType? = nil, isCommitment: Bool = false
) -> TransactionRecord {
  TransactionRecord(
    key: key(id, product, line: line), asOf: asOf ?? start, kind: kind, purchaseDate: start,
    expiresDate: end, webOrderLineItemID: item, productType: productType, appAccountToken: token,
    isUpgraded: isUpgraded, revocation: revocation, isCommitment: isCommitment)
}

func on(_ asOf: Timestamp, token: UUID? = nil) -> RenewalStatus {
  RenewalStatus(asOf: asOf, autoRenews: true, appAccountToken: token)
}

func off(_ asOf: Timestamp, token: UUID? = nil) -> RenewalStatus {
  RenewalStatus(asOf: asOf, autoRenews: false, appAccountToken: token)
}

func status(
  _ asOf: Timestamp, _ phase: RenewalStatus.Phase, autoRenews: Bool? = nil,
  isCommitment: Bool = false
) -> RenewalStatus {
  RenewalStatus(
    asOf: asOf, autoRenews: autoRenews, phase: phase, isCommitment: isCommitment)
}
