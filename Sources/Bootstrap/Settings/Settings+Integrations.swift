package import AppStore
package import BackgroundJobs
import Foundation
import HTTPAPI
package import LedgerStorage
package import Observability
import Secrets

/// The settings of the App Store Server API.
extension Settings {
  private static let issuerID = "TENURE_APPSTORE_ISSUER_ID"
  private static let keyID = "TENURE_APPSTORE_KEY_ID"
  private static let privateKey = "TENURE_APPSTORE_PRIVATE_KEY"

  /// The key for those who cannot do without.
  ///
  /// - Throws: ``SettingError``.
  package func neededServerAPIKey() throws -> ServerAPIKey {
    guard let serverAPIKey else {
      throw SettingError(
        name: Self.issuerID,
        fault: "it, \(Self.keyID) and \(Self.privateKey) are not set, and without them Apple's "
          + "App Store Server API can't be asked: App Store Connect makes such keys under Users "
          + "and Access, Integrations, In-App Purchase")
    }
    return serverAPIKey
  }

  /// Reads the key, whose three parts are there together or not at all.
  package static func serverAPIKey(_ source: SettingSource) throws -> ServerAPIKey? {
    let names = [issuerID, keyID, privateKey]
    let values = try names.map { try source.string($0) }
    let missing = zip(names, values).filter { $0.1 == nil }.map(\.0)
    guard missing.count < names.count else { return nil }
    guard missing.isEmpty, let issuerID = values[0], let keyID = values[1], let path = values[2]
    else {
      throw SettingError(
        name: missing[0],
        fault: "it is not set, and \(names.filter { !missing.contains($0) }[0]) is: set "
          + names.joined(separator: ", ") + ", or none of them")
    }
    do {
      return try ServerAPIKey(
        issuerID: issuerID, keyID: keyID, privateKey: try contents(ofPrivateKey: path))
    } catch let error as AppStoreSettingError {
      throw SettingError(name: names.joined(separator: ", "), fault: "\(error)")
    }
  }

  /// The file of the private key, if it is named by its path.
  package static func serverAPIKeyPath(_ source: SettingSource) throws -> String? {
    try source.string(privateKey).flatMap { $0.hasPrefix("-----BEGIN") ? nil : $0 }
  }

  /// The setting is the path of the `.p8` file; what `TENURE_APPSTORE_PRIVATE_KEY_FILE` names may
  /// also hold the key itself.
  private static func contents(ofPrivateKey path: String) throws -> Secret<String> {
    guard !path.hasPrefix("-----BEGIN") else { return Secret(path) }
    guard let data = FileManager.default.contents(atPath: path) else {
      throw SettingError(
        name: privateKey,
        fault: "the file can't be read: name the .p8 file from App Store Connect")
    }
    return Secret(String(decoding: data, as: UTF8.self))
  }

  /// What Apple is to be told by itself, which takes the key.
  package static func tellings(_ source: SettingSource, hasKey: Bool) throws -> Set<AppleTelling.Kind> {
    let names: [(String, AppleTelling.Kind)] = [
      ("TENURE_APPSTORE_WRITE_OWNERSHIP", .ownership),
      ("TENURE_APPSTORE_ANSWER_CONSUMPTION", .consumption),
    ]
    var tellings: Set<AppleTelling.Kind> = []
    for (name, kind) in names where try source.flag(name) ?? false {
      guard hasKey else {
        throw SettingError(
          name: name,
          fault: "it is on, and without \(issuerID), \(keyID) and \(privateKey) Apple can't be "
            + "told anything: set them, or turn it off")
      }
      tellings.insert(kind)
    }
    return tellings
  }

  package static func serverAPIAddresses(_ source: SettingSource) throws -> ServerAPIAddresses {
    let names = ["TENURE_APPSTORE_API_URL", "TENURE_APPSTORE_SANDBOX_API_URL"]
    let apple = ServerAPIAddresses.apple
    do {
      return try ServerAPIAddresses(
        production: try source.string(names[0]) ?? apple.production,
        sandbox: try source.string(names[1]) ?? apple.sandbox)
    } catch let error as AppStoreSettingError {
      throw SettingError(name: names.joined(separator: " or "), fault: "\(error)")
    }
  }
}

