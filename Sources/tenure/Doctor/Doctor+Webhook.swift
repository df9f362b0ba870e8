import BackgroundJobs

/// Whether somebody is there to receive events.
extension Doctor {
  func webhookFindings() async -> [DoctorFinding] {
    guard let receiver = settings.webhook else { return [] }
    let check = "webhook.receiver"
    let sender = WebhookSender(to: receiver)
    let reached = await sender.reach()
    await sender.shutDown()
    switch reached {
    case .success(300..<400):
      return [
        .fault(
          check, "The receiver redirects, and events don't follow.",
          remedy: "Set TENURE_WEBHOOK_URL to where it leads.")
      ]
    case .success(let status) where status >= 500 && status != 501:
      return [
        .warning(
          check, "The receiver answers, but with an error of its own (HTTP \(status) to HEAD).",
          remedy: "See its log: while it fails, events wait, and are given up after three days.")
      ]
    case .success(let status):
      // Most receivers take POST alone: that they say so, be it with 501, is enough.
      return [.ok(check, "The receiver answers (HTTP \(status) to HEAD, without an event).")]
    case .failure(let unreachable):
      return [
        .fault(
          check, unreachable.reason,
          remedy: "Start the receiver, or mend TENURE_WEBHOOK_URL, DNS, firewall or certificate.")
      ]
    }
  }
}
