import ArgumentParser
import Bootstrap
import Foundation
import LedgerStorage
import Logging
import Subscriptions

/// `tenure webhooks`: how the pushing of events stands.
struct WebhooksCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "webhooks",
    abstract: "Shows which events wait for the webhook and which were given up; pushes them again.",
    subcommands: [List.self, Redeliver.self], defaultSubcommand: List.self)

  /// How many that were given up are shown; their number is always told.
  private static let shown = 50

  /// `tenure webhooks list`.
  struct List: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
      commandName: "list", abstract: "Shows what waits, and what was given up and why.")

    @OptionGroup var options: SettingOptions

    func run() async throws {
      let settings = try await options.settings()
      let logger = Logger.bootstrapTenure(
        level: settings.logLevel, format: settings.logFormat)
      let (standing, parked) = try await withDatabase(settings, logger: logger) { database in
        let ledger = Ledger(database: database)
        return (
          try await ledger.webhookStanding(),
          try await ledger.parkedDeliveries(limit: WebhooksCommand.shown)
        )
      }
      guard standing.isOn else {
        print("No worker was ever given a webhook: set TENURE_WEBHOOK_URL.")
        return
      }
      print(
        """
        waiting   \(standing.waiting)
        due since \(standing.oldestDueSince?.description ?? "-")
        failing   \(standing.failing)
        given up  \(standing.parked)
        """)
      for delivery in parked {
        print(
          "  \(delivery.eventID) \(delivery.type) of \(delivery.accountID ?? "nobody"), at "
            + "\(delivery.parkedAt) after \(delivery.attempts) attempts: \(delivery.reason)")
      }
      if standing.parked > parked.count {
        print("  … and \(standing.parked - parked.count) more")
      }
    }
  }

  /// `tenure webhooks redeliver`.
  struct Redeliver: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
      commandName: "redeliver",
      abstract: "Pushes events again, ahead of whatever waits for the same accounts.",
      discussion: """
        A running worker pushes them; events older than the retention are gone. It is recorded who \
        did it, and why if that is said.
        """)

    @OptionGroup var options: SettingOptions
    @OptionGroup var act: RestartOptions

    @Flag(help: "All that were given up.")
    var parked = false

    @Argument(help: "The ids of events.")
    var ids: [Int64] = []

    func validate() throws {
      guard parked == ids.isEmpty else {
        throw ValidationError("Name the ids of events, or say --parked.")
      }
    }

    func run() async throws {
      let settings = try await options.settings()
      let logger = Logger.bootstrapTenure(
        level: settings.logLevel, format: settings.logFormat)
      let refused = try await withDatabase(settings, logger: logger) { database in
        let ledger = Ledger(database: database)
        return parked ? try await redeliverParked(ledger) : try await redeliver(ledger)
      }
      guard refused == 0 else { throw ExitCode.failure }
    }

    private func redeliverParked(_ ledger: Ledger) async throws -> Int {
      var count = 0
      while case let more = try await ledger.redeliverParked(by: act.administrator, at: .now),
        more > 0
      {
        count += more
      }
      print("\(count) events that were given up will be pushed again.")
      return 0
    }

    /// - Returns: How many will not be pushed.
    private func redeliver(_ ledger: Ledger) async throws -> Int {
      var refused = 0
      for id in ids {
        switch try await ledger.redeliver(id, by: act.administrator, at: .now) {
        case .scheduled: print("\(id) will be pushed again.")
        case .unknownEvent:
          refused += 1
          print("\(id) is no event, or is older than the retention.")
        case .webhooksOff:
          refused += 1
          print("\(id) is not pushed: no worker was ever given a webhook.")
        }
      }
      return refused
    }
  }
}
