package import Foundation
package import Logging

/// A private PostgreSQL server in its own directory, for `demo`, development and tests.
///
/// The data stay in the directory; `initdb` runs once. The server stops with this process, however
/// it ends. Processes that start it in the same directory share it, and the last one stops it.
package actor PrivatePostgres {
  /// The superuser, initially the only role.
  package static let userName = "postgres"

  /// Time limit for accepting connections, including crash recovery.
  static let startLimit = Duration.seconds(60)

  /// Time limit for a fast shutdown.
  static let stopLimit = Duration.seconds(20)

  /// Interval at which files are checked while waiting for the server.
  static let pollInterval = Duration.milliseconds(10)

  let directory: ServerDirectory
  let options: Options
  let binaries: ServerBinaries
  let user: ServerUser
  private let watchdog: Watchdog
  private let logger: Logger
  private var address: ServerAddress

  private init(
    directory: ServerDirectory, options: Options, binaries: ServerBinaries, user: ServerUser,
    watchdog: Watchdog, address: ServerAddress, logger: Logger
  ) {
    self.directory = directory
    self.options = options
    self.binaries = binaries
    self.user = user
    self.watchdog = watchdog
    self.address = address
    self.logger = logger
  }

  /// Starts the server in a directory, or joins the one running there; it accepts connections on
  /// return.
  ///
  /// - Parameter path: Created if missing. The server's user need not be able to read its parents.
  package static func start(
    in path: URL, options: Options = Options(), logger: Logger = quiet
  ) async throws -> PrivatePostgres {
    try await start(in: path, copying: nil, options: options, logger: logger)
  }

  /// Starts a standby that follows this server by streaming replication and accepts reads.
  ///
  /// Commits wait for standbys only if the primary's `synchronous_standby_names` says so.
  ///
  /// - Parameter path: As for ``start(in:options:logger:)``; must not hold a server yet.
  package func startStandby(
    in path: URL, options: Options = Options(), logger: Logger = quiet
  ) async throws -> PrivatePostgres {
    try await Self.start(
      in: path, copying: (address, directory.password), options: options, logger: logger)
  }

  package static var quiet: Logger {
    Logger(label: "PrivatePostgres", factory: { _ in SwiftLogNoOpLogHandler() })
  }

  private static func start(
    in path: URL, copying primary: ServerDirectory.Primary?, options: Options, logger: Logger
  ) async throws -> PrivatePostgres {
    let binaries = try await ServerBinaries.find(preferring: options.binaries)
    let directory = try ServerDirectory(path)
    let lock = try await directory.lock()
    let user = try await ServerUser.choose(for: directory)
    let watchdog = try await Watchdog.start(for: directory, removing: options.isTemporary)
    do {
      try await directory.prepare(user, binaries, options, copying: primary)
      var address = try await directory.runningServer(within: startLimit)
      if address == nil {
        address = try await ServerProcess.start(binaries, directory, user, options)
        logger.info("Started a private PostgreSQL", metadata: ["path": "\(directory.path)"])
      }
      guard let address else { throw PrivatePostgresError.didNotStart(directory.logTail) }
      lock.release()
      return PrivatePostgres(
        directory: directory, options: options, binaries: binaries, user: user,
        watchdog: watchdog, address: address, logger: logger)
    } catch {
      lock.release()
      await watchdog.end()
      throw error
    }
  }

  /// Whether a server was ever started in the directory.
  package static func exists(in path: URL) -> Bool {
    FileManager.default.fileExists(
      atPath: path.appending(path: "data/PG_VERSION").path(percentEncoded: false))
  }

  /// The connection URI of a database, over the Unix socket.
  package func uri(database: String = "postgres") -> String {
    address.uri(database: database)
  }

  /// The connection URI for the one of two servers that takes writes, this one or its standby.
  ///
  /// The connection attempt to each server is limited to two seconds.
  package func uri(database: String = "postgres", orOf standby: PrivatePostgres) async -> String {
    address.uri(database: database, or: await standby.address)
  }

  /// The connection URI of a database over TCP, if the server listens on the loopback address.
  package func loopbackURI(database: String = "postgres") -> String? {
    address.loopbackURI(database: database, password: directory.password)
  }

  /// The process ID of the running server's first process.
  package var processID: Int32? { directory.postmaster?.processID }

  /// Stops the server, unless other processes use it.
  package func stop() async {
    await watchdog.end()
    logger.info("Stopped the private PostgreSQL", metadata: ["path": "\(directory.path)"])
  }

  /// Stops the server with a fast shutdown and starts it again at the same address.
  package func restart() async throws {
    try await directory.signalServer(SIGINT, waiting: Self.stopLimit)
    try await startAgain()
  }

  /// Stops the server immediately, as in a crash: without notifying clients or writing anything.
  package func kill() async throws {
    try await directory.signalServer(SIGQUIT, waiting: Self.stopLimit)
  }

  /// Starts the server after ``kill()``, at the same address.
  package func startAgain() async throws {
    address = try await ServerProcess.start(binaries, directory, user, options, at: address)
  }

  /// Promotes a standby and waits until it takes writes.
  ///
  /// The old primary must be gone for good, because two diverged primaries can't be joined again.
  package func promote() async throws {
    try await Command.succeed(
      user.running([binaries.control, "promote", "--pgdata=\(directory.data)", "--silent"]))
  }
}

