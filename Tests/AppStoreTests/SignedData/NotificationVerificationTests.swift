import AppStore
import Foundation
import JSONText
import Subscriptions
import Testing

/// Notifications, renewal infos and app transactions: their addressees and contents.
struct NotificationVerificationTests {
  private static let transaction = Signed.transaction
  private static let renewalInfo = Signed.renewalInfo

  private static func jws(_ json: JSONValue) throws -> JSONValue {
    .string(try DraftJWS(json).text)
  }

  private static func forged(_ json: JSONValue) throws -> JSONValue {
    .string(try DraftJWS(json).with { $0.leaf = .forger }.text)
  }

  /// A notification with another container than `data`.
  private static func notification(_ container: String, _ value: JSONValue) throws -> JSONValue {
    try Signed.notification().with(["data": nil, container: value])
  }

  private static let summary: JSONValue = [
    "environment": "Production", "appAppleId": 41234, "bundleId": "com.example.app",
    "productId": "monthly", "requestIdentifier": "r", "succeededCount": 1, "failedCount": 0,
  ]
  private static let token: JSONValue = [
    "externalPurchaseId": "b2158121", "tokenCreationDate": 1_748_779_000_000,
    "appAppleId": 41234, "bundleId": "com.example.app",
  ]
  private static let appData: JSONValue = [
    "environment": "Production", "appAppleId": 41234, "bundleId": "com.example.app",
  ]

  /// A notification and the expected result.
  struct Row: Sendable, CustomTestStringConvertible {
    let testDescription: String
    let subject: SignedDataError.Subject
    let reason: SignedDataError.Reason?
    let environment: Environment?
    let json: @Sendable () throws -> JSONValue

    init(
      _ name: String, _ subject: SignedDataError.Subject, _ reason: SignedDataError.Reason,
      _ json: @escaping @Sendable () throws -> JSONValue
    ) {
      testDescription = name
      self.subject = subject
      self.reason = reason
      environment = nil
      self.json = json
    }

    /// One that is accepted.
    init(
      _ name: String, _ environment: Environment?,
      _ json: @escaping @Sendable () throws -> JSONValue
    ) {
      testDescription = name
      subject = .notification
      reason = nil
      self.environment = environment
      self.json = json
    }
  }

