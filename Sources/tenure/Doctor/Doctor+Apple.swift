import AppStore
import BackgroundJobs
import Subscriptions

/// Whether Apple can be asked, and accepts the key.
extension Doctor {
  /// An id that Apple gives to no transaction: to ask for it costs nothing, and tells whether the
  /// key is accepted.
  private static let unknownTransaction = TransactionID("1")
  /// An endless wait for Apple is no finding.
  private static let timeout: Duration = .seconds(10)

  func appleFindings() async -> [DoctorFinding] {
    do {
      return try await withHTTPClient { client in
        let transport = DatedTransport(HTTPClientTransport(client: client))
        var findings: [DoctorFinding] = []
        for environment in Environment.allCases {
          findings.append(await verifyReceipt(in: environment, over: transport))
        }
        findings += await serverAPI(over: transport)
        if !settings.isClockSet, let (skew, precision) = transport.skew {
          findings.append(
            Doctor.clockFinding("apple.clock", of: "Apple", skew: skew, precision: precision))
        }
        return findings
      }
    } catch {
      return [
        .fault("apple", "Apple could not be asked: \(error).", remedy: "Report it: it is a fault.")
      ]
    }
  }

  /// Shows Apple an empty receipt, of which it says that it is none.
  private func verifyReceipt(
    in environment: Environment, over transport: any AppStoreTransport
  ) async -> DoctorFinding {
    let check = "apple.verify_receipt.\(environment.rawValue)"
    let request = AppStoreRequest(
      method: "POST", url: settings.verifyReceipt[environment],
      headers: [HTTPHeader("Content-Type", "application/json")],
      body: Array(#"{"receipt-data":""}"#.utf8),
      timeout: min(settings.appStoreTimeout, Self.timeout)
    )
    do {
      let response = try await transport.send(request)
      guard response.status == 200 else {
        return .fault(
          check, "verifyReceipt answers HTTP \(response.status).",
          remedy: "See whether TENURE_APPSTORE_VERIFY_RECEIPT_URL and the one of the sandbox are "
            + "Apple's, and whether a proxy answers instead. Receipts wait meanwhile.")
      }
      return .ok(check, "verifyReceipt answers.")
    } catch {
      return .fault(
        check, "\(error)",
        remedy: "Let this machine connect to \(settings.verifyReceipt[environment]). Receipts wait "
          + "meanwhile.")
    }
  }

  private func serverAPI(over transport: any AppStoreTransport) async -> [DoctorFinding] {
    guard let key = settings.serverAPIKey, let apps = try? settings.appStoreApps() else {
      return []
    }
    let now = settings.clock.now
    let api = AppStoreServerAPI(
      transport: transport, addresses: settings.serverAPIAddresses, key: key,
      verifier: SignedDataVerifier(
        roots: settings.trustedRoots, apps: apps, acceptsXcode: settings.acceptsXcode, now: now),
      timeout: min(settings.appStoreTimeout, Self.timeout), logger: logger, now: now)
    var findings: [DoctorFinding] = []
    for app in apps.all {
      for environment in Environment.allCases {
        findings.append(await accepts(app.bundleID, in: environment, api))
      }
    }
    return findings
  }

  private func accepts(
    _ bundleID: String, in environment: Environment, _ api: AppStoreServerAPI
  ) async -> DoctorFinding {
    let check = "apple.server_api.\(environment.rawValue)"
    do {
      _ = try await api.transactionInfo(Self.unknownTransaction, of: bundleID, in: environment)
      return .ok(check, "Apple accepts the key for \(bundleID).")
    } catch let error as AppStoreServerAPIError {
      switch error.kind {
      case .notFound, .invalidRequest:
        return .ok(check, "Apple accepts the key for \(bundleID).")
      case .unauthorized where environment == .production:
        return .warning(
          check, "\(error)",
          remedy:
            "An app that was never released is unknown in production: then this ends with the "
            + "release. Otherwise the key, the issuer id or the bundle id is wrong.")
      case .unauthorized:
        return .fault(
          check, "\(error)",
          remedy:
            "See in App Store Connect whether the key is active and of this team, and whether "
            + "\(bundleID) is this team's app.")
      case .rateLimited, .unavailable:
        return .warning(check, "\(error)", remedy: "Ask again later.")
      case .forbidden, .unreachable, .unexpectedAnswer, .misconfigured:
        return .fault(
          check, "\(error)",
          remedy: "Let this machine connect to Apple, and see whether TENURE_APPSTORE_API_URL and "
            + "the one of the sandbox are Apple's.")
      }
    } catch {
      return .fault(check, "\(error)", remedy: "Ask again.")
    }
  }
}
