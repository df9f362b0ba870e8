import Foundation

struct ServerDirectory: Sendable {
  /// A Unix socket's path has at most 107 bytes, up to 16 of which are the socket's own name.
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
      // The server's user, who differs if this is root, must be able to traverse the parents.
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

  /// A folder inside or, if that path is too long, one in /tmp derived from the path alone, so that
  /// processes sharing the server agree on it.
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

  var logTail: String {
    let text = (try? String(contentsOfFile: log, encoding: .utf8)) ?? "no log"
    return text.split(separator: "\n").suffix(5).joined(separator: " | ")
  }

  /// The primary of a standby; passwords are the same on both.
  typealias Primary = (address: ServerAddress, password: String?)

  /// Creates the data directory if there is none: an empty one, or a standby's copy.
  func prepare(
    _ user: ServerUser, _ binaries: ServerBinaries, _ options: PrivatePostgres.Options,
    copying primary: Primary?
  ) async throws {
    let files = FileManager.default
    guard !files.fileExists(atPath: "\(data)/PG_VERSION") else { return }
    // The remains of an interrupted initdb.
    if files.fileExists(atPath: data) { try files.removeItem(atPath: data) }
    if let primary {
      try await keep(password: primary.password ?? "", for: user)
      // --write-recovery-conf makes it a standby.
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

  /// The address of a server already running here, once it accepts connections; nil if there is
  /// none.
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

  /// Removes the file of a crashed server.
  ///
  /// Its process ID may have been reused, and a new server would then refuse to start.
  @discardableResult
  func removeStaleFile() throws -> Bool {
    guard let postmaster, !isRunning(postmaster.processID) else { return false }
    try FileManager.default.removeItem(atPath: postmasterFile)
    return true
  }

  /// Signals the server's first process and waits until it ends.
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

  /// Whether the process exists and, where /proc can tell, is PostgreSQL and not a zombie.
  private func isRunning(_ processID: Int32) -> Bool {
    guard kill(processID, 0) == 0 || errno == EPERM else { return false }
    guard FileManager.default.fileExists(atPath: "/proc/self/cmdline") else { return true }
    let command = try? String(contentsOfFile: "/proc/\(processID)/cmdline", encoding: .utf8)
    return command?.contains("postgres") ?? false
  }
}

/// The exclusive right to start or initialize a server in a directory.
struct DirectoryLock: Sendable {
  private let file: FileHandle

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
  /// Waits for the right to start or initialize the server.
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

/// The fields of `postmaster.pid`, one per line, numbered as in PostgreSQL's miscadmin.h.
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

  /// The server's address, once it accepts connections.
  var address: ServerAddress? {
    guard status?.hasPrefix("ready") == true, let port, let socketDirectory else { return nil }
    return ServerAddress(
      socketDirectory: socketDirectory, port: port, isOnLoopback: listensOn != nil)
  }
}

extension PrivatePostgres {
  package struct Options: Sendable {
    /// Whether commits survive a crash of the machine; turning it off is faster and only suits
    /// tests.
    package var isDurable = true
    /// Whether the directory is removed after the server stops.
    package var isTemporary = false
    /// Whether the server also listens on a free port of 127.0.0.1, with a password.
    package var listensOnLoopback = false
    /// The directory of `initdb` and `postgres`; searched for if nil.
    package var binaries: String?
    package var settings: [String: String] = [:]

    package init() {}

    /// For tests: fast, not durable and removed afterwards.
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
        // Keeps data sent by applications out of the server's log.
        "log_parameter_max_length": "0",
        "log_parameter_max_length_on_error": "0",
        // Statistics of newly filled tables are guesses, and compiling a statement that seems
        // expensive takes a hundred times as long as running it.
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
