import ArgumentParser
import LedgerStorage
import Reports
import Subscriptions

struct RatesCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "rates", abstract: "Lists and sets exchange rates and Apple's commission.",
    subcommands: [List.self, Exchange.self, Commission.self], defaultSubcommand: List.self)

  struct List: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Lists all rates, each with the day from which it is valid.")

    @OptionGroup var options: SettingOptions

    func run() async throws {
      let rates = try await options.withLedger { ledger, _, _ in try await ledger.rates.rates() }
      let rows = rates.map { rate -> [String] in
        switch rate.subject {
        case .exchange: ["exchange", rate.label, rate.value, rate.validFrom]
        case .commission: ["commission", rate.label, rate.value + " %", rate.validFrom]
        }
      }
      let head = [["kind", "of", "rate", "valid from"]]
      print(
        rates.isEmpty
          ? "No rates are set. Apple's commission counts as 30 %."
          : (head + rows).aligned(right: [2]).joined(separator: "\n"))
    }
  }

  struct Exchange: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Sets an exchange rate from a day on.",
      discussion: """
        Reports with --reporting-currency convert amounts of earlier days with earlier rates. Set a \
        rate again for the same day to correct it: reports as known before keep the earlier one.
        """)

    @OptionGroup var options: SettingOptions
    @OptionGroup var action: RestartOptions

    @Argument(help: "Currency to convert, such as USD.")
    var currency: String

    @Argument(help: "Reporting currency, such as EUR.")
    var reportingCurrency: String

    @Argument(help: "Value of one unit of the currency in the reporting currency, such as 0.92.")
    var value: String

    @Option(help: "First day, such as 2026-01-31.")
    var from: CalendarDate

    func run() async throws {
      try await options.set(
        .exchange(currency: currency, reportingCurrency: reportingCurrency), value, from: from,
        by: action.administrator)
    }
  }

  struct Commission: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Sets Apple's commission from a day on, for proceeds in reports.",
      discussion: "Without any, the commission is 30 percent.")

    @OptionGroup var options: SettingOptions
    @OptionGroup var action: RestartOptions

    @Argument(help: "Percent, such as 15.")
    var percent: String

    @Option(help: "Only this product. (default: all products without a commission of their own)")
    var product: String?

    @Option(help: "First day, such as 2026-01-31.")
    var from: CalendarDate

    func run() async throws {
      try await options.set(
        .commission(productID: product), percent, from: from, by: action.administrator)
    }
  }
}

extension SettingOptions {
  fileprivate func set(
    _ subject: Rate.Subject, _ value: String, from day: CalendarDate,
    by administrator: Administrator
  ) async throws {
    let rate: Rate
    do {
      rate = try Rate(subject, value, validFrom: day.text)
      try await withLedger { ledger, _, now in
        try await ledger.rates.set(rate, by: administrator, at: now)
      }
    } catch let error as RateFault {
      throw ValidationError("The \(error.field.rawValue.replacing("_", with: " ")) \(error.text).")
    }
    print("set  \(rate.label) \(rate.value) from \(rate.validFrom)")
  }
}
