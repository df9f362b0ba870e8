import Foundation

/// The directory in which everything of one server is kept.
struct ServerDirectory: Sendable {
  /// The longest path of a Unix socket is 107 bytes; the socket's own name takes up to 16 of them.
  private static let socketPathMax = 90

  let path: String
  let socketDirectory: String

  var data: String { "\(path)/data" }
  var log: String { "\(path)/server.log" }
  var lockFile: String { "\(path)/lock" }
  private var passwordFile: String { "\(path)/password" }
  private var postmasterFile: String { "\(data)/postmaster.pid" }

  init(_ url: URL) throws {
    let path = url.standardizedFileURL.path(percentEncoded: false)
    self.path = path.hasSuffix("/") ? String(path.dropLast()) : path
    socketDirectory = Self.socketDirectory(of: self.path)
    let files = FileManager.default
    let onlyOwner: [FileAttributeKey: Any] = [.posixPermissions: 0o700]
    if !files.fileExists(atPath: self.path) {
      // The server's user, another one where this is root, passes through the folders above.
      try files.createDirectory(
        at: URL(filePath: self.path).deletingLastPathComponent(),
        withIntermediateDirectories: true)
      try files.createDirectory(
        atPath: self.path, withIntermediateDirectories: false, attributes: onlyOwner)
    }
    if !files.fileExists(atPath: socketDirectory) {
      try files.createDirectory(
        atPath: socketDirectory, withIntermediateDirectories: false, attributes: onlyOwner)
    }
  }

  /// A folder inside, or, where that path is too long, one in /tmp, which the path alone decides:
  /// processes that share the server have to agree on it.
  private static func socketDirectory(of path: String) -> String {
    let inside = "\(path)/socket"
    guard inside.utf8.count > socketPathMax else { return inside }
    var hash: UInt64 = 0xcbf2_9ce4_8422_2325  // FNV-1a
    for byte in path.utf8 { hash = (hash ^ UInt64(byte)) &* 0x100_0000_01b3 }
    return "/tmp/tenure-\(String(hash, radix: 36))"
  }

  var password: String? { try? String(contentsOfFile: passwordFile, encoding: .utf8) }

  var postmaster: PostmasterFile? {
    (try? String(contentsOfFile: postmasterFile, encoding: .utf8)).flatMap(PostmasterFile.init)
  }

  /// The last lines of the server's log, for an error message.
  var logTail: String {
    let text = (try? String(contentsOfFile: log, encoding: .utf8)) ?? "no log"
    return text.split(separator: "\n").suffix(5).joined(separator: " | ")
  }

  /// The server that a standby follows; its roles have the same passwords in both.
  typealias Primary = (address: ServerAddress, password: String?)

  /// Makes the data directory if there is none: an empty one, or a standby's.
  func prepare(
    _ user: ServerUser, _ binaries: ServerBinaries, _ options: PrivatePostgres.Options,
    copying primary: Primary?
  ) async throws {
    let files = FileManager.default
    guard !files.fileExists(atPath: "\(data)/PG_VERSION") else { return }
    // What an initdb that was interrupted has left.
    if files.fileExists(atPath: data) { try files.removeItem(atPath: data) }
    if let primary {
      try await keep(password: primary.password ?? "", for: user)
      // With --write-recovery-conf it is a standby when it is started.
      try await Command.succeed(
        user.running(
          [
            binaries.baseBackup, "--dbname=\(primary.address.uri(database: "postgres"))",
            "--pgdata=\(data)", "--write-recovery-conf", "--checkpoint=fast",
          ] + (options.isDurable ? [] : ["--no-sync"])))
      return
    }
    try await keep(password: String(UInt64.random(in: .min ... .max), radix: 36), for: user)
    try await Command.succeed(
      user.running(
        [
          binaries.initdb, "--pgdata=\(data)", "--username=\(PrivatePostgres.userName)",
          "--encoding=UTF8", "--locale=C", "--auth-local=trust", "--auth-host=scram-sha-256",
          "--pwfile=\(passwordFile)",
        ] + (options.isDurable ? [] : ["--no-sync"])))
  }

  private func keep(password: String, for user: ServerUser) async throws {
    try password.write(toFile: passwordFile, atomically: false, encoding: .utf8)
    try FileManager.default.setAttributes([.posixPermissions: 0o600], ofItemAtPath: passwordFile)
    if case .other(let name, _) = user { try await Command.succeed(["chown", name, passwordFile]) }
  }

  /// The server that runs here already, once it accepts connections; nil if none does.
  func runningServer(within limit: Duration) async throws -> ServerAddress? {
    let end = ContinuousClock.now + limit
    while let postmaster {
      if try removeStaleFile() { return nil }
      if let address = postmaster.address { return address }
      guard ContinuousClock.now < end else { throw PrivatePostgresError.didNotStart(logTail) }
      try await Task.sleep(for: PrivatePostgres.pollInterval)
    }
    return nil
  }

  /// Removes the file of a server that has crashed.
  ///
  /// Its process number may be another process's by now, at which a new server would refuse to
  /// start.
  @discardableResult
  func removeStaleFile() throws -> Bool {
    guard let postmaster, !isRunning(postmaster.processID) else { return false }
    try FileManager.default.removeItem(atPath: postmasterFile)
    return true
  }

