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