  /// Each is signed by Apple on the outside.
  // swift-format-ignore
  private static let refused = [
    Row("no type",                               .notification,   .missingField)      { try Signed.notification().with(["notificationType": nil]) },
    Row("no identifier",                         .notification,   .missingField)      { try Signed.notification().with(["notificationUUID": nil]) },
    Row("a transaction",                         .notification,   .missingField)      { transaction },
    Row("no environment",                        .notification,   .missingField)      { try Signed.notification(data: ["environment": nil]) },
    Row("an unknown environment",                .notification,   .wrongEnvironment)  { try Signed.notification(data: ["environment": "Moon"]) },
    Row("Xcode",                                 .notification,   .notSignedByApple)  { try Signed.notification(data: ["environment": "Xcode"]) },
    Row("no bundle id",                          .notification,   .missingField)      { try Signed.notification(data: ["bundleId": nil]) },
    Row("another bundle id",                     .notification,   .wrongBundleID)     { try Signed.notification(data: ["bundleId": "com.example.stranger"]) },
    Row("another Apple ID",                      .notification,   .wrongAppAppleID)   { try Signed.notification(data: ["appAppleId": 41235]) },
    Row("no Apple ID",                           .notification,   .wrongAppAppleID)   { try Signed.notification(data: ["appAppleId": nil]) },
    Row("a summary for another app",             .notification,   .wrongBundleID)     { try notification("summary", summary.with(["bundleId": "com.example.stranger"])) },
    Row("a summary without Apple ID",            .notification,   .wrongAppAppleID)   { try notification("summary", summary.with(["appAppleId": nil])) },
    Row("a summary without environment",         .notification,   .missingField)      { try notification("summary", summary.with(["environment": nil])) },
    Row("a token for another app",               .notification,   .wrongBundleID)     { try notification("externalPurchaseToken", token.with(["bundleId": "com.example.stranger"])) },
    Row("a token of another Apple ID",           .notification,   .wrongAppAppleID)   { try notification("externalPurchaseToken", token.with(["appAppleId": 1])) },
    Row("a token without identifier",            .notification,   .missingField)      { try notification("externalPurchaseToken", token.with(["externalPurchaseId": nil])) },
    Row("app data for another app",              .notification,   .wrongBundleID)     { try notification("appData", appData.with(["bundleId": "com.example.stranger"])) },
    Row("two containers of two apps",            .notification,   .otherApp)          { try Signed.notification().with(["summary": summary.with(["bundleId": "com.example.other"])]) },
    Row("two containers of two environments",    .notification,   .otherEnvironment)  { try Signed.notification().with(["summary": summary.with(["environment": "Sandbox"])]) },
    Row("signed in two days",                    .notification,   .signedInTheFuture) { try Signed.notification().with(["signedDate": 1_748_952_000_000]) },
    Row("a transaction without signature",       .transaction,    .notThreeSegments)  { try Signed.notification(data: ["signedTransactionInfo": "signed_transaction_info_value"]) },
    Row("an empty transaction",                  .transaction,    .notThreeSegments)  { try Signed.notification(data: ["signedTransactionInfo": ""]) },
    Row("a forged transaction",                  .transaction,    .untrustedChain)    { try Signed.notification(data: ["signedTransactionInfo": forged(transaction)]) },
    Row("a transaction of another app",          .transaction,    .otherApp)          { try Signed.notification(transaction: transaction.with(["bundleId": "com.example.other"])) },
    Row("a transaction of a stranger's app",     .transaction,    .otherApp)          { try Signed.notification(transaction: transaction.with(["bundleId": "com.example.stranger"])) },
    Row("a transaction of the sandbox",          .transaction,    .otherEnvironment)  { try Signed.notification(transaction: transaction.with(["environment": "Sandbox"])) },
    Row("a transaction of Xcode's",              .transaction,    .otherEnvironment)  { try Signed.notification(transaction: transaction.with(["environment": "Xcode"])) },
    Row("a transaction without product",         .transaction,    .missingField)      { try Signed.notification(transaction: transaction.with(["productId": nil])) },
    Row("a renewal info for a transaction",      .transaction,    .missingField)      { try Signed.notification(transaction: renewalInfo) },
    Row("a forged renewal info",                 .renewalInfo,    .untrustedChain)    { try Signed.notification(data: ["signedRenewalInfo": forged(renewalInfo)]) },
    Row("a renewal info without signature",      .renewalInfo,    .notThreeSegments)  { try Signed.notification(data: ["signedRenewalInfo": "signed_renewal_info_value"]) },
    Row("a renewal info of the sandbox",         .renewalInfo,    .otherEnvironment)  { try Signed.notification(renewalInfo: renewalInfo.with(["environment": "Sandbox"])) },
    Row("a renewal info of another line",        .renewalInfo,    .otherOriginalTransaction)         { try Signed.notification(renewalInfo: renewalInfo.with(["originalTransactionId": "20"])) },
    Row("a renewal info without a line",         .renewalInfo,    .missingField)      { try Signed.notification(renewalInfo: renewalInfo.with(["originalTransactionId": nil])) },
    Row("a transaction for a renewal info",      .renewalInfo,    .wrongType)         { try Signed.notification(renewalInfo: transaction) },
    Row("a forged app transaction",              .appTransaction, .untrustedChain)    { try notification("appData", appData.with(["signedAppTransactionInfo": forged(Signed.appTransaction)])) },
    Row("an app transaction of another app",     .appTransaction, .otherApp)          { try notification("appData", appData.with(["signedAppTransactionInfo": jws(Signed.appTransaction.with(["bundleId": "com.example.other"]))])) },
    Row("an app transaction of the sandbox",     .appTransaction, .otherEnvironment)  { try notification("appData", appData.with(["signedAppTransactionInfo": jws(Signed.appTransaction.with(["receiptType": "Sandbox"]))])) },
    Row("an app transaction of another Apple ID", .appTransaction, .wrongAppAppleID)   { try notification("appData", appData.with(["signedAppTransactionInfo": jws(Signed.appTransaction.with(["appAppleId": 1]))])) },
  ]

  @Test(arguments: refused)
  func `a notification is refused for what is wrong in it`(_ row: Row) async throws {
    let text = try DraftJWS(row.json()).text
    let result = try await Signed.verifier().notification(text, receivedAt: Signed.now)
    guard case .failure(let refusal) = result else {
      Issue.record("accepted")
      return
    }
    #expect(refusal.reason == row.reason, "\(refusal)")
    #expect(refusal.subject == row.subject)
    #expect(refusal.isInNotification == (row.subject != .notification))
  }

  // swift-format-ignore
  private static let accepted = [
    Row("a renewal",                             .production)  { try Signed.notification() },
    Row("without renewal info",                  .production)  { try Signed.notification("ONE_TIME_CHARGE", renewalInfo: nil) },
    Row("without parts",                         .production)  { try Signed.notification("TEST", transaction: nil, renewalInfo: nil) },
    Row("an unknown type",                       .production)  { try Signed.notification("INVENTED_TOMORROW", subtype: "OF_A_KIND") },
    Row("of another app, whose Apple ID is not configured", .production)  { try Signed.notification(transaction: transaction.with(["bundleId": "com.example.other"]), data: ["bundleId": "com.example.other", "appAppleId": 7]) },
    Row("of the sandbox, without Apple ID",      .sandbox)     { try Signed.notification(transaction: transaction.with(["environment": "Sandbox"]), renewalInfo: renewalInfo.with(["environment": "Sandbox"]), data: ["environment": "Sandbox", "appAppleId": nil]) },
    Row("with parts of 2021, that name no environment", .production)  { try Signed.notification(transaction: transaction.with(["environment": nil]), renewalInfo: renewalInfo.with(["environment": nil])) },
    Row("a summary",                             .production)  { try notification("summary", summary) },
    Row("an external purchase",                  .production)  { try notification("externalPurchaseToken", token) },
    Row("an external purchase of the sandbox",   .sandbox)     { try notification("externalPurchaseToken", token.with(["externalPurchaseId": "SANDBOX_b2158121", "appAppleId": nil])) },
    Row("consent withdrawn",                     .production)  { try notification("appData", appData.with(["signedAppTransactionInfo": jws(Signed.appTransaction)])) },
    Row("contents that are unknown",             nil)          { try notification("surprise", ["a": 1]) },
    Row("no date of its own",                    .production)  { try Signed.notification().with(["signedDate": nil]) },
  ]