  /// Signals the server's first process and waits for its end.
  func signalServer(_ signal: Int32, waiting limit: Duration) async throws {
    guard let processID = postmaster?.processID, isRunning(processID) else { return }
    kill(processID, signal)
    let end = ContinuousClock.now + limit
    while isRunning(processID) {
      guard ContinuousClock.now < end else {
        throw PrivatePostgresError.didNotStop(processID: processID)
      }
      try await Task.sleep(for: PrivatePostgres.pollInterval)
    }
  }

  /// Whether the process is there and, where the system tells, is a PostgreSQL and no zombie.
  private func isRunning(_ processID: Int32) -> Bool {
    guard kill(processID, 0) == 0 || errno == EPERM else { return false }
    guard FileManager.default.fileExists(atPath: "/proc/self/cmdline") else { return true }
    let command = try? String(contentsOfFile: "/proc/\(processID)/cmdline", encoding: .utf8)
    return command?.contains("postgres") ?? false
  }
}

/// The right to start or initialise a server in a directory: one process at a time has it.
struct DirectoryLock: Sendable {
  private let file: FileHandle

  /// Gives the right to whoever waits for it.
  func release() {
    flock(file.fileDescriptor, LOCK_UN)
    try? file.close()
  }

  fileprivate static func tryLocking(_ path: String) throws -> DirectoryLock? {
    let file = try FileHandle(forUpdating: URL(filePath: path))
    if flock(file.fileDescriptor, LOCK_EX | LOCK_NB) == 0 { return DirectoryLock(file: file) }
    try file.close()
    return nil
  }
}

extension ServerDirectory {
  /// Waits until nobody else is starting or stopping the server, and keeps others from it.
  ///
  /// Watchdogs of running processes hold the same lock shared; so this asks for it until they have
  /// let it go, or until there is a server to join.
  func lock() async throws -> DirectoryLock {
    let startFile = "\(path)/starting"
    for name in [startFile, lockFile] where !FileManager.default.fileExists(atPath: name) {
      _ = FileManager.default.createFile(atPath: name, contents: nil)
    }
    let end = ContinuousClock.now + PrivatePostgres.startLimit
    while ContinuousClock.now < end {
      if let lock = try DirectoryLock.tryLocking(startFile) { return lock }
      try await Task.sleep(for: PrivatePostgres.pollInterval)
    }
    throw PrivatePostgresError.directoryIsBusy(path: path)
  }
}

/// What a running server writes to `postmaster.pid`, a line each; miscadmin.h of PostgreSQL numbers
/// them.
struct PostmasterFile: Sendable {
  let processID: Int32
  let port: Int?
  let socketDirectory: String?
  let listensOn: String?
  let status: String?

  init?(_ text: String) {
    let lines = text.split(separator: "\n", omittingEmptySubsequences: false)
      .map { String($0.trimmingPrefix(while: \.isWhitespace)) }
    func line(_ number: Int) -> String? {
      guard lines.count >= number, !lines[number - 1].isEmpty else { return nil }
      return lines[number - 1]
    }
    guard let processID = line(1).flatMap({ Int32($0) }) else { return nil }
    self.processID = abs(processID)
    port = line(4).flatMap { Int($0) }
    socketDirectory = line(5)
    listensOn = line(6)
    status = line(8)
  }

  /// Where it accepts connections, if it does by now.
  var address: ServerAddress? {
    guard status?.hasPrefix("ready") == true, let port, let socketDirectory else { return nil }
    return ServerAddress(
      socketDirectory: socketDirectory, port: port, isOnLoopback: listensOn != nil)
  }
}

extension PrivatePostgres {
  /// How the server is run.
  package struct Options: Sendable {
    /// Whether commits survive a crash of the machine; off is faster and good for tests only.
    package var isDurable = true
    /// Whether the directory is removed when the server has been stopped.
    package var isTemporary = false
    /// Whether the server also listens on 127.0.0.1, on a free port and with a password.
    package var listensOnLoopback = false
    /// Where `initdb` and `postgres` are; otherwise they are looked for.
    package var binaries: String?
    /// Settings of the server besides those that ``PrivatePostgres`` makes.
    package var settings: [String: String] = [:]

    package init() {}

    /// For tests: fast, forgetful and gone afterwards.
    package static var temporary: Options {
      var options = Options()
      options.isDurable = false
      options.isTemporary = true
      return options
    }

    func allSettings(_ address: ServerAddress) -> [String: String] {
      var all = [
        "unix_socket_directories": address.socketDirectory,
        "port": "\(address.port)",
        "listen_addresses": address.isOnLoopback ? "127.0.0.1" : "",
        "timezone": "UTC",
        "log_timezone": "UTC",
        // Nothing that an application sends is to be found in the server's log.
        "log_parameter_max_length": "0",
        "log_parameter_max_length_on_error": "0",
        // Statistics of tables just filled are guesses, and a statement that looks dear is compiled
        // for a hundred times as long as it runs.
        "jit": "off",
      ]
      if !isDurable {
        all["fsync"] = "off"
        all["synchronous_commit"] = "off"
        all["full_page_writes"] = "off"
        all["wal_init_zero"] = "off"
        all["wal_recycle"] = "off"
      }
      return all.merging(settings) { _, given in given }
    }
  }
}
