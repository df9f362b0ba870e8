package import Foundation
package import Logging

/// A PostgreSQL server of our own, in a directory of our own: for `demo`, development and tests.
///
/// The data stay in the directory; `initdb` runs once. The server ends with this process, however
/// it ends, and several processes that start it in the same directory share it: the last one stops
/// it.
package actor PrivatePostgres {
  /// The superuser, and the only role there is at first.
  package static let userName = "postgres"

  /// How long the server may take to accept connections, recovery after a crash included.
  static let startLimit = Duration.seconds(60)

  /// How long a fast shutdown may take.
  static let stopLimit = Duration.seconds(20)

  /// How often a file is looked at while waiting for the server.
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

  /// Starts the server in a directory, or joins the one that runs there.
  ///
  /// - Parameters:
  ///   - path: where everything is kept; made if missing. Its parents need not be readable for the
  ///   server's user.
  ///   - options: how the server is run.
  ///   - logger: hears what is done.
  /// - Returns: the server, accepting connections.
  /// - Throws: ``PrivatePostgresError`` saying what is missing or what the server said.
  package static func start(
    in path: URL, options: Options = Options(), logger: Logger = quiet
  ) async throws -> PrivatePostgres {
    try await start(in: path, copying: nil, options: options, logger: logger)
  }

  /// Starts a standby, which follows this server by streaming replication and can be read.
  ///
  /// A commit waits for standbys only where the primary's `synchronous_standby_names` says so.
  ///
  /// - Parameters:
  ///   - path: as for ``start(in:options:logger:)``; it must hold no server yet.
  ///   - options: how the standby is run.
  ///   - logger: hears what is done.
  /// - Returns: the standby, accepting connections; ``promote()`` makes a primary of it.
  /// - Throws: ``PrivatePostgresError``.
  package func startStandby(
    in path: URL, options: Options = Options(), logger: Logger = quiet
  ) async throws -> PrivatePostgres {
    try await Self.start(
      in: path, copying: (address, directory.password), options: options, logger: logger)
  }

  /// A logger that hears nothing.
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

  /// Whether a server was ever started in a directory; nothing is made or started to tell.
  package static func exists(in path: URL) -> Bool {
    FileManager.default.fileExists(
      atPath: path.appending(path: "data/PG_VERSION").path(percentEncoded: false))
  }

  /// The connection URI of a database, through the Unix socket.
  package func uri(database: String = "postgres") -> String {
    address.uri(database: database)
  }

  /// The connection URI of a database on whichever of two servers takes writes: this one or its
  /// standby.
  ///
  /// A server that does not answer is given up after two seconds.
  package func uri(database: String = "postgres", orOf standby: PrivatePostgres) async -> String {
    address.uri(database: database, or: await standby.address)
  }

  /// The connection URI of a database over TCP, if the server listens on the loopback address.
  package func loopbackURI(database: String = "postgres") -> String? {
    address.loopbackURI(database: database, password: directory.password)
  }

  /// The process number of the server's first process, while it runs.
  package var processID: Int32? { directory.postmaster?.processID }

  /// Stops the server, unless other processes use it too.
  package func stop() async {
    await watchdog.end()
    logger.info("Stopped the private PostgreSQL", metadata: ["path": "\(directory.path)"])
  }

  /// Stops the server as an administrator would, and starts it again at the same address.
  ///
  /// - Throws: ``PrivatePostgresError``.
  package func restart() async throws {
    try await directory.signalServer(SIGINT, waiting: Self.stopLimit)
    try await startAgain()
  }

  /// Ends the server as a crash does: without a word to its clients and without writing anything
  /// more.
  ///
  /// - Throws: ``PrivatePostgresError``.
  package func kill() async throws {
    try await directory.signalServer(SIGQUIT, waiting: Self.stopLimit)
  }

  /// Starts the server again after ``kill()``, at the same address.
  ///
  /// - Throws: ``PrivatePostgresError``.
  package func startAgain() async throws {
    address = try await ServerProcess.start(binaries, directory, user, options, at: address)
  }

  /// Makes a primary of a standby, and waits until it takes writes.
  ///
  /// Whoever does this has to know that the old primary is gone for good: two that take writes can
  /// never be joined again.
  ///
  /// - Throws: ``PrivatePostgresError``.
  package func promote() async throws {
    try await Command.succeed(
      user.running([binaries.control, "promote", "--pgdata=\(directory.data)", "--silent"]))
  }
}

/// Why the private PostgreSQL could not be started or stopped.
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
      PostgreSQL doesn't run as root, and \(user), as whom it would run, cannot write to \
      \(path). Choose a directory elsewhere.
      """
    case .noUnprivilegedUser:
      "PostgreSQL doesn't run as root, and there is no user \"postgres\" or \"nobody\" for it."
    case .commandFailed(let command, let output):
      "\(command) failed: \(output)"
    case .didNotStart(let log):
      "The private PostgreSQL did not start. The end of its log: \(log)"
    case .didNotStop(let processID):
      "The private PostgreSQL (process \(processID)) did not stop."
    case .directoryIsBusy(let path):
      "Another process has been starting a PostgreSQL in \(path) for too long."
    }
  }
}

/// Where the server is reached.
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
      + "&target_session_attrs=read-write&connect_timeout=2"
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
