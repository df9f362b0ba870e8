import ArgumentParser
import Bootstrap
import Foundation
import Logging
import Postgres
import Secrets
import Subscriptions

struct SettingOptions: ParsableArguments {
  @Option(name: .customLong("config"), help: "Settings file with NAME=value lines.")
  var file: String?

  @Option(help: "Database connection URI; overrides DATABASE_URL.", transform: { Secret($0) })
  var databaseURL: Secret<String>?

  @Option(help: "Log level; overrides TENURE_LOG_LEVEL.")
  var logLevel: String?

  /// - Parameter flags: The command's own options, by setting name.
  func settings(
    _ flags: [String: String?] = [:], needing needs: [Settings.Need] = []
  ) async throws -> Settings {
    var all = flags.compactMapValues(\.self)
    all["DATABASE_URL"] = databaseURL?.revealed
    all["TENURE_LOG_LEVEL"] = logLevel
    return try Settings(await SettingSource(flags: all, file: file), needing: needs)
  }

  func useDatabase<Value>(
    _ body: (ConnectionPool, Settings, Logger) async throws -> Value
  ) async throws -> Value {
    let settings = try await settings()
    let logger = settings.bootstrapLogger()
    return try await Database.open(settings, logger: logger).use { database in
      try await body(database, settings, logger)
    }
  }
}

enum OutputFormat: String, CaseIterable, ExpressibleByArgument { case text, json }

/// A failure that the command reports with its text alone.
struct CommandFailure: Error, CustomStringConvertible {
  let description: String
}

extension Settings {
  func bootstrapLogger() -> Logger { .bootstrapTenure(level: logLevel, format: logFormat) }
}

/// Parses arguments; error texts follow "The value … is invalid for …:".
enum ArgumentText {
  /// Parses RFC 3339, or a date, which means its midnight in UTC.
  static func moment(_ text: String) throws -> Timestamp {
    guard let moment = Timestamp(rfc3339: text) ?? Timestamp(rfc3339: text + "T00:00:00Z") else {
      throw ValidationError("must be a time such as 2026-12-31T00:00:00Z")
    }
    return moment
  }

  static func uuid(_ text: String) throws -> UUID {
    guard let id = UUID(uuidString: text) else { throw ValidationError("must be a UUID") }
    return id
  }
}
