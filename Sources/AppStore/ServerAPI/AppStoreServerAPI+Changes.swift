package import Subscriptions

package import struct Foundation.UUID

extension AppStoreServerAPI {
  /// Marks a line's purchases with an account, from the current one on.
  ///
  /// It replaces what the app has set; past transactions keep theirs, and those of family members
  /// are refused. Apple takes no other id than the original transaction's.
  /// https://developer.apple.com/documentation/appstoreserverapi/set-app-account-token
  package func setAppAccountToken(
    _ token: UUID, on id: OriginalTransactionID, of bundleID: String,
    in environment: Environment? = nil
  ) async throws -> ServerAPIAnswer<ServerAPIAcknowledgement> {
    var request = UpdateAppAccountTokenRequest()
    request.appAccountToken = token.uuidString.lowercased()
    let path = try ServerAPICall.path(
      "/inApps/v1/transactions", id.rawValue, to: .appAccountToken)
    let call = ServerAPICall(
      endpoint: .appAccountToken, bundleID: bundleID, method: "PUT",
      path: path + "/appAccountToken", body: request.json)
    return try await acknowledgement(of: call, in: environment)
  }

  /// Tells Apple what a customer had of a purchase that a refund is asked for.
  ///
  /// The transaction is the one that CONSUMPTION_REQUEST names; without the customer's consent
  /// Apple refuses it.
  package func sendConsumptionInformation(
    _ request: ConsumptionRequest, on id: TransactionID, of bundleID: String,
    in environment: Environment? = nil
  ) async throws -> ServerAPIAnswer<ServerAPIAcknowledgement> {
    let call = ServerAPICall(
      endpoint: .consumptionInformation, bundleID: bundleID, method: "PUT",
      path: try ServerAPICall.path(
        "/inApps/v2/transactions/consumption", id.rawValue, to: .consumptionInformation),
      body: request.json)
    return try await acknowledgement(of: call, in: environment)
  }

  /// Extends one subscription for free.
  ///
  /// At most twice in 365 days, and only where it is active and paid for.
  package func extendRenewalDate(
    _ request: ExtendRenewalDateRequest, of id: OriginalTransactionID, in bundleID: String,
    environment: Environment? = nil
  ) async throws -> ServerAPIAnswer<ExtendRenewalDateResponse> {
    let call = ServerAPICall(
      endpoint: .renewalDateExtension, bundleID: bundleID, method: "PUT",
      path: try ServerAPICall.path(
        "/inApps/v1/subscriptions/extend", id.rawValue, to: .renewalDateExtension),
      body: request.json)
    return try await answer(to: call, in: environment, as: ExtendRenewalDateResponse.self)
  }

  /// Begins to extend every active subscription to a product.
  package func extendRenewalDates(
    _ request: MassExtendRenewalDateRequest, in bundleID: String, environment: Environment
  ) async throws -> ServerAPIAnswer<MassExtendRenewalDateResponse> {
    let call = ServerAPICall(
      endpoint: .massExtension, bundleID: bundleID, method: "POST",
      path: "/inApps/v1/subscriptions/extend/mass", body: request.json)
    return try await answer(to: call, in: environment, as: MassExtendRenewalDateResponse.self)
  }

  /// How far Apple has come with extending every active subscription to a product.
  package func extensionStatus(
    of requestIdentifier: String, productID: ProductID, in bundleID: String,
    environment: Environment
  ) async throws -> ServerAPIAnswer<MassExtendRenewalDateStatusResponse> {
    let call = ServerAPICall(
      endpoint: .massExtensionStatus, bundleID: bundleID, method: "GET",
      path: try ServerAPICall.path(
        "/inApps/v1/subscriptions/extend/mass", productID.rawValue, requestIdentifier,
        to: .massExtensionStatus))
    return try await answer(
      to: call, in: environment, as: MassExtendRenewalDateStatusResponse.self)
  }
}
