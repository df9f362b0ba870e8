import ArgumentParser
import BackgroundJobs
import Bootstrap
import Foundation
import HTTPAPI
import LedgerStorage
import Logging
import Subscriptions

/// `tenure account`: what administrators do about accounts.
struct AccountCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "account",
    abstract:
      """
      Merges a guest into a member, erases a person, grants entitlements, takes them back, gives \
      out what is known.
      """,
    discussion: "Each act is recorded with who did it and why, and nothing is asked.",
    subcommands: [Merge.self, Erase.self, Grant.self, Revoke.self, Export.self])

  /// `tenure account merge`.
  struct Merge: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Makes an account a part of another: charges, orders and grants go over.")

    @OptionGroup var options: SettingOptions
    @OptionGroup var act: AdministratorOptions

    @Argument(help: "The account that is given up: the guest.")
    var account: String

    @Option(help: "The account that remains: the member.")
    var into: String

    func run() async throws {
      let merger = try await options.withLedger { ledger, terms, now in
        let merger = try await ledger.merge(
          account, into: into, by: act.administrator, terms: terms, at: now)
        // Of an account with many charges: here rather than by a worker, which may not run.
        var isDone = merger.completedAt != nil
        while !isDone {
          isDone = try await ledger.continueMerge(of: merger.merged.key, terms: terms, at: now)
        }
        return merger
      }
      let isRepeated = merger.merged.mergedInto != nil
      let rest = merger.completedAt == nil ? " at once, and then the rest" : ""
      print(
        """
        merged   \(merger.merged.id)
        into     \(merger.into.id)
        """)
      print(
        isRepeated
          ? "It was merged before: all that was its has gone over."
          : """
          charges  \(merger.moved.charges)\(rest)
          orders   \(merger.moved.orders)
          grants   \(merger.moved.grants)
          """)
    }
  }

  /// `tenure account erase`.
  struct Erase: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Erases a person and keeps the books. Nobody can undo it.")

    @OptionGroup var options: SettingOptions
    @OptionGroup var act: AdministratorOptions

    @Argument(help: "The account, or its pseudonym.")
    var account: String

    func run() async throws {
      let erasure = try await options.withLedger { ledger, _, now in
        try await ledger.erase(account, by: act.administrator, at: now)
      }
      print(
        """
        pseudonym    \(erasure.pseudonym)
        submissions  \(erasure.removed.submissions)
        payloads     \(erasure.removed.payloads)
        exchanges    \(erasure.removed.exchanges)
        """)
    }
  }

  /// `tenure account grant`.
  struct Grant: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Gives an account an entitlement that it did not buy.")

    @OptionGroup var options: SettingOptions
    @OptionGroup var act: AdministratorOptions

    @Argument(help: "The account.")
    var account: String

    @Argument(help: "The entitlement, as the catalogue names it.")
    var entitlement: String

    @Option(
      help: "When it ends, as in 2026-12-31T00:00:00Z. (default: never)",
      transform: ArgumentText.moment)
    var until: Timestamp?

    @Option(
      help: "The grant's id, a UUID: given twice, it is granted once. (default: a new one)",
      transform: ArgumentText.uuid)
    var id: UUID?

    func run() async throws {
      let (stored, isNew) = try await options.withLedger { ledger, terms, now in
        guard until.map({ now < $0 }) ?? true else {
          throw SettingError(name: "--until", fault: "it is past: name a time in the future")
        }
        return try await ledger.grant(
          as: id ?? UUID(), entitlement, to: account, until: until, by: act.administrator,
          terms: terms, at: now)
      }
      print("grant  \(stored.grant.id.uuidString.lowercased())\(isNew ? "" : " (given before)")")
    }
  }

  /// `tenure account revoke`.
  struct Revoke: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Takes a grant back; it ends at once.")

    @OptionGroup var options: SettingOptions
    @OptionGroup var act: AdministratorOptions

    @Argument(help: "The grant's id.", transform: ArgumentText.uuid)
    var grant: UUID

    func run() async throws {
      let stored = try await options.withLedger { ledger, terms, now in
        try await ledger.revokeGrant(grant, by: act.administrator, terms: terms, at: now)
      }
      print("\(stored.grant.entitlement) of \(stored.accountID) was taken back")
    }
  }
  /// `tenure account export`.
  struct Export: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Writes all that is known of an account, as JSON.")

    @OptionGroup var options: SettingOptions
    @OptionGroup var act: AdministratorOptions

    @Argument(help: "The account, or its pseudonym.")
    var account: String

    func run() async throws {
      try await options.withLedger { ledger, terms, now in
        guard let found = try await ledger.account(account) else {
          throw LedgerError.unknownAccount(account)
        }
        let export = try await AccountExport(
          of: found, by: act.administrator, from: ledger, terms: terms, at: now)
        try await export.write { piece in
          try FileHandle.standardOutput.write(contentsOf: Data(piece))
        }
      }
      print()
    }
  }
}

/// Who acts by a command, and why: recorded as with the API.
struct AdministratorOptions: ParsableArguments {
  @Option(help: "Why, for whoever asks later.", transform: ArgumentText.reason)
  var reason: String

  @Option(help: ArgumentText.byHelp, transform: ArgumentText.name)
  var by: String?

  var administrator: Administrator { Administrator(by: by, reason: reason) }
}

/// The same for what is started again, which changes nothing for anybody: it needs no reason.
struct RestartOptions: ParsableArguments {
  @Option(help: "Why, for whoever asks later. (default: none)", transform: ArgumentText.reason)
  var reason: String?

  @Option(help: ArgumentText.byHelp, transform: ArgumentText.name)
  var by: String?

  var administrator: Administrator { Administrator(by: by, reason: reason) }
}

extension Administrator {
  /// Whoever runs a command, by the name that was given or the system's user.
  fileprivate init(by name: String?, reason: String?) {
    self.init(name: name.map { "cli:\($0)" } ?? Administrator.commandLine.name, reason: reason)
  }
}

extension ArgumentText {
  fileprivate static let byHelp: ArgumentHelp = "Who does it. (default: the system's user)"

  fileprivate static func reason(_ text: String) throws -> String {
    guard (1...Administrator.maximumReasonLength).contains(text.unicodeScalars.count) else {
      throw ValidationError("it must have 1 to \(Administrator.maximumReasonLength) characters")
    }
    return text
  }

  fileprivate static func name(_ text: String) throws -> String {
    guard !text.isEmpty else { throw ValidationError("it must not be empty") }
    return text
  }
}

extension SettingOptions {
  /// Opens the ledger for an administrator's act, with the terms by which its events are made.
  func withLedger<Value>(
    _ body: (Ledger, _ terms: AccessTerms, _ now: Timestamp) async throws -> Value
  ) async throws -> Value {
    let settings = try await settings()
    let logger = Logger.bootstrapTenure(
      level: settings.logLevel, format: settings.logFormat)
    return try await withDatabase(settings, logger: logger) { database in
      let ledger = Ledger(database: database, tellings: settings.tellings)
      let terms = AccessTerms(
        catalogue: try await ledger.catalogue(), sandboxAccess: settings.sandboxAccess)
      return try await body(ledger, terms, settings.clock.now())
    }
  }
}
