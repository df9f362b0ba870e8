import AppStore
import Foundation
import Subscriptions

/// Apple, with its answers at hand: what verifyReceipt would say about each sample's receipt.
struct PreparedAppStore: AppStoreTransport {
  /// Where the receipt begins in a request's body.
  private static let receiptKey = Array(#""receipt-data":""#.utf8)
  /// The digits of a sample's number, with which its receipt begins.
  private static let numberLength = 10

  private let purchasedAt: Timestamp

  init() {
    // A few seconds before the receipt is sent.
    purchasedAt = .now - .seconds(10)
  }

  func send(_ request: AppStoreRequest) async throws -> AppStoreResponse {
    guard let key = request.body.firstRange(of: Self.receiptKey),
      let number = Int(
        String(
          decoding: request.body[key.upperBound...].prefix(Self.numberLength), as: UTF8.self))
    else { throw AppStoreTransportError(.connectionFailed, detail: "this is no sample's receipt") }
    return AppStoreResponse(
      status: 200, headers: [HTTPHeader("Content-Type", "application/json")],
      body: answer(about: SampleSubmission(number: number, orderID: nil)))
  }

  /// The answer about a sample's receipt, with all that Apple's answers have.
  func answer(about sample: SampleSubmission) -> [UInt8] {
    let product = SampleAccounts.productID
    let item = """
      {"quantity":"1","product_id":"\(product)","transaction_id":"\(sample.transactionID)",\
      "original_transaction_id":"\(sample.originalTransactionID)",\
      \(date("purchase_date", purchasedAt)),\(date("original_purchase_date", purchasedAt)),\
      \(date("expires_date", purchasedAt + .days(30))),\
      "web_order_line_item_id":"\(sample.webOrderLineItemID)","is_trial_period":"false",\
      "is_in_intro_offer_period":"false","in_app_ownership_type":"PURCHASED",\
      "subscription_group_identifier":"20500001"}
      """
    let answer = """
      {"environment":"Production","receipt":{"receipt_type":"Production","adam_id":1234567890,\
      "app_item_id":1234567890,"bundle_id":"\(SampleSubmission.bundleID)",\
      "application_version":"1","download_id":500000000000000000,\
      "version_external_identifier":850000000,\(date("receipt_creation_date", purchasedAt)),\
      \(date("request_date", .now)),\(date("original_purchase_date", purchasedAt)),\
      "original_application_version":"1","in_app":[\(item)]},\
      "latest_receipt_info":[\(item)],"latest_receipt":"\(sample.receiptData)",\
      "pending_renewal_info":[{"auto_renew_product_id":"\(product)","product_id":"\(product)",\
      "original_transaction_id":"\(sample.originalTransactionID)","auto_renew_status":"1"}],\
      "status":0}
      """
    return Array(answer.utf8)
  }

  /// A date as Apple writes it, three times. (The third is not read by anybody, and in UTC here.)
  private func date(_ name: String, _ moment: Timestamp) -> String {
    let text = moment.description.prefix(19).replacing("T", with: " ")
    return """
      "\(name)":"\(text) Etc/GMT","\(name)_ms":"\(moment.milliseconds)",\
      "\(name)_pst":"\(text) America/Los_Angeles"
      """
  }
}
