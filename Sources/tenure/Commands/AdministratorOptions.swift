import ArgumentParser
import BackgroundJobs
import Foundation
import LedgerStorage
import Logging
import Subscriptions

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
