import JSONText
package import Subscriptions

package import struct Foundation.UUID

extension AppStoreServerAPI {
  /// Sets the account token of a subscription's current and future purchases; past transactions
  /// keep theirs, and Apple rejects those of family members.
  ///
  /// https://developer.apple.com/documentation/appstoreserverapi/set-app-account-token
  package func setAppAccountToken(
    _ token: UUID, on id: OriginalTransactionID, of bundleID: String,
    in environment: Environment? = nil
  ) async throws -> ServerAPIAnswer<Void> {
    let call = try ServerAPICall(
      .appAccountToken, bundleID, "PUT", "/inApps/v1/transactions", id.rawValue, "appAccountToken",
      body: ["appAccountToken": .string(token.text)])
    return try await acknowledgement(of: call, in: environment)
  }

  /// Sends consumption information about the transaction that CONSUMPTION_REQUEST names; Apple
  /// rejects it without the customer's consent.
  package func sendConsumptionInformation(
    _ request: ConsumptionRequest, on id: TransactionID, of bundleID: String,
    in environment: Environment? = nil
  ) async throws -> ServerAPIAnswer<Void> {
    let call = try ServerAPICall(
      .consumptionInformation, bundleID, "PUT", "/inApps/v2/transactions/consumption", id.rawValue,
      body: request.json)
    return try await acknowledgement(of: call, in: environment)
  }

  /// Extends one subscription for free, at most twice in 365 days, while it is active and paid.
  package func extendRenewalDate(
    _ request: ExtendRenewalDateRequest, of id: OriginalTransactionID, in bundleID: String,
    environment: Environment? = nil
  ) async throws -> ServerAPIAnswer<ExtendRenewalDateResponse> {
    let call = try ServerAPICall(
      .renewalDateExtension, bundleID, "PUT", "/inApps/v1/subscriptions/extend", id.rawValue,
      body: request.json)
    return try await answer(to: call, in: environment, as: ExtendRenewalDateResponse.self)
  }

  package func extendRenewalDates(
    _ request: ExtendRenewalDateRequest, in bundleID: String, environment: Environment
  ) async throws -> ServerAPIAnswer<MassExtendRenewalDateResponse> {
    let call = try ServerAPICall(
      .massExtension, bundleID, "POST", "/inApps/v1/subscriptions/extend/mass", body: request.json)
    return try await answer(to: call, in: environment, as: MassExtendRenewalDateResponse.self)
  }

  package func extensionStatus(
    of requestIdentifier: String, productID: ProductID, in bundleID: String,
    environment: Environment
  ) async throws -> ServerAPIAnswer<MassExtendRenewalDateResponse> {
    let call = try ServerAPICall(
      .massExtensionStatus, bundleID, "GET", "/inApps/v1/subscriptions/extend/mass",
      productID.rawValue, requestIdentifier)
    return try await answer(to: call, in: environment, as: MassExtendRenewalDateResponse.self)
  }
}
