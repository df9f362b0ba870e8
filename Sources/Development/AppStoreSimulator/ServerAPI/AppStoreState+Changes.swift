import AppStore
import struct Foundation.UUID
import JSONText
import Subscriptions

import struct Foundation.UUID

// The changes and reports of an app's server.
extension AppStoreState {
  private static let longestRequestIdentifier = 128
  /// 0: undeclared, 1: satisfaction, 2: other, 3: an outage.
  private static let extendReasons: ClosedRange<Int64> = 0...3
  private static let deliveryStatuses: Set<String> = [
    "DELIVERED", "UNDELIVERED_QUALITY_ISSUE", "UNDELIVERED_WRONG_ITEM",
    "UNDELIVERED_SERVER_OUTAGE", "UNDELIVERED_OTHER",
  ]
  private static let refundPreferences: Set<String> = [
    "DECLINE", "GRANT_FULL", "GRANT_PRORATED",
  ]
  /// In thousandths of a percent.
  private static let consumptionPercentages: ClosedRange<Int64> = 0...100_000

  // https://developer.apple.com/documentation/appstoreserverapi/extend-a-subscription-renewal-date
  mutating func extendRenewalDate(
    _ id: String, _ request: ServerAPIRequest, _ caller: Caller
  ) throws -> JSONValue {
    let (days, _) = try extensionTerms(try request.json())
    let line = try line(
      id, caller, or: .invalidOriginalTransactionID, missing: .originalTransactionIDNotFound)
    if let refusal = refusal(toExtend: line, days: days) { throw refusal }
    _ = extend(line, days: days)
    guard let current = validCharge(of: line), let end = charges[current].expiresDate else {
      throw ServerAPIError.internalError
    }
    var members: [JSONValue.Member] = []
    members.append("effectiveDate", .integer(end.milliseconds))
    members.append("originalTransactionId", lines[line].id.rawValue)
    members.append("success", true)
    members.append(
      "webOrderLineItemId", charges[current].webOrderLineItemID?.rawValue ?? "")
    return .object(members)
  }

  private func extensionTerms(_ body: JSONValue) throws -> (days: Int, identifier: String) {
    guard let days = body["extendByDays"]?.integer.flatMap(Int.init(exactly:)),
      Self.extensionDays.contains(days)
    else { throw ServerAPIError.invalidExtendByDays }
    guard let reason = body["extendReasonCode"]?.integer, Self.extendReasons.contains(reason)
    else { throw ServerAPIError.invalidExtendReasonCode }
    guard let identifier = body["requestIdentifier"]?.string, !identifier.isEmpty,
      identifier.count <= Self.longestRequestIdentifier
    else { throw ServerAPIError.invalidRequestIdentifier }
    return (days, identifier)
  }

  // https://developer.apple.com/documentation/appstoreserverapi/massextendrenewaldaterequest
  mutating func extendAll(_ request: ServerAPIRequest, _ caller: Caller) throws -> JSONValue {
    let body = try request.json()
    let (days, identifier) = try extensionTerms(body)
    guard let product = body["productId"]?.string.map(ProductID.init(rawValue:)),
      let offering = shelf[product], offering.app == caller.app,
      offering.product.type == .autoRenewable
    else { throw ServerAPIError.invalidProductID }
    var countries: [String]?
    if let list = body["storefrontCountryCodes"] {
      guard let codes = list.array?.map(\.string), !codes.isEmpty else {
        throw ServerAPIError.noStorefronts
      }
      countries = try codes.map { code in
        guard let code, code.count == Self.storefrontCodeLength else {
          throw ServerAPIError.invalidStorefront
        }
        return code
      }
    }
    extendAll(
      of: product, days: days, in: countries, identifier: identifier, app: caller.app,
      environment: caller.environment)
    return ["requestIdentifier": .string(identifier)]
  }

  private static let storefrontCodeLength = 3  // ISO 3166-1 alpha-3

  func extensionStatus(_ product: String, _ identifier: String, _ caller: Caller) throws
    -> JSONValue
  {
    let found = massExtensions.last {
      $0.identifier == identifier && $0.product.rawValue == product && $0.app == caller.app
        && $0.environment == caller.environment
    }
    guard let found else { throw ServerAPIError.statusRequestNotFound }
    return [
      "requestIdentifier": .string(identifier), "complete": true,
      "completeDate": .integer(found.completedAt.milliseconds),
      "succeededCount": .integer(Int64(found.succeeded)),
      "failedCount": .integer(Int64(found.failed)),
    ]
  }

  /// Sets the token of a one-time purchase, or of a subscription's current and later periods.
  ///
  /// https://developer.apple.com/documentation/appstoreserverapi/set-app-account-token
  mutating func setAppAccountToken(
    _ id: String, _ request: ServerAPIRequest, _ caller: Caller
  ) throws -> SimulatedAnswer {
    guard let token = try request.json()["appAccountToken"]?.string.flatMap(UUID.init(uuidString:))
    else { throw ServerAPIError.invalidAccountToken }
    let number = try charge(id, caller)
    let line = charges[number].line
    guard lines[line].id.rawValue == id else { throw ServerAPIError.notOriginalTransactionID }
    guard lines[line].ownership == .purchased else { throw ServerAPIError.familyNotSupported }
    if let current = currentCharge(of: line) {
      charges[current].appAccountToken = token
      touch(current)
    }
    lines[line].renewal?.appAccountToken = token
    return SimulatedAnswer(httpStatus: 200, body: [])
  }

  // https://developer.apple.com/documentation/appstoreserverapi/send-consumption-information
  mutating func takeConsumption(
    _ id: String, _ request: ServerAPIRequest, _ caller: Caller
  ) throws -> SimulatedAnswer {
    let body = try request.json()
    guard body["customerConsented"]?.bool == true else {
      throw ServerAPIError.invalidCustomerConsented
    }
    guard let status = body["deliveryStatus"]?.string, Self.deliveryStatuses.contains(status)
    else { throw ServerAPIError.invalidDeliveryStatus }
    guard body["sampleContentProvided"]?.bool != nil else {
      throw ServerAPIError.invalidSampleContentProvided
    }
    if let percentage = body["consumptionPercentage"] {
      guard let number = percentage.integer, Self.consumptionPercentages.contains(number),
        status == "DELIVERED" || number == 0
      else { throw ServerAPIError.badRequest }
    }
    if let preference = body["refundPreference"] {
      guard preference.string.map(Self.refundPreferences.contains) ?? false else {
        throw ServerAPIError.badRequest
      }
    }
    let number = try charge(id, caller)
    guard lines[charges[number].line].ownership == .purchased else {
      throw ServerAPIError.familyNotSupported
    }
    charges[number].consumptionReports.append(body)
    return SimulatedAnswer(httpStatus: 202, body: [])
  }

  private func line(
    _ id: String, _ caller: Caller, or invalid: ServerAPIError, missing: ServerAPIError
  ) throws -> Int {
    guard !id.isEmpty, id.allSatisfy({ ("0"..."9").contains($0) }) else { throw invalid }
    guard let number = lineNumbers[OriginalTransactionID(id)],
      lines[number].app == caller.app, lines[number].environment == caller.environment
    else { throw missing }
    guard !customers[lines[number].customer].isDeleted else {
      throw ServerAPIError.accountNotFound
    }
    return number
  }
}
