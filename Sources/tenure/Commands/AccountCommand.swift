import ArgumentParser
import BackgroundJobs
import Bootstrap
import Foundation
import HTTPAPI
import JSONText
import LedgerStorage
import Subscriptions

struct AccountCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "account",
    abstract:
      """
      Merges a guest into a member, erases a customer, grants and revokes entitlements, exports an \
      account's data.
      """,
    discussion: "Each action is saved in the audit log. No confirmation is requested.",
    subcommands: [Merge.self, Erase.self, Grant.self, Revoke.self, Export.self])

  struct Merge: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Merges a guest account into a member account: charges, orders and grants move.")

    @OptionGroup var action: AdministratorOptions

    @Argument(help: "The guest account.")
    var account: String

    @Option(help: "The member account to merge it into.")
    var into: String

    func run() async throws {
      let merger = try await action.options.withLedger { ledger, terms, now in
        let merger = try await ledger.accounts.merge(
          account, into: into, by: action.administrator, terms: terms, at: now)
        // Finishes the merge of an account with many charges without relying on a worker.
        var isDone = merger.completedAt != nil
        while !isDone {
          isDone = try await ledger.accounts.continueMerge(
            of: merger.merged.key, terms: terms, at: now)
        }
        return merger
      }
      let isRepeated = merger.merged.mergedInto != nil
      let rest = merger.completedAt == nil ? " in the first batch, then the rest" : ""
      print(
        """
        merged   \(merger.merged.id)
        into     \(merger.into.id)
        """)
      print(
        isRepeated
          ? "Already merged: everything has moved."
          : """
          charges  \(merger.moved.charges)\(rest)
          orders   \(merger.moved.orders)
          grants   \(merger.moved.grants)
          """)
    }
  }

  struct Erase: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Deletes a customer's personal data; keeps financial records. Irreversible.")

    @OptionGroup var action: AdministratorOptions

    @Argument(help: "The account ID or its pseudonym.")
    var account: String

    func run() async throws {
      let erasure = try await action.options.withLedger { ledger, _, now in
        try await ledger.accounts.erase(account, by: action.administrator, at: now)
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

  struct Grant: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Grants an account an entitlement without a purchase.")

    @OptionGroup var action: AdministratorOptions

    @Argument(help: "The account ID.")
    var account: String

    @Argument(help: "The entitlement's name in the catalogue.")
    var entitlement: String

    @Option(
      help: "End of the grant, such as 2026-12-31T00:00:00Z. (default: never)",
      transform: ArgumentText.moment)
    var until: Timestamp?

    @Option(
      help: "Grant ID (UUID); repeating it grants only once. (default: a new ID)",
      transform: ArgumentText.uuid)
    var id: UUID?

    func run() async throws {
      let (stored, isNew) = try await action.options.withLedger { ledger, terms, now in
        guard until.map({ now < $0 }) ?? true else {
          throw SettingError("--until", "must be in the future")
        }
        return try await ledger.grants.grant(
          as: id ?? UUID(), entitlement, to: account, until: until, by: action.administrator,
          terms: terms, at: now)
      }
      print("grant  \(stored.grant.id.text)\(isNew ? "" : " (already granted)")")
    }
  }

  struct Revoke: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Revokes a grant with immediate effect.")

    @OptionGroup var action: AdministratorOptions

    @Argument(help: "The grant ID.", transform: ArgumentText.uuid)
    var grant: UUID

    func run() async throws {
      let stored = try await action.options.withLedger { ledger, terms, now in
        try await ledger.grants.revokeGrant(grant, by: action.administrator, terms: terms, at: now)
      }
      print("revoked \(stored.grant.entitlement) of \(stored.accountID)")
    }
  }

  struct Export: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Writes everything stored about an account as JSON.")

    @OptionGroup var action: AdministratorOptions

    @Argument(help: "The account ID or its pseudonym.")
    var account: String

    func run() async throws {
      try await action.options.withLedger { ledger, terms, now in
        guard let found = try await ledger.accounts.account(account) else {
          throw LedgerError.unknownAccount(account)
        }
        let export = try await AccountExport(
          of: found, by: action.administrator, from: ledger, terms: terms, at: now)
        try await export.write { piece in
          try FileHandle.standardOutput.write(contentsOf: Data(piece))
        }
      }
      print()
    }
  }
}

/// The administrator and reason that the audit log records.
struct AdministratorOptions: ParsableArguments {
  @OptionGroup var options: SettingOptions

  @Option(help: "Reason, for the audit log.", transform: ArgumentText.reason)
  var reason: String

  @Option(help: ArgumentText.byHelp, transform: ArgumentText.name)
  var by: String?

  var administrator: Administrator { Administrator(by: by, reason: reason) }
}

/// The same for retries, which change no account and so need no reason.
struct RestartOptions: ParsableArguments {
  @Option(help: "Reason, for the audit log. (default: none)", transform: ArgumentText.reason)
  var reason: String?

  @Option(help: ArgumentText.byHelp, transform: ArgumentText.name)
  var by: String?

  var administrator: Administrator { Administrator(by: by, reason: reason) }
}

extension Administrator {
  /// The given name, or else the operating system's user.
  fileprivate init(by name: String?, reason: String?) {
    self.init(name: name.map { "cli:\($0)" } ?? Administrator.commandLine.name, reason: reason)
  }
}

extension ArgumentText {
  fileprivate static let byHelp: ArgumentHelp = "Administrator's name. (default: the system user)"

  fileprivate static func reason(_ text: String) throws -> String {
    guard (1...Administrator.maximumReasonLength).contains(text.unicodeScalars.count) else {
      throw ValidationError("must have 1 to \(Administrator.maximumReasonLength) characters")
    }
    return text
  }

  fileprivate static func name(_ text: String) throws -> String {
    guard !text.isEmpty else { throw ValidationError("must not be empty") }
    return text
  }
}

extension SettingOptions {
  /// Opens the ledger, with the terms that decide which events an action publishes.
  func withLedger<Value>(
    _ body: (Ledger, _ terms: AccessTerms, _ now: Timestamp) async throws -> Value
  ) async throws -> Value {
    try await useDatabase { database, settings, _ in
      let ledger = Ledger(database: database, writeBackKinds: settings.writeBackKinds)
      let terms = AccessTerms(
        catalogue: try await ledger.products.catalogue(), sandboxAccess: settings.sandboxAccess)
      return try await body(ledger, terms, settings.clock.now())
    }
  }
}
