import ArgumentParser
import Bootstrap
import Foundation
import Logging
import Secrets
import Subscriptions

/// The flags of the commands that work on a database.
struct SettingOptions: ParsableArguments {
  @Option(name: .customLong("config"), help: "A file of settings: NAME=value lines.")
  var file: String?

  @Option(help: "The database; instead of DATABASE_URL.")
  var databaseURL: Secret<String>?

  @Option(help: "Log level; instead of TENURE_LOG_LEVEL.")
  var logLevel: String?

  /// The settings, with these flags and those of a command.
  ///
  /// - Throws: ``SettingError``, or ``SettingErrors`` where there is more than one fault.
  func settings(
    _ flags: [String: String?] = [:], needing needs: [Settings.Need] = []
  ) async throws -> Settings {
    var all = flags.compactMapValues(\.self)
    all["DATABASE_URL"] = databaseURL?.revealed
    all["TENURE_LOG_LEVEL"] = logLevel
    return try Settings(await SettingSource(flags: all, file: file), needing: needs)
  }
}

/// A flag whose value is not printed.
extension Secret: ExpressibleByArgument where Value == String {
  init?(argument: String) { self.init(argument) }
}

/// Reads arguments; what is thrown stands behind "The value … is invalid for …:".
enum ArgumentText {
  static func moment(_ text: String) throws -> Timestamp {
    guard let moment = Timestamp(rfc3339: text) else {
      throw ValidationError("it is no time like 2026-12-31T00:00:00Z")
    }
    return moment
  }

  static func uuid(_ text: String) throws -> UUID {
    guard let id = UUID(uuidString: text) else { throw ValidationError("it is no UUID") }
    return id
  }

  static func environment(_ text: String) throws -> Subscriptions.Environment {
    guard let environment = Subscriptions.Environment(rawValue: text) else {
      throw ValidationError("it is neither production nor sandbox")
    }
    return environment
  }
}
