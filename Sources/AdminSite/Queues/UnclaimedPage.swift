import HTTPAPI
import Hummingbird
import HummingbirdCore
import LedgerStorage
import Subscriptions

struct UnclaimedController: Sendable {
  let pages: PageRenderer
  let ledger: Ledger

  @Sendable
  func show(_ request: Request, context: APIContext) async throws -> Response {
    let now = pages.now()
    let (charges, paging) = try await list(request, wasOver: false, prefix: "")
    let (historical, historicalPaging) = try await list(
      request, wasOver: true, prefix: "historical_")
    return pages.response(
      UnclaimedPage(
        page: try await pages.frame("Unclaimed charges", at: AdminURL.unclaimed, context),
        charges: charges.map { UnclaimedRow($0, at: now) }, paging: paging,
        historical: historical.map { UnclaimedRow($0, at: now) },
        historicalPaging: historicalPaging),
      .unclaimed)
  }

  private func list(_ request: Request, wasOver: Bool, prefix: String) async throws
    -> (elements: [UnclaimedCharge], paging: Paging?)
  {
    let part = try PagePart(request.uri, of: AdminURL.unclaimed, prefix: prefix)
    return part.part(
      of: try await ledger.ownership.unclaimedCharges(
        wasOver: wasOver, after: try part.after.map { try Self.place($0, prefix) },
        limit: part.limit + 1),
      cursor: Self.cursor)
  }

  /// Control characters are not accepted in identifiers.
  private static let separator: Character = "\u{1F}"

  private static func cursor(_ unclaimed: UnclaimedCharge) -> String {
    let charge = unclaimed.charge
    return [
      "\(unclaimed.chargedAt.milliseconds)", charge.line.environment.rawValue,
      charge.line.originalTransactionID.rawValue, charge.transactionID.rawValue,
      charge.productID.rawValue,
    ].joined(separator: String(separator))
  }

  private static func place(_ text: String, _ prefix: String) throws
    -> OwnershipStore.UnclaimedPlace
  {
    let parts = text.split(separator: separator, omittingEmptySubsequences: false)
      .map(String.init)
    guard parts.count == 5, let milliseconds = Int64(parts[0]),
      let environment = Subscriptions.Environment(exactly: parts[1])
    else { throw PagePart.unknownPlace(prefix) }
    return (
      Timestamp(milliseconds: milliseconds),
      TransactionKey(
        line: OriginalTransactionKey(environment, OriginalTransactionID(parts[2])),
        transactionID: TransactionID(parts[3]), productID: ProductID(parts[4]))
    )
  }
}

extension UnclaimedRow {
  fileprivate init(_ unclaimed: UnclaimedCharge, at now: Timestamp) {
    let charge = unclaimed.charge
    self.init(
      transactionID: charge.transactionID.rawValue, href: charge.href,
      productID: charge.productID.rawValue, chargedAt: Moment(unclaimed.chargedAt),
      age: Age.text(now - unclaimed.chargedAt),
      price: Price.text(unclaimed.amountMilliunits, currency: unclaimed.currency),
      because: Explanation(unclaimed.decision) { _ in "" }.sentence,
      isSandbox: charge.line.environment == .sandbox, transferHref: charge.transferHref)
  }
}
