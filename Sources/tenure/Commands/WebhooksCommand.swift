import ArgumentParser
import Bootstrap
import LedgerStorage
import Subscriptions

struct WebhooksCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "webhooks",
    abstract: "Lists pending and parked webhook deliveries, and redelivers events.",
    subcommands: [List.self, Redeliver.self], defaultSubcommand: List.self)

  /// The number of parked deliveries that are listed; all are counted.
  private static let shown = 50

  struct List: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
      commandName: "list", abstract: "Shows pending deliveries, and parked ones with the reason.")

    @OptionGroup var options: SettingOptions

    func run() async throws {
      let (status, parked) = try await options.useDatabase { database, _, _ in
        let ledger = Ledger(database: database)
        return (
          try await ledger.webhooks.webhookStatus(),
          try await ledger.webhooks.parkedDeliveries(limit: WebhooksCommand.shown)
        )
      }
      guard status.isOn else {
        print("No worker has ever had a webhook: set TENURE_WEBHOOK_URL.")
        return
      }
      print(
        """
        waiting   \(status.waiting)
        due since \(status.oldestDueSince?.description ?? "-")
        failing   \(status.failing)
        parked    \(status.parked)
        """)
      for delivery in parked {
        print(
          "  \(delivery.eventID) \(delivery.type) of \(delivery.accountID ?? "no account"), parked "
            + "at \(delivery.parkedAt) after \(delivery.attempts) attempts: \(delivery.reason)")
      }
      if status.parked > parked.count { print("  … and \(status.parked - parked.count) more") }
    }
  }

  struct Redeliver: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
      commandName: "redeliver",
      abstract: "Redelivers events, ahead of pending events of the same accounts.",
      discussion: """
        A running worker delivers them. Events older than TENURE_EVENT_RETENTION are gone. The \
        audit log records who redelivered them, and the reason if one is given.
        """)

    @OptionGroup var options: SettingOptions
    @OptionGroup var action: RestartOptions

    @Flag(help: "Redeliver all parked events.")
    var parked = false

    @Argument(help: "Event IDs.")
    var ids: [Int64] = []

    func validate() throws {
      guard parked == ids.isEmpty else { throw ValidationError("Specify event IDs or --parked.") }
    }

    func run() async throws {
      let refused = try await options.useDatabase { database, _, _ in
        let ledger = Ledger(database: database)
        return parked ? try await redeliverParked(ledger) : try await redeliver(ledger)
      }
      guard refused == 0 else { throw ExitCode.failure }
    }

    private func redeliverParked(_ ledger: Ledger) async throws -> Int {
      var count = 0
      while case let more = try await ledger.webhooks.redeliverParked(
        by: action.administrator, at: .now),
        more > 0
      {
        count += more
      }
      print("Parked events to be redelivered: \(count)")
      return 0
    }

    /// - Returns: The number of events that can't be redelivered.
    private func redeliver(_ ledger: Ledger) async throws -> Int {
      var refused = 0
      for id in ids {
        switch try await ledger.webhooks.redeliver(id, by: action.administrator, at: .now) {
        case .scheduled: print("\(id) will be redelivered.")
        case .unknownEvent:
          refused += 1
          print("\(id) is not an event, or is older than TENURE_EVENT_RETENTION.")
        case .webhooksOff:
          refused += 1
          print("\(id) will not be redelivered: no worker has ever had a webhook.")
        }
      }
      return refused
    }
  }
}