/// Where spans go, and of which requests.
package struct TraceSettings: Sendable {
  package var collector: SpanExporter.Collector
  /// Which share of the traces that begin here is recorded, 0 to 1.
  package var ratio: Double
}

extension Settings {
  private static let tracesEndpoint = "TENURE_OTLP_ENDPOINT"
  private static let tracesHeaders = "TENURE_OTLP_HEADERS"
  private static let tracesRatio = "TENURE_TRACE_RATIO"

  /// Nil: there are no spans.
  package static func traces(_ source: SettingSource) throws -> TraceSettings? {
    let headers = try source.string(tracesHeaders).map(Self.headers) ?? []
    let ratio = try source.string(tracesRatio).map(Self.ratio) ?? 1
    guard let address = try source.string(tracesEndpoint) else { return nil }
    guard let url = URL(string: address), let scheme = url.scheme?.lowercased(),
      ["http", "https"].contains(scheme), url.host()?.isEmpty == false, url.query() == nil,
      url.fragment() == nil
    else {
      throw SettingError(
        name: tracesEndpoint,
        fault:
          "it is no address of a collector: write one as in http://127.0.0.1:4318, to "
          + "which /v1/traces is added")
    }
    guard url.user() == nil, url.password() == nil else {
      // It is not repeated, for it holds a secret.
      throw SettingError(
        name: tracesEndpoint,
        fault: "an address holds no name and password: what the collector asks for belongs into "
          + tracesHeaders)
    }
    let base = address.hasSuffix("/") ? String(address.dropLast()) : address
    return TraceSettings(
      collector: SpanExporter.Collector(
        url: base + "/v1/traces", headers: headers),
      ratio: ratio)
  }

  /// Reads `name=value,name=value` with values percent-encoded, as OTEL_EXPORTER_OTLP_HEADERS has
  /// them.
  private static func headers(_ text: String) throws -> [(name: String, value: Secret<String>)] {
    try text.split(separator: ",").map { pair in
      let parts = pair.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
        .map { $0.trimmingCharacters(in: .whitespaces) }
      guard parts.count == 2, let value = parts[1].removingPercentEncoding,
        !parts[0].isEmpty, parts[0].allSatisfy(isOfFieldName),
        value.utf8.allSatisfy({ $0 >= 0x20 && $0 != 0x7F })
      else {
        // It may hold a secret, which is not repeated.
        throw SettingError(
          name: tracesHeaders,
          fault: "it is no list of header fields: write name=value,name=value, with values "
            + "percent-encoded")
      }
      return (parts[0], Secret(value))
    }
  }

  /// Whether a field's name may hold a character, by section 5.6.2 of RFC 9110.
  private static func isOfFieldName(_ character: Character) -> Bool {
    character.isASCII && (character.isLetter || character.isNumber)
      || "!#$%&'*+-.^_`|~".contains(character)
  }

  private static func ratio(_ text: String) throws -> Double {
    guard let ratio = Double(text), (0...1).contains(ratio) else {
      throw SettingError(
        name: tracesRatio,
        fault: "\"\(text)\" is no share: write a number from 0, for none, to 1, for all")
    }
    return ratio
  }
}

/// The settings of the webhook.
extension Settings {
  private static let webhookURL = "TENURE_WEBHOOK_URL"
  private static let webhookSecret = "TENURE_WEBHOOK_SECRET"

  package static func webhook(_ source: SettingSource) throws -> WebhookReceiver? {
    let secrets = try source.string(webhookSecret)?.split(separator: ",").map {
      Secret($0.trimmingCharacters(in: .whitespaces))
    }
    let allowsPrivate = try source.flag("TENURE_WEBHOOK_ALLOW_PRIVATE") ?? false
    guard let url = try source.secret(webhookURL) else { return nil }
    guard let secrets else {
      throw SettingError(
        name: webhookSecret,
        fault: "it is not set, and \(webhookURL) is: receivers know events by their signature, "
          + "`openssl rand -hex 32` makes a good secret")
    }
    do {
      return try WebhookReceiver(
        url: url, secrets: secrets, allowsPrivateAddresses: allowsPrivate)
    } catch let fault as WebhookReceiver.Fault {
      throw SettingError(
        name: fault.isAboutSecrets ? webhookSecret : webhookURL, fault: fault.description)
    }
  }
}
