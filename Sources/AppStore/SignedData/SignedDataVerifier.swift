package import Subscriptions

/// Verifies whatever Apple signs, without asking Apple.
///
/// In this order: signature, date and certificates (``JWSVerifier``), then whom it is for:
/// environment, bundle id, and in production the app's Apple ID where it is configured. The verdict
/// is a value, and every refusal has its reason.
package struct SignedDataVerifier: Sendable {
  private let signatures: JWSVerifier
  private let apps: AppStoreApps
  private let now: @Sendable () -> Timestamp

  /// - Parameters:
  ///   - roots: What every chain of certificates has to lead to.
  ///   - apps: The apps that are served.
  ///   - acceptsXcode: Whether to believe, as sandbox, what Xcode made and Apple did not sign:
  ///     anybody can make it.
  ///   - now: The clock.
  package init(
    roots: TrustedRoots = .apple, apps: AppStoreApps, acceptsXcode: Bool = false,
    now: @escaping @Sendable () -> Timestamp
  ) {
    signatures = JWSVerifier(roots: roots, acceptsXcode: acceptsXcode, now: now)
    self.apps = apps
    self.now = now
  }

  /// How many chains of certificates are remembered.
  package var rememberedChains: Int { signatures.chains.count }

  /// Verifies one transaction: its signature, its app and its environment.
  package func transaction(_ jws: String) async -> Result<SignedTransaction, SignedDataRefusal> {
    do {
      return .success(try await transaction(jws, within: nil, receivedAt: now()))
    } catch {
      return .failure(SignedDataRefusal(error, of: .transaction))
    }
  }

  /// Verifies what one subscription's future is: its signature and its environment, for it names
  /// no app.
  package func renewalInfo(_ jws: String) async -> Result<SignedRenewalInfo, SignedDataRefusal> {
    do {
      return .success(try await renewalInfo(jws, within: nil, receivedAt: now()))
    } catch {
      return .failure(SignedDataRefusal(error, of: .renewalInfo))
    }
  }

  /// Verifies the download of an app by one Apple account.
  package func appTransaction(
    _ jws: String
  ) async -> Result<JWSAppTransactionDecodedPayload, SignedDataRefusal> {
    do {
      return .success(try await appTransaction(jws, within: nil, receivedAt: now()))
    } catch {
      return .failure(SignedDataRefusal(error, of: .appTransaction))
    }
  }

  /// Verifies a notification, and each part of it that Apple signs on its own.
  ///
  /// - Parameters:
  ///   - jws: Its `signedPayload`.
  ///   - receivedAt: The date of one that doesn't name its own, as those of 2022.
  /// - Returns: The notification with its parts, or why it is refused.
  package func notification(
    _ jws: String, receivedAt: Timestamp
  ) async -> Result<SignedNotification, SignedDataRefusal> {
    let (payload, outer): (ResponseBodyV2DecodedPayload, Outer)
    do {
      payload = try await signatures.payload(
        jws, as: ResponseBodyV2DecodedPayload.self, receivedAt: receivedAt)
      outer = try self.outer(of: payload)
    } catch {
      return .failure(SignedDataRefusal(error, of: .notification))
    }
    var subject = SignedDataRefusal.Subject.transaction
    do throws(SignedDataFault) {
      var transaction: SignedTransaction?
      var renewalInfo: SignedRenewalInfo?
      var appTransaction: JWSAppTransactionDecodedPayload?
      if let signed = payload.data?.signedTransactionInfo {
        transaction = try await self.transaction(signed, within: outer, receivedAt: receivedAt)
      }
      subject = .renewalInfo
      if let signed = payload.data?.signedRenewalInfo {
        renewalInfo = try await self.renewalInfo(signed, within: outer, receivedAt: receivedAt)
      }
      if let renewalInfo, let transaction, renewalInfo.line != transaction.record.key.line {
        throw SignedDataFault(.otherLine, "is of another line than its transaction")
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
      return .failure(SignedDataRefusal(error, of: subject, isInNotification: true))
    }
  }

  // MARK: Parts

  /// What a notification says of itself, and its parts have to agree with.
  private struct Outer {
    let notificationUUID: String
    let notificationType: NotificationTypeV2
    /// As Apple writes it.
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

  /// Whom the notification is for.
  ///
  /// One with contents that nobody knows, as Apple may invent, is for anybody.
  private func outer(of payload: ResponseBodyV2DecodedPayload) throws(SignedDataFault) -> Outer {
    typealias Fields = PayloadFields
    var outer = Outer(
      notificationUUID: try Fields.required(
        Fields.number(payload.notificationUUID, "notificationUUID"), "notificationUUID"),
      notificationType: NotificationTypeV2(
        rawValue: try Fields.required(
          Fields.identifier(payload.notificationType?.rawValue, "notificationType"),
          "notificationType")))
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

  // MARK: Whom it is for

  /// Old parts name no environment of their own: the notification's is theirs.
  private func environment(
    _ name: SignedEnvironment?, _ field: String, within outer: Outer?
  ) throws(SignedDataFault) -> Environment {
    if let name, let outerName = outer?.environmentName, name != outerName {
      throw SignedDataFault(
        .otherEnvironment, "is of another environment than what it stands in")
    }
    return try PayloadFields.environment(
      name ?? outer?.environmentName, field, acceptsXcode: signatures.acceptsXcode)
  }

  private func app(
    _ bundleID: String?, within outer: Outer?
  ) throws(SignedDataFault) -> AppStoreApp {
    let bundleID = try PayloadFields.required(bundleID, "bundleId")
    if let other = outer?.bundleID, other != bundleID {
      throw SignedDataFault(.otherApp, "is of another app than what it stands in")
    }
    guard let app = apps[bundleID] else {
      throw SignedDataFault(.wrongBundleID, "belongs to an app that is not served here")
    }
    return app
  }

  /// Apple leaves the number out in the sandbox.
  private func check(
    _ appleID: Int64?, of app: AppStoreApp, in environment: Environment
  ) throws(SignedDataFault) {
    guard environment == .production, let expected = app.appleID else { return }
    guard appleID == expected else {
      throw SignedDataFault(
        .wrongAppAppleID, "does not name the Apple ID of the app that it names")
    }
  }
}

extension ExternalPurchaseToken {
  /// Named by nothing but its identifier.
  fileprivate var environment: SignedEnvironment? {
    externalPurchaseID.map { $0.hasPrefix("SANDBOX") ? .sandbox : .production }
  }
}
