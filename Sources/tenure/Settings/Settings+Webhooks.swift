import BackgroundJobs
import Foundation
import Secrets

/// The settings of the webhook.
extension Settings {
  private static let webhookURL = "TENURE_WEBHOOK_URL"
  private static let webhookSecret = "TENURE_WEBHOOK_SECRET"

  static func webhook(_ source: SettingSource) throws -> WebhookReceiver? {
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
