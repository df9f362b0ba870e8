import JSONText
import Testing

@testable import HTTPAPI
@testable import LedgerStorage
@testable import Subscriptions

@Suite("Contents of events")
struct EventDataTests {
  private static let paid = Entitlement(
    name: "premium \"gold\" é", state: .active, productID: "monthly",
    expiresAt: Timestamp(milliseconds: 1_799_999_999_999),
    accessEndsAt: Timestamp(milliseconds: 1_800_000_000_000), willRenew: true, periodType: .trial,
    environment: .sandbox, originalTransactionID: "1", transactionID: "2", source: .appStore)
  private static let granted = Entitlement(
    name: "vip\n\u{1}\\", state: .expired, willRenew: false, periodType: .normal, source: .grant)

  @Test(
    "an entitlement looks as in every other answer, down to the byte", arguments: [paid, granted])
  func entitlement(_ entitlement: Entitlement) {
    var json = JSONWriter(capacity: 512)
    entitlement.write(to: &json)
    let text = String(decoding: json.bytes, as: UTF8.self)
    var data = EventData()
    data.entitlement = entitlement
    #expect(EventRow.text(data) == "{\"entitlement\":\(text)}")
    data.entitlement = nil
    data.entitlements = [entitlement, entitlement]
    #expect(EventRow.text(data) == "{\"entitlements\":[\(text),\(text)]}")
  }

  @Test("a charge has its price, quantity, period type and offer")
  func money() {
    var data = EventData()
    var terms = ChargeTerms(
      charge: TransactionKey(.production, "1", "2", "monthly"), productID: "monthly",
      ownershipType: .familyShared, periodType: .offer, offerType: .winBack, offerID: "winter",
      storefront: "DEU", quantity: 3,
      price: ChargePrice(9990, "EUR", source: .appStore))
    data.terms = terms
    #expect(
      EventRow.text(data)
        == #"{"quantity":3,"ownership_type":"family_shared","period_type":"offer","#
        + #""offer_type":"win_back","offer_id":"winter","storefront":"DEU","#
        + #""price_milliunits":9990,"currency":"EUR"}"#)
    (terms.offerType, terms.offerID, terms.storefront, terms.price) = (nil, nil, nil, nil)
    data.terms = terms
    #expect(
      EventRow.text(data)
        == #"{"quantity":3,"ownership_type":"family_shared","period_type":"offer"}"#)
  }

  @Test("what does not concern an event is left out")
  func members() {
    #expect(EventRow.text(EventData()) == "{}")
    var data = EventData(line: OriginalTransactionKey(.production, "1"))
    data.autoRenewing = false
    data.isOwner = true
    data.rule = .submitter
    data.counterpart = .anotherAccount
    data.entitlements = []
    #expect(
      EventRow.text(data)
        == #"{"environment":"production","original_transaction_id":"1","auto_renewing":false,"#
        + #""owned":true,"rule":"submitter","counterpart":"another_account","entitlements":[]}"#)
  }
}
