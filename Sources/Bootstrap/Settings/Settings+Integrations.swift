package import AdminSite
package import AppStore
package import BackgroundJobs
import Foundation
import HTTPAPI
import HTTPTypes
package import LedgerStorage
import NIOCore
package import Observability
import Secrets

extension Settings {
  private static let issuerID = "TENURE_APPSTORE_ISSUER_ID"
  private static let keyID = "TENURE_APPSTORE_KEY_ID"
  private static let privateKey = "TENURE_APPSTORE_PRIVATE_KEY"

  /// The key, for commands that require it; throws ``SettingError`` if it is not set.
  package func neededServerAPIKey() throws -> ServerAPIKey {
    guard let serverAPIKey else {
      throw SettingError(
        Self.issuerID,
        "required, with \(Self.keyID) and \(Self.privateKey), to query the App Store Server "
          + "API: create a key in App Store Connect (Users and Access, Integrations, In-App "
          + "Purchase)")
    }
    return serverAPIKey
  }

  /// Reads the three parts of the key, of which all or none must be set.
  package static func serverAPIKey(_ source: SettingSource) throws -> ServerAPIKey? {
    let names = [issuerID, keyID, privateKey]
    let values = try names.map { try source.string($0) }
    let missing = zip(names, values).filter { $0.1 == nil }.map(\.0)
    guard missing.count < names.count else { return nil }
    guard missing.isEmpty, let issuerID = values[0], let keyID = values[1], let path = values[2]
    else {
      throw SettingError(
        missing[0],
        "required because \(names.filter { !missing.contains($0) }[0]) is set: set all of "
          + names.joined(separator: ", ") + ", or none")
    }
    let key = try contents(ofPrivateKey: path)
    return try SettingError.naming(names.joined(separator: ", ")) {
      try ServerAPIKey(issuerID: issuerID, keyID: keyID, privateKey: key)
    }
  }

  /// The path of the private key's file; nil if the setting is the key itself.
  package static func serverAPIKeyPath(_ source: SettingSource) throws -> String? {
    try source.string(privateKey).flatMap { $0.hasPrefix("-----BEGIN") ? nil : $0 }
  }

  /// Reads the `.p8` file; `TENURE_APPSTORE_PRIVATE_KEY_FILE` may contain the key itself.
  private static func contents(ofPrivateKey path: String) throws -> Secret<String> {
    guard !path.hasPrefix("-----BEGIN") else { return Secret(path) }
    guard let data = FileManager.default.contents(atPath: path) else {
      throw SettingError(
        privateKey, "the file can't be read: must be the path of a .p8 file from App Store Connect")
    }
    return Secret(String(decoding: data, as: UTF8.self))
  }

  /// The enabled write-backs to Apple, which require the key.
  package static func writeBackKinds(_ source: SettingSource, hasKey: Bool) throws -> Set<
    WriteBack.Kind
  > {
    let names: [(String, WriteBack.Kind)] = [
      ("TENURE_APPSTORE_WRITE_OWNERSHIP", .ownership),
      ("TENURE_APPSTORE_ANSWER_CONSUMPTION", .consumption),
    ]
    var writeBackKinds: Set<WriteBack.Kind> = []
    for (name, kind) in names where try source.flag(name) ?? false {
      guard hasKey else {
        throw SettingError(
          name, "requires \(issuerID), \(keyID) and \(privateKey): set them, or turn it off")
      }
      writeBackKinds.insert(kind)
    }
    return writeBackKinds
  }

  static func urls(
    _ apple: AppleURLs, _ production: String, _ sandbox: String, _ source: SettingSource
  ) throws -> AppleURLs {
    let urls = (try source.string(production), try source.string(sandbox))
    return try SettingError.naming("\(production) or \(sandbox)") {
      try apple.replaced(production: urls.0, sandbox: urls.1)
    }
  }
}

/// A collector, and the share of traces begun here that is recorded, from 0 to 1.
package typealias TraceSettings = (collector: SpanExporter.Collector, ratio: Double)

extension Settings {
  private static let tracesEndpoint = "TENURE_OTLP_ENDPOINT"
  private static let tracesHeaders = "TENURE_OTLP_HEADERS"
  private static let tracesRatio = "TENURE_TRACE_RATIO"

  /// Nil if tracing is off.
  package static func traces(_ source: SettingSource) throws -> TraceSettings? {
    let headers = try source.string(tracesHeaders).map(Self.headers) ?? []
    let ratio =
      try source.value(tracesRatio, "a number from 0 (none) to 1 (all)") { text in
        Double(text).flatMap { (0...1).contains($0) ? $0 : nil }
      } ?? 1
    guard let address = try source.string(tracesEndpoint) else { return nil }
    guard let url = URL(string: address), let scheme = url.scheme?.lowercased(),
      ["http", "https"].contains(scheme), url.host()?.isEmpty == false, url.query() == nil,
      url.fragment() == nil
    else {
      throw SettingError(
        tracesEndpoint,
        "must be a collector's URL such as http://127.0.0.1:4318, to which /v1/traces is added")
    }
    guard url.user() == nil, url.password() == nil else {
      // The value isn't repeated because it contains a secret.
      throw SettingError(
        tracesEndpoint,
        "must not contain a user name or password: set credentials in \(tracesHeaders)")
    }
    let base = address.hasSuffix("/") ? String(address.dropLast()) : address
    return ((base + "/v1/traces", headers), ratio)
  }

