import AppStore
import ArgumentParser
import BackgroundJobs
import Bootstrap
import Foundation
import HTTPAPI
import Intake
import JSONText
import LedgerStorage
import Logging
import Reports
import Subscriptions

struct WhatIfCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "what-if",
    abstract: "Compares the recorded owners with those of another ownership policy.",
    discussion: """
      The policies:

      \(OwnershipPolicy.all.map { "  \($0.name): \($0.summary)" }.joined(separator: "\n"))

      Replays the history and never writes. Counts the charges that would have other owners, their \
      accounts, days of access and amounts, by the month of the charge in UTC; --list writes who \
      gains and who loses each of them, with the reasons under both policies.

      --import reads another backend's history instead: the files of `tenure import`, of which \
      those with receipts say something, and RevenueCat's transaction exports, as CSV with a header \
      or JSON lines. Their rows go to a temporary table of the database, which is gone afterwards. \
      Exit status 1 on an unreadable row.
      """)

  @Argument(help: "The policy.")
  var policy: String

  @OptionGroup(title: "Scope and constants") var choices: WhatIfOptions

  @Option(
    name: .customLong("import"), parsing: .upToNextOption,
    help: "Files to compare instead of the ledger.")
  var files: [String] = []

  @Option(help: "File to write the list of gains and losses to, or - for standard output.")
  var list: String?

  @Option(help: "Format of the list: csv or jsonl.")
  var listFormat = RowFormat.csv

  @Option(help: "Format of the totals: text or json.")
  var format = OutputFormat.text

  @OptionGroup var options: SettingOptions

  func validate() throws {
    _ = try question
    guard files.isEmpty || !choices.hasScope else {
      throw ValidationError("--import has no scope.")
    }
    guard !files.contains("-") else {
      throw ValidationError("--import reads files, not standard input.")
    }
  }

  func run() async throws {
    let question = try question
    let (comparison, errors) = try await options.useDatabase { database, settings, logger in
      let ledger = Ledger(database: database)
      guard files.isEmpty else {
        return try await ledger.imports.withStagedRows { rows in
          let history = ImportedHistory(
            rows: rows, policy: question.policy, catalogue: try await ledger.products.catalogue(),
            now: settings.clock.now())
          return try await compare(history, settings, logger)
        }
      }
      return (try await compare(ledger, question, at: settings.clock.now()), 0)
    }
    print(text(of: comparison, under: question.policy))
    guard errors == 0 else { throw ExitCode.failure }
  }

  private var question: WhatIfQuestion {
    get throws {
      do {
        return try WhatIfQuestion(choices.fields(policy))
      } catch let problem as Problem {
        throw ValidationError(problem.optionText)
      }
    }
  }

  private func compare(_ ledger: Ledger, _ question: WhatIfQuestion, at now: Timestamp)
    async throws -> OwnershipComparison
  {
    let progress = ProgressBar("original transactions compared")
    defer { progress.finish() }
    do {
      let scope = try await question.scope(in: ledger)
      return try await listing { report in
        try await ledger.auditor.compare(
          with: question.policy, in: scope, at: now, progress: { progress.show($0) }, report: report
        ).comparison
      }
    } catch let problem as Problem {
      throw CommandFailure(description: problem.optionText)
    }
  }

  /// Reads the files and compares their owners; returns the number of unreadable rows, too.
  private func compare(_ history: ImportedHistory, _ settings: Settings, _ logger: Logger)
    async throws -> (OwnershipComparison, errors: Int)
  {
    let receipts =
      settings.apps.isEmpty ? nil : settings.receiptVerifier(for: try settings.appStoreApps())
    var summary = ImportedHistory.Summary()
    for path in files {
      let input = try InputFile(path, now: settings.clock.now())
      let bar = ProgressBar("")
      try await history.read(
        RowFile(FileBytes(input.handle), columns: HistoryRow.columns), asOf: input.writtenAt,
        into: &summary, receipts: receipts
      ) { error in
        FileHandle.standardError.write(
          Data("\(path), line \(error.line): \(error.fault.reason)\n".utf8))
      } progress: {
        bar.show($0, of: input.bytes)
      }
      bar.finish()
    }
    let progress = ProgressBar("original transactions compared")
    defer { progress.finish() }
    let comparison = try await listing { report in
      try await history.compare(progress: { progress.show($0) }, report: report)
    }
    let counts = [
      ["lines", "\(summary.lines)"], ["without a charge", "\(summary.withoutCharge)"],
      ["unreadable", "\(summary.errors)"],
    ]
    FileHandle.standardError.write(Data((counts.aligned().joined(separator: "\n") + "\n").utf8))
    return (comparison, summary.errors)
  }

  private func listing(
    _ body: ((NamedDifference) throws -> Void) async throws -> OwnershipComparison
  ) async throws -> OwnershipComparison {
    guard let list else { return try await body { _ in } }
    var rows = try RowWriter(to: list, listFormat, columns: NamedDifference.columns)
    let comparison = try await body { difference in
      for row in difference.rows { try rows.write(row) }
    }
    try rows.finish()
    return comparison
  }

  private func text(of comparison: OwnershipComparison, under policy: OwnershipPolicy) -> String {
    if format == .json {
      var json = JSONWriter(capacity: 1024)
      json.object { $0.members(of: comparison, under: policy) }
      return json.text
    }
    let examined = [
      ["policy", policy.name],
      ["original transactions", "\(comparison.originalTransactions)"],
      ["charges", "\(comparison.charges)"],
    ].aligned()
    guard comparison.hasDifferences else {
      return (examined + ["", "No charge would have another owner."]).joined(separator: "\n")
    }
    let months = comparison.months + [("total", comparison.total)]
    let table =
      [["elsewhere", "charges", "accounts", "days of access", "amount"]]
      + months.map { month, figures in
        [
          month, "\(figures.charges)", "\(figures.accounts)", "\(figures.days)",
          figures.amounts.map { ReportValue.words(milliunits: $0.milliunits, $0.currency) }
            .joined(separator: ", "),
        ]
      }
    return (examined + [""] + table.aligned(right: [1, 2, 3])).joined(separator: "\n")
  }
}

