import Foundation
import HTTPTypes
import Hummingbird
import JSONText
import LedgerStorage
import Subscriptions

struct OrderController: Controller {
  let api: API

  func open(_ request: Request, context: APIContext) async throws -> Response {
    let body = try await request.json()
    let order = try await ledger.orders.openOrder(
      accountID: try body.required(.accountID),
      productID: ProductID(try body.required(.productID)), at: now())
    return Response(
      order, status: .created, headers: [.location: "/v1/orders/\(order.order.id.text)"])
  }

  func show(_ request: Request, context: APIContext) async throws -> Response {
    let id = try context.uuidParameter("order_id")
    guard let order = try await ledger.orders.order(id) else {
      throw Problem(.unknownOrder, "No order has the ID \(id.text).")
    }
    return Response(order.answered(at: now()))
  }
}

extension StoredOrder: JSONObjectWritable {
  func writeMembers(to json: inout JSONWriter) {
    json.member("order_id", order.id)
    json.member("account_id", accountID)
    json.member("product_id", order.productID)
    json.member("app_account_token", appAccountToken)
    json.member("status", order.status)
    json.member("created_at", order.createdAt)
    json.member("transaction_id", transactionID)
    json.member("fulfilled_at", fulfilledAt)
  }
}
