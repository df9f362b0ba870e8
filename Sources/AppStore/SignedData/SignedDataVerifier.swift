package import Subscriptions

/// Verifies data signed by Apple, offline; see <doc:VerifyingSignedData>.
///
/// ```swift
/// let verifier = SignedDataVerifier(apps: apps, now: now)
/// switch await verifier.transaction(jws) {
/// case .success(let transaction): record(transaction.evidence)
/// case .failure(let refusal): reject(refusal.reason, "\(refusal)")
/// }
/// ```
///
/// First the signature, date and certificates are checked, then the environment, the bundle ID and,
/// in production, the app's Apple ID if it is configured.
package struct SignedDataVerifier: Sendable {
  private let signatures: JWSVerifier
  private let apps: AppStoreApps
  private let now: @Sendable () -> Timestamp

  /// - Parameter acceptsXcode: Whether Xcode's unsigned data, which anyone can make, is accepted.
  package init(
    roots: TrustedRoots = .apple, apps: AppStoreApps, acceptsXcode: Bool = false,
    now: @escaping @Sendable () -> Timestamp
  ) {
    signatures = JWSVerifier(roots: roots, acceptsXcode: acceptsXcode, now: now)
    (self.apps, self.now) = (apps, now)
  }

  /// The headers of verified signatures, with their certificates, which the next ones often have.
  package var verifiedHeaders: [String] { signatures.chains.headers }

  package func transaction(_ jws: String) async -> Result<SignedTransaction, SignedDataError> {
    do {
      return .success(try await transaction(jws, within: nil, receivedAt: now()))
    } catch {
      return .failure(SignedDataError(error, of: .transaction))
    }
  }

  /// Verifies a renewal info's signature and environment; it names no app.
  package func renewalInfo(_ jws: String) async -> Result<SignedRenewalInfo, SignedDataError> {
    do {
      return .success(try await renewalInfo(jws, within: nil, receivedAt: now()))
    } catch {
      return .failure(SignedDataError(error, of: .renewalInfo))
    }
  }

  package func appTransaction(
    _ jws: String
  ) async -> Result<JWSAppTransactionDecodedPayload, SignedDataError> {
    do {
      return .success(try await appTransaction(jws, within: nil, receivedAt: now()))
    } catch {
      return .failure(SignedDataError(error, of: .appTransaction))
    }
  }

  /// Verifies a notification and its separately signed parts.
  ///
  /// - Parameter receivedAt: Used for notifications without a date, as in 2022.
  package func notification(
    _ jws: String, receivedAt: Timestamp
  ) async -> Result<SignedNotification, SignedDataError> {
    let (payload, outer): (ResponseBodyV2DecodedPayload, Outer)
    do {
      payload = try await signatures.payload(
        jws, as: ResponseBodyV2DecodedPayload.self, receivedAt: receivedAt)
      outer = try self.outer(of: payload)
    } catch {
      return .failure(SignedDataError(error, of: .notification))
    }
    var subject = SignedDataError.Subject.transaction
    do throws(SignedDataFault) {
      var transaction: SignedTransaction?
      var renewalInfo: SignedRenewalInfo?
      var appTransaction: JWSAppTransactionDecodedPayload?
      let data = payload.data
      if let signed = data?.signedTransactionInfo {
        transaction = try await self.transaction(signed, within: outer, receivedAt: receivedAt)
      }
      subject = .renewalInfo
      if let signed = data?.signedRenewalInfo {
        renewalInfo = try await self.renewalInfo(signed, within: outer, receivedAt: receivedAt)
      }
      if let renewalInfo, let transaction, renewalInfo.line != transaction.record.key.line {
        throw SignedDataFault(.otherOriginalTransaction, "is for a different original transaction")
      }
      subject = .appTransaction
      if let signed = payload.appData?.signedAppTransactionInfo {
        appTransaction = try await self.appTransaction(
          signed, within: outer, receivedAt: receivedAt)
      }
      return .success(
        SignedNotification(
          payload: payload, notificationUUID: outer.notificationUUID,
          notificationType: outer.notificationType, environment: outer.environment,
          bundleID: outer.bundleID, transaction: transaction, renewalInfo: renewalInfo,
          appTransaction: appTransaction))
    } catch {
      return .failure(SignedDataError(error, of: subject, isInNotification: true))
    }
  }

  // MARK: Parts

  /// The notification's own data, which its parts must match.
  private struct Outer {
    let notificationUUID: String
    let notificationType: NotificationTypeV2
    /// Apple's name of the environment.
    var environmentName: SignedEnvironment?
    var environment: Environment?
    var bundleID: String?
  }

  private func transaction(
    _ jws: String, within outer: Outer?, receivedAt: Timestamp
  ) async throws(SignedDataFault) -> SignedTransaction {
    let payload = try await signatures.payload(
      jws, as: JWSTransactionDecodedPayload.self, receivedAt: receivedAt)
    let environment = try environment(payload.environment, "environment", within: outer)
    let app = try app(payload.bundleID, within: outer)
    return try SignedTransaction(payload, environment: environment, bundleID: app.bundleID)
  }

  private func renewalInfo(
    _ jws: String, within outer: Outer?, receivedAt: Timestamp
  ) async throws(SignedDataFault) -> SignedRenewalInfo {
    let payload = try await signatures.payload(
      jws, as: JWSRenewalInfoDecodedPayload.self, receivedAt: receivedAt)
    return try SignedRenewalInfo(
      payload, environment: try environment(payload.environment, "environment", within: outer))
  }

  private func appTransaction(
    _ jws: String, within outer: Outer?, receivedAt: Timestamp
  ) async throws(SignedDataFault) -> JWSAppTransactionDecodedPayload {
    let payload = try await signatures.payload(
      jws, as: JWSAppTransactionDecodedPayload.self, receivedAt: receivedAt)
    let environment = try environment(payload.receiptType, "receiptType", within: outer)
    let app = try app(payload.bundleID, within: outer)
    try check(payload.appAppleID, of: app, in: environment)
    return payload
  }

  /// Checks the notification's recipient; one with only unknown contents is accepted for any app.
  private func outer(of payload: ResponseBodyV2DecodedPayload) throws(SignedDataFault) -> Outer {
    let type = payload.notificationType.flatMap { $0.rawValue.isEmpty ? nil : $0 }
    if let fault = type.flatMap({ AppleIdentifier.fault(of: $0.rawValue) }) {
      throw .unusable("notificationType", fault)
    }
    var outer = Outer(
      notificationUUID: try payload.requiredNumber(\.notificationUUID),
      notificationType: try payload.required(\.notificationType, type))
    let data = payload.data.map { ($0.environment, $0.bundleID, $0.appAppleID) }
    let summary = payload.summary.map { ($0.environment, $0.bundleID, $0.appAppleID) }
    let appData = payload.appData.map { ($0.environment, $0.bundleID, $0.appAppleID) }
    let token = payload.externalPurchaseToken.map { ($0.environment, $0.bundleID, $0.appAppleID) }
    for case let (name, bundleID, appleID)? in [data, summary, appData, token] {
      let environment = try environment(
        name, "environment", within: outer.environmentName == nil ? nil : outer)
      let app = try app(bundleID, within: outer.bundleID == nil ? nil : outer)
      try check(appleID, of: app, in: environment)
      outer.environmentName = name
      outer.environment = environment
      outer.bundleID = app.bundleID
    }
    return outer
  }

  // MARK: Recipient

  /// Old parts name no environment and take the notification's.
  private func environment(
    _ name: SignedEnvironment?, _ field: String, within outer: Outer?
  ) throws(SignedDataFault) -> Environment {
    if let name, let outerName = outer?.environmentName, name != outerName {
      throw SignedDataFault(
        .otherEnvironment, "is for a different environment than the rest of the notification")
    }
    guard let name = name ?? outer?.environmentName else { throw .missing(field) }
    guard let environment = name.environment else {
      throw SignedDataFault(.wrongEnvironment, "is for an unknown environment")
    }
    guard signatures.acceptsXcode || name.isSignedByApple else {
      throw SignedDataFault(
        .notSignedByApple, "comes from Xcode instead of Apple, which is not accepted")
    }
    return environment
  }

  private func app(
    _ bundleID: String?, within outer: Outer?
  ) throws(SignedDataFault) -> AppStoreApp {
    guard let bundleID else { throw .missing("bundleId") }
    if let other = outer?.bundleID, other != bundleID {
      throw SignedDataFault(.otherApp, "is for a different app than the rest of the notification")
    }
    guard let app = apps[bundleID] else {
      throw SignedDataFault(.wrongBundleID, "belongs to an app that is not configured")
    }
    return app
  }

  /// Apple omits the Apple ID in the sandbox.
  private func check(
    _ appleID: Int64?, of app: AppStoreApp, in environment: Environment
  ) throws(SignedDataFault) {
    guard environment == .production, let expected = app.appleID else { return }
    guard appleID == expected else {
      throw SignedDataFault(
        .wrongAppAppleID, "does not have the Apple ID that is configured for its app")
    }
  }
}

extension ExternalPurchaseToken {
  fileprivate var environment: SignedEnvironment? {
    self.externalPurchaseID.map { $0.hasPrefix("SANDBOX") ? .sandbox : .production }
  }
}