package enum PrivatePostgresError: Error, CustomStringConvertible {
  case binariesNotFound(searched: [String])
  case directoryUnreachable(path: String, user: String)
  case noUnprivilegedUser
  case commandFailed(command: String, output: String)
  case didNotStart(String)
  case didNotStop(processID: Int32)
  case directoryIsBusy(path: String)

  package var description: String {
    switch self {
    case .binariesNotFound(let searched):
      """
      PostgreSQL's server programs (initdb, postgres) were not found in \
      \(searched.joined(separator: ", ")). Install them ("apt-get install postgresql" on Debian \
      and Ubuntu, "brew install postgresql" on macOS), or name a database with DATABASE_URL.
      """
    case .directoryUnreachable(let path, let user):
      """
      PostgreSQL doesn't run as root, and the user \(user), whom it would run as, can't write to \
      \(path). Choose another directory.
      """
    case .noUnprivilegedUser:
      "PostgreSQL doesn't run as root, and neither a user \"postgres\" nor \"nobody\" exists."
    case .commandFailed(let command, let output):
      "\(command) failed: \(output)"
    case .didNotStart(let log):
      "The private PostgreSQL did not start. Its log ends with: \(log)"
    case .didNotStop(let processID):
      "The private PostgreSQL (process \(processID)) did not stop."
    case .directoryIsBusy(let path):
      "Timed out waiting for another process that is starting PostgreSQL in \(path)."
    }
  }
}

struct ServerAddress: Sendable {
  let socketDirectory: String
  let port: Int
  let isOnLoopback: Bool

  func uri(database: String) -> String {
    "postgresql:///\(escaped(database))?host=\(escaped(socketDirectory))&port=\(port)"
      + "&user=\(PrivatePostgres.userName)"
  }

  func uri(database: String, or other: ServerAddress) -> String {
    "postgresql:///\(escaped(database))"
      + "?host=\(escaped(socketDirectory)),\(escaped(other.socketDirectory))"
      + "&port=\(port),\(other.port)&user=\(PrivatePostgres.userName)"
      + "&target_session_attrs=read-write"
  }

  func loopbackURI(database: String, password: String?) -> String? {
    guard isOnLoopback, let password else { return nil }
    return "postgresql://\(PrivatePostgres.userName):\(escaped(password))@127.0.0.1:\(port)/"
      + escaped(database)
  }

  private func escaped(_ text: String) -> String {
    text.addingPercentEncoding(withAllowedCharacters: .alphanumerics) ?? text
  }
}