  /// Parses `name=value,name=value` with percent-encoded values, like OTEL_EXPORTER_OTLP_HEADERS.
  private static func headers(_ text: String) throws -> [(name: String, value: Secret<String>)] {
    try text.split(separator: ",").map { pair in
      let parts = pair.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
        .map { $0.trimmingCharacters(in: .whitespaces) }
      guard parts.count == 2, let value = parts[1].removingPercentEncoding,
        !parts[0].isEmpty, parts[0].allSatisfy(isOfFieldName),
        value.utf8.allSatisfy({ $0 >= 0x20 && $0 != 0x7F })
      else {
        // The value isn't repeated because it may contain a secret.
        throw SettingError(
          tracesHeaders,
          "must be header fields as name=value,name=value, with percent-encoded values")
      }
      return (parts[0], Secret(value))
    }
  }

  /// Whether a character is allowed in field names (RFC 9110, section 5.6.2).
  private static func isOfFieldName(_ character: Character) -> Bool {
    character.isASCII && (character.isLetter || character.isNumber)
      || "!#$%&'*+-.^_`|~".contains(character)
  }

  private static let webhookURL = "TENURE_WEBHOOK_URL"
  private static let webhookSecret = "TENURE_WEBHOOK_SECRET"
  private static let checkpointPlace = "TENURE_CHECKPOINTS"

  package static func webhook(_ source: SettingSource) throws -> WebhookReceiver? {
    try receiver(webhookURL, of: source, url: source.secret(webhookURL))
  }

  /// The path of a file, or the URL of a receiver.
  static func checkpoints(_ source: SettingSource) throws -> CheckpointKeeper? {
    guard let place = try source.secret(checkpointPlace) else { return nil }
    if place.revealed.hasPrefix("/") { return .file(place.revealed) }
    guard place.revealed.contains("://") else {
      throw SettingError(checkpointPlace, "must be an absolute path or a URL")
    }
    return try receiver(checkpointPlace, of: source, url: place).map { .webhook($0) }
  }

  private static func receiver(
    _ webhookURL: String, of source: SettingSource, url: Secret<String>?
  ) throws -> WebhookReceiver? {
    let secrets = try source.list(webhookSecret)?.map { Secret($0) }
    let allowsPrivate = try source.flag("TENURE_WEBHOOK_ALLOW_PRIVATE") ?? false
    guard let url else { return nil }
    guard let secrets else {
      throw SettingError(
        webhookSecret,
        "required because \(webhookURL) is set: create one with `openssl rand -hex 32`")
    }
    do {
      return try WebhookReceiver(url: url, secrets: secrets, allowsPrivateAddresses: allowsPrivate)
    } catch let fault as WebhookReceiver.Fault {
      throw SettingError(fault.isAboutSecrets ? webhookSecret : webhookURL, fault.description)
    }
  }
}

extension Settings {
  package static func adminProxy(_ source: SettingSource) throws -> TrustedProxy? {
    let secret = try source.secret("TENURE_ADMIN_PROXY_SECRET")
    let user = try source.field("TENURE_ADMIN_PROXY_USER_HEADER") ?? .token("X-Forwarded-Email")
    let groups =
      try source.field("TENURE_ADMIN_PROXY_GROUPS_HEADER") ?? .token("X-Forwarded-Groups")
    let roles = try source.list("TENURE_ADMIN_PROXY_ROLES")?.map {
      entry -> (String, APIKeys.Role) in
      let end = entry.lastIndex(of: ":")
      guard let end, end > entry.startIndex,
        let role = APIKeys.Role(rawValue: String(entry[entry.index(after: end)...])), role > .app
      else {
        throw SettingError(
          "TENURE_ADMIN_PROXY_ROLES",
          "must be GROUP:ROLE, comma-separated, with role support or admin (got \"\(entry)\")")
      }
      return (String(entry[..<end]), role)
    }
    guard let addresses = try source.list("TENURE_ADMIN_PROXY_ADDRESSES") else { return nil }
    guard let secret, secret.revealed.utf8.count >= 16 else {
      throw SettingError(
        "TENURE_ADMIN_PROXY_SECRET",
        "required, with at least 16 characters, because TENURE_ADMIN_PROXY_ADDRESSES is set: the proxy "
          + "sends it as \(TrustedProxy.secretField)")
    }
    for address in addresses where (try? SocketAddress(ipAddress: address, port: 0)) == nil {
      throw SettingError(
        "TENURE_ADMIN_PROXY_ADDRESSES",
        "must be IP addresses, comma-separated (got \"\(address)\")")
    }
    guard let roles, !roles.isEmpty else {
      throw SettingError(
        "TENURE_ADMIN_PROXY_ROLES",
        "required because TENURE_ADMIN_PROXY_ADDRESSES is set, such as support-team:support,ops:admin"
      )
    }
    return TrustedProxy(
      addresses: Set(addresses), secret: secret, userField: user, groupsField: groups,
      roles: Dictionary(roles) { max($0, $1) })
  }
}

extension SettingSource {
  fileprivate func field(_ name: String) throws -> HTTPField.Name? {
    try value(name, "the name of a header field") { HTTPField.Name($0) }
  }
}