struct WhatIfOptions: ParsableArguments {
  @Option(help: "Only the app with this bundle ID.")
  var bundleID: String?

  @Option(help: "Only original transactions with a product of this subscription group.")
  var subscriptionGroup: String?

  @Option(help: "Only the original transactions of this account.")
  var accountID: String?

  @Option(help: "Only this original transaction.")
  var originalTransactionID: String?

  @Option(help: "production or sandbox; required if both have the original transaction.")
  var environment: String?

  @Option(help: "present-rule: days for which Apple retries a failed charge. (default: 60)")
  var billingRetryDays: String?

  @Option(help: "present-rule: hours before a period's end in which Apple charges. (default: 24)")
  var earlyChargeHours: String?

  @Option(help: "present-rule: seconds within which a renewal follows a period. (default: 60)")
  var periodEndSeconds: String?

  var hasScope: Bool {
    [bundleID, subscriptionGroup, accountID, originalTransactionID].contains { $0 != nil }
  }

  fileprivate func fields(_ policy: String) -> WhatIfFields {
    let values = [
      "policy": policy, "bundle_id": bundleID, "subscription_group": subscriptionGroup,
      "account_id": accountID, "original_transaction_id": originalTransactionID,
      "environment": environment, "billing_retry_days": billingRetryDays,
      "early_charge_hours": earlyChargeHours, "period_end_seconds": periodEndSeconds,
    ]
    return WhatIfFields(values: values.compactMapValues(\.self))
  }
}

private struct WhatIfFields: RequestFields {
  let values: [String: String]

  func text(_ name: String) -> String? { values[name] }
}

extension Problem {
  fileprivate var optionText: String {
    detail.replacing("`policy`", with: "The policy").replacing(/`([a-z_]+)`/) {
      "--" + $0.1.replacing("_", with: "-")
    }
  }
}
