import AppStoreSimulator
import Foundation

/// What an operator would configure of the App Store, in files: other commands can read them, too.
struct DemoSettings {
  /// The file of settings, for `--config`.
  let path: String
  /// The same by their names, for the environment of a program.
  let values: [String: String]

  /// - Parameters:
  ///   - directory: Where everything of this demo is, which goes with it.
  ///   - simulation: The App Store.
  ///   - port: Where it answers.
  ///   - pollsPerHour: How often Apple may be asked.
  /// - Throws: Why the files can't be written.
  init(
    in directory: URL, simulation: AppStoreSimulation, port: Int, pollsPerHour: Int = 144_000
  ) throws {
    func write(_ text: String, to name: String) throws -> String {
      let file = directory.appending(path: name)
      try Data(text.utf8).write(to: file)
      return file.path(percentEncoded: false)
    }
    let app = DemoCatalogue.app
    let appStore = "http://\(DemoServer.host):\(port)"
    let key = simulation.apiKey
    values = [
      "TENURE_APPS": "\(app.bundleID):\(app.appAppleID):\(app.sharedSecret)",
      "TENURE_APPSTORE_VERIFY_RECEIPT_URL": "\(appStore)/verifyReceipt",
      "TENURE_APPSTORE_SANDBOX_VERIFY_RECEIPT_URL": "\(appStore)/sandbox/verifyReceipt",
      "TENURE_APPSTORE_API_URL": appStore,
      "TENURE_APPSTORE_SANDBOX_API_URL": "\(appStore)/sandbox",
      "TENURE_APPSTORE_ISSUER_ID": key.issuerID,
      "TENURE_APPSTORE_KEY_ID": key.keyID,
      "TENURE_APPSTORE_PRIVATE_KEY": try write(key.privateKeyPEM, to: "app-store-key.p8"),
      "TENURE_APPSTORE_ROOT_CERTIFICATES": try write(
        simulation.rootCertificatePEM, to: "root.pem"),
      "TENURE_POLLS_PER_HOUR": "\(pollsPerHour)",
    ]
    path = try write(
      values.sorted { $0.key < $1.key }.map { "\($0.key)=\($0.value)\n" }.joined(), to: "settings")
  }

  /// Reads them, and nothing of the environment.
  func read(keys: DemoKeys) async throws -> Settings {
    try Settings(
      await SettingSource(
        flags: ["TENURE_API_KEYS": keys.setting], environment: [:], file: path))
  }
}