  @Test(arguments: accepted)
  func `a notification is accepted`(_ row: Row) async throws {
    let json = try row.json()
    let text = try DraftJWS(json).text
    let accepted = try await Signed.verifier().notification(text, receivedAt: Signed.now).get()
    #expect(accepted.environment == row.environment)
    #expect(accepted.payload.json.sorted == json.sorted)
    #expect(accepted.notificationUUID == "002e14d5-51f5-4503-b5a8-c3a1af68eb20")
    #expect(accepted.signedAt?.milliseconds == json["signedDate"]?.integer)
    #expect((accepted.transaction != nil) == (json["data"]?["signedTransactionInfo"] != nil))
    #expect((accepted.renewalInfo != nil) == (json["data"]?["signedRenewalInfo"] != nil))
    #expect((accepted.appTransaction != nil) == (json["appData"] != nil))
  }

  @Test func `without a date of its own, the day of receipt has to lie in the chain's time`()
    async throws
  {
    let text = try DraftJWS(Signed.notification().with(["signedDate": nil])).text
    let late = try Timestamp("2025-10-11T19:51:53Z")
    let verifier = try Signed.verifier(now: { late })
    #expect(
      await verifier.notification(text, receivedAt: late - .seconds(1)).reason == nil)
    #expect(await verifier.notification(text, receivedAt: late).reason == .certificateExpired)
    let dated = try DraftJWS(Signed.notification()).text
    #expect(await verifier.notification(dated, receivedAt: late).reason == nil)
  }

  // swift-format-ignore
  @Test(arguments: [
    ("of the sandbox, without Apple ID", nil,        ["receiptType": "Sandbox", "appAppleId": nil]),
    ("genuine",              nil,                    [:]),
    ("another Apple ID",     .wrongAppAppleID,       ["appAppleId": 1]),
    ("no Apple ID",          .wrongAppAppleID,       ["appAppleId": nil]),
    ("another app",          .wrongBundleID,         ["bundleId": "com.example.stranger"]),
    ("no app",               .missingField,          ["bundleId": nil]),
    ("no environment",       .missingField,          ["receiptType": nil]),
    ("Xcode",                .notSignedByApple,      ["receiptType": "Xcode"]),
    ("signed in two days",   .signedInTheFuture,     ["receiptCreationDate": 1_748_952_000_000]),
    ("before the leaf",      .certificateNotYetValid, ["receiptCreationDate": 1_600_000_000_000]),
  ] as [(String, SignedDataError.Reason?, [String: JSONValue?])])
  func `an app transaction`(
    name: String, reason: SignedDataError.Reason?, changes: [String: JSONValue?]
  ) async throws {
    let text = try DraftJWS(Signed.appTransaction.with(changes)).text
    #expect(try await Signed.verifier().appTransaction(text).reason == reason)
  }

  // swift-format-ignore
  @Test(arguments: [
    ("genuine",              nil,                    [:]),
    ("of the sandbox",       nil,                    ["environment": "Sandbox"]),
    ("no environment",       .missingField,          ["environment": nil]),
    ("Xcode",                .notSignedByApple,      ["environment": "Xcode"]),
    ("no line",              .missingField,          ["originalTransactionId": nil]),
    ("no date",              .missingField,          ["signedDate": nil]),
    ("half renewed",         .unusableField,         ["autoRenewStatus": 2]),
    ("no intent of Apple's", .unusableField,         ["expirationIntent": -1]),
    ("a long product",       .unusableField,         ["autoRenewProductId": .string(String(repeating: "p", count: 256))]),
    ("a transaction, too",   .wrongType,             ["transactionId": "11"]),
    ("of another type",      .invalidPayload,        ["autoRenewStatus": "1"]),
  ] as [(String, SignedDataError.Reason?, [String: JSONValue?])])
  func `a renewal info`(
    name: String, reason: SignedDataError.Reason?, changes: [String: JSONValue?]
  ) async throws {
    let text = try DraftJWS(Signed.renewalInfo.with(changes)).text
    #expect(try await Signed.verifier().renewalInfo(text).reason == reason)
  }
}
