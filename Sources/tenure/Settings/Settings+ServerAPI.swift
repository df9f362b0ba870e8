import AppStore
import Foundation
import LedgerStorage
import Secrets

/// The settings of the App Store Server API.
extension Settings {
  private static let issuerID = "TENURE_APPSTORE_ISSUER_ID"
  private static let keyID = "TENURE_APPSTORE_KEY_ID"
  private static let privateKey = "TENURE_APPSTORE_PRIVATE_KEY"

  /// The key for those who cannot do without.
  ///
  /// - Throws: ``SettingError``.
  func neededServerAPIKey() throws -> ServerAPIKey {
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
  static func serverAPIKey(_ source: SettingSource) throws -> ServerAPIKey? {
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
  static func serverAPIKeyPath(_ source: SettingSource) throws -> String? {
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
  static func tellings(_ source: SettingSource, hasKey: Bool) throws -> Set<AppleTelling.Kind> {
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

  static func serverAPIAddresses(_ source: SettingSource) throws -> ServerAPIAddresses {
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
