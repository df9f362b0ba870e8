import ArgumentParser
import Bootstrap
import LedgerStorage
import Subscriptions

struct ChargeCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "charge", abstract: "Assigns a charge to an account or releases it.",
    discussion: "Each action is saved in the audit log. No confirmation is requested.",
    subcommands: [Place.self, Release.self])

  struct Place: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Assigns a charge to an account, overriding the ownership rule.")

    @OptionGroup var action: AdministratorOptions
    @OptionGroup var charge: ChargeOptions

    @Option(help: "The new owner's account ID.")
    var account: String

    func run() async throws { try await charge.place(with: account, action) }
  }

  struct Release: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Releases a charge from its owner; the next account that submits it owns it.")

    @OptionGroup var action: AdministratorOptions
    @OptionGroup var charge: ChargeOptions

    func run() async throws { try await charge.place(with: nil, action) }
  }
}

/// The charge, and the time from which its override applies to later charges.
struct ChargeOptions: ParsableArguments {
  @Argument(help: "The charge's transaction ID.")
  var transaction: String

  @Option(help: "production or sandbox; required if both have the transaction.")
  var environment: Environment?

  @Option(
    help: """
      Time from which it applies to later charges of the original transaction, such as \
      2026-12-31T00:00:00Z. (default: now)
      """,
    transform: ArgumentText.moment)
  var effectiveFrom: Timestamp?

  fileprivate func place(with account: String?, _ action: AdministratorOptions) async throws {
    let id = TransactionID(transaction)
    let isChanged = try await action.options.withLedger { ledger, terms, now in
      let lines = try await ledger.ownership.lines(of: id)
        .filter { environment == nil || $0.environment == environment }
      guard Set(lines.map(\.environment)).count <= 1 else {
        throw SettingError("--environment", "required: both environments have transaction \(id)")
      }
      guard let line = lines.first, let original = try await ledger.ownership.original(of: line),
        let key = original.line.history.transactions.map(\.key)
          .first(where: { $0.transactionID == id })
      else { throw LedgerError.unknownTransaction(id) }
      return try await ledger.ownership.transfer(
        key, to: account, effectiveFrom: effectiveFrom, by: action.administrator, terms: terms,
        at: now)
    }
    let owner = account ?? "none until an account claims it"
    print(isChanged ? "owner  \(owner)" : "unchanged")
  }
}
