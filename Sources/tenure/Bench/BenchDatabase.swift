import Foundation
import LedgerStorage
import Logging
import Postgres
import PrivatePostgres
import Secrets

/// The database that the benchmarks fill and measure on; it is gone afterwards.
struct BenchDatabase: Sendable {
  let url: String
  private let server: PrivatePostgres?
  private let logger: Logger

  /// Makes an empty database with Tenure's schema.
  ///
  /// - Parameters:
  ///   - url: An empty database; nil: on a private, durable PostgreSQL with its usual settings.
  ///   - directory: Where a private one keeps its data.
  ///   - isKept: Whether a private one's data stay, and are used where they are there already.
  ///   - settings: Other settings of a private one.
  ///   - logger: For the connections.
  /// - Returns: The database, to be removed after use.
  /// - Throws: ``BenchError/databaseInUse``, or what is wrong with PostgreSQL.
  static func create(
    url: Secret<String>?, in directory: URL, isKept: Bool = false, settings: [String: String] = [:],
    logger: Logger
  ) async throws -> BenchDatabase {
    if let url {
      return try await BenchDatabase(url: url.revealed, server: nil, logger: logger).created()
    }
    var options = PrivatePostgres.Options()
    options.isTemporary = !isKept
    options.settings = settings
    // A checkpoint because of much writing would fall into one round and not into the other.
    options.settings["max_wal_size"] = "8GB"
    options.settings["checkpoint_timeout"] = "1h"
    let server = try await PrivatePostgres.start(
      in: directory.appending(path: "postgres"), options: options, logger: logger)
    do {
      let database = BenchDatabase(url: await server.uri(), server: server, logger: logger)
      return try await database.created(isKept: isKept)
    } catch {
      await server.stop()
      throw error
    }
  }

  private func created(isKept: Bool = false) async throws -> BenchDatabase {
    try await withPool { pool in
      let schema = SchemaMigrator(database: pool, logger: logger)
      let isEmpty = try await schema.version() == nil
      guard isEmpty || isKept else { throw BenchError.databaseInUse }
      _ = try await schema.migrate()
    }
    return self
  }

  /// Opens a pool as the programs do, for the length of a body.
  func withPool<Value>(_ body: (ConnectionPool) async throws -> Value) async throws -> Value {
    let pool = ConnectionPool(configuration: .init(uri: Secret(url)), logger: logger)
    do {
      let value = try await body(pool)
      await pool.close()
      return value
    } catch {
      await pool.close()
      throw error
    }
  }

  /// Starts the server again, if it is ours: what it had at hand is gone.
  ///
  /// - Throws: What is wrong with PostgreSQL.
  func restart() async throws { try await server?.restart() }

  /// Removes everything that is not kept, and stops the server if it is ours.
  func remove() async {
    if let server {
      await server.stop()
    } else {
      try? await withPool {
        try await $0.runScript(
          "DROP SCHEMA IF EXISTS bench CASCADE; DROP SCHEMA tenure CASCADE")
      }
    }
  }
}
