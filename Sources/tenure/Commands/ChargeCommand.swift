import ArgumentParser
import Bootstrap
import LedgerStorage
import Subscriptions

/// `tenure charge`: what administrators say of charges.
struct ChargeCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "charge",
    abstract: "Places a charge with an account, whoever has it, or takes it away from everybody.",
    discussion: "Each act is recorded with who did it and why, and nothing is asked.",
    subcommands: [Place.self, Release.self])

  /// `tenure charge place`.
  struct Place: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Says whose a charge is: an unclaimed one, or another account's.")

    @OptionGroup var options: SettingOptions
    @OptionGroup var act: AdministratorOptions
    @OptionGroup var charge: ChargeOptions

    @Option(help: "The account that has it from now on.")
    var account: String

    func run() async throws { try await charge.place(with: account, act, options) }
  }

  /// `tenure charge release`.
  struct Release: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Takes a charge away from whoever has it; whoever submits it next has it.")

    @OptionGroup var options: SettingOptions
    @OptionGroup var act: AdministratorOptions
    @OptionGroup var charge: ChargeOptions

    func run() async throws { try await charge.place(with: nil, act, options) }
  }
}

/// Which charge, and from when on what is said of it counts.
struct ChargeOptions: ParsableArguments {
  @Argument(help: "A transaction id of the charge.")
  var transaction: String

  @Option(
    help: "Its environment, production or sandbox; needed where both know it.",
    transform: ArgumentText.environment)
  var environment: Subscriptions.Environment?

  @Option(
    help: """
      From when on it counts for later charges of the line, as in 2026-12-31T00:00:00Z. \
      (default: now)
      """,
    transform: ArgumentText.moment)
  var effectiveFrom: Timestamp?

  fileprivate func place(
    with account: String?, _ act: AdministratorOptions, _ options: SettingOptions
  ) async throws {
    let id = TransactionID(transaction)
    let isNews = try await options.withLedger { ledger, terms, now in
      let lines = try await ledger.lines(of: id)
        .filter { environment == nil || $0.environment == environment }
      guard Set(lines.map(\.environment)).count <= 1 else {
        throw SettingError(
          name: "--environment", fault: "both environments have transaction \(id): name one")
      }
      guard let line = lines.first, let family = try await ledger.family(of: line),
        let key = family.line.history.transactions.map(\.key)
          .first(where: { $0.transactionID == id })
      else { throw LedgerError.unknownTransaction(id) }
      return try await ledger.transfer(
        key, to: account, effectiveFrom: effectiveFrom, by: act.administrator, terms: terms,
        at: now)
    }
    let owner = account ?? "nobody, until somebody claims it"
    print(isNews ? "owner  \(owner)" : "nothing changes: it is so already")
  }
}
