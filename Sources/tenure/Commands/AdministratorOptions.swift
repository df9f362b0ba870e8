import ArgumentParser
import BackgroundJobs
import Foundation
import LedgerStorage
import Logging
import Subscriptions

/// Who acts by a command, and why: recorded as with the API.
struct AdministratorOptions: ParsableArguments {
  @Option(help: "Why, for whoever asks later.")
  var reason: String

  @Option(help: "Who does it. (default: the system's user)")
  var by: String?

  func validate() throws {
    guard !reason.isEmpty,
      reason.unicodeScalars.count <= Administrator.maximumReasonLength
    else {
      throw ValidationError(
        "--reason must have 1 to \(Administrator.maximumReasonLength) characters.")
    }
    guard by?.isEmpty != true else { throw ValidationError("--by must not be empty.") }
  }

  var administrator: Administrator {
    Administrator(name: by.map { "cli:\($0)" } ?? Administrator.commandLine.name, reason: reason)
  }
}

extension SettingOptions {
  /// Opens the ledger for an administrator's act, with the terms by which its events are made.
  func withLedger<Value>(
    _ body: (Ledger, _ terms: AccessTerms, _ now: Timestamp) async throws -> Value
  ) async throws -> Value {
    let settings = try await settings()
    let logger = Logger.bootstrapTenure(level: settings.logLevel)
    return try await withDatabase(settings, logger: logger) { database in
      let ledger = Ledger(database: database, tellings: settings.tellings)
      let terms = AccessTerms(
        catalogue: try await ledger.catalogue(), sandboxAccess: settings.sandboxAccess)
      return try await body(ledger, terms, settings.clock.now())
    }
  }
}
