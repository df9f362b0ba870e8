import Foundation

enum ServerProcess {
  /// Another process may take a port after it was chosen.
  private static let portAttempts = 10

  /// After a crash, the old server's children hold its shared memory briefly, and a new server
  /// refuses to start.
  private static let leftoverAttempts = 50

  /// Starts the server, at the given address or a free one, and waits until it accepts connections.
  static func start(
    _ binaries: ServerBinaries, _ directory: ServerDirectory, _ user: ServerUser,
    _ options: PrivatePostgres.Options, at address: ServerAddress? = nil
  ) async throws -> ServerAddress {
    var portFailures = 0
    var leftovers = 0
    while true {
      try directory.removeStaleFile()
      let wanted = address ?? newAddress(directory, options)
      let process = try launch(binaries, directory, user, options.allSettings(wanted))
      if let ready = try await waitUntilReady(process, directory) { return ready }
      let log = directory.logTail
      if log.contains("shared memory block"), leftovers < leftoverAttempts {
        leftovers += 1
        try await Task.sleep(for: .milliseconds(100))
      } else if log.contains("could not bind"), address == nil, portFailures < portAttempts {
        portFailures += 1
      } else {
        throw PrivatePostgresError.didNotStart(log)
      }
    }
  }

  /// Any port works for a socket in its own folder; on the loopback address, it must be free.
  private static func newAddress(
    _ directory: ServerDirectory, _ options: PrivatePostgres.Options
  ) -> ServerAddress {
    ServerAddress(
      socketDirectory: directory.socketDirectory,
      port: options.listensOnLoopback ? .random(in: 20_000...32_000) : 5432,
      isOnLoopback: options.listensOnLoopback)
  }

  private static func launch(
    _ binaries: ServerBinaries, _ directory: ServerDirectory, _ user: ServerUser,
    _ settings: [String: String]
  ) throws -> Process {
    _ = FileManager.default.createFile(atPath: directory.log, contents: nil)
    let log = try FileHandle(forWritingTo: URL(filePath: directory.log))
    defer { try? log.close() }
    let process = Process()
    process.executableURL = URL(filePath: "/usr/bin/env")
    process.arguments =
      Command.inSession
      + user.running(
        [binaries.postgres, "-D", directory.data]
          + settings.sorted { $0.key < $1.key }.flatMap { ["-c", "\($0)=\($1)"] })
    process.currentDirectoryURL = URL(filePath: "/")
    process.standardInput = FileHandle.nullDevice
    process.standardOutput = log
    process.standardError = log
    try process.run()
    return process
  }

  /// Waits until the server is ready; nil if its process ended.
  private static func waitUntilReady(
    _ process: Process, _ directory: ServerDirectory
  ) async throws -> ServerAddress? {
    let end = ContinuousClock.now + PrivatePostgres.startLimit
    while process.isRunning {
      if let address = directory.postmaster?.address { return address }
      guard ContinuousClock.now < end else {
        throw PrivatePostgresError.didNotStart(directory.logTail)
      }
      try await Task.sleep(for: PrivatePostgres.pollInterval)
    }
    return nil
  }
}

/// The user that runs the server, because PostgreSQL refuses to run as root.
enum ServerUser: Sendable {
  case ourselves
  /// An unprivileged user, with the command prefix that switches to it.
  case other(name: String, command: [String])

  /// The command line that runs a program as this user.
  func running(_ arguments: [String]) -> [String] {
    switch self {
    case .ourselves: arguments
    case .other(_, let command): command + arguments
    }
  }

  static func choose(for directory: ServerDirectory) async throws -> ServerUser {
    guard geteuid() == 0 else { return .ourselves }
    for name in ["postgres", "nobody"] {
      guard try await Command.run(["id", "-u", name]).status == 0 else { continue }
      return try await choose(name, for: directory)
    }
    throw PrivatePostgresError.noUnprivilegedUser
  }

  /// Finds a command with which the user can reach the directory.
  ///
  /// Other users can't enter a directory in root's home. The server then gets the capability
  /// CAP_DAC_OVERRIDE, which PostgreSQL permits: it only checks the user ID.
  private static func choose(
    _ name: String, for directory: ServerDirectory
  ) async throws -> ServerUser {
    let group = try await Command.succeed(["id", "-gn", name])
    let setpriv = ["setpriv", "--reuid=\(name)", "--regid=\(group)", "--init-groups"]
    let override = ["--inh-caps=+dac_override", "--ambient-caps=+dac_override"]
    let ways = [setpriv, setpriv + override, ["runuser", "-u", name, "--"]]
    try await Command.succeed([
      "chown", "\(name):\(group)", directory.path, directory.socketDirectory,
    ])
    for command in ways {
      let test = command + ["test", "-w", directory.path]
      if try await Command.run(test).status == 0 { return .other(name: name, command: command) }
    }
    throw PrivatePostgresError.directoryUnreachable(path: directory.path, user: name)
  }
}

enum Command {
  struct Outcome: Sendable {
    let status: Int32
    let output: String
  }

  /// The prefix that runs a program in its own session, where the terminal's Ctrl-C does not reach
  /// it, if available.
  static var inSession: [String] {
    FileManager.default.isExecutableFile(atPath: "/usr/bin/setsid") ? ["setsid", "--wait"] : []
  }

  /// Runs a program in the root directory, because its user may not have access to ours.
  ///
  /// The output is read at the end, so it must fit a pipe's buffer of 64 KB.
  static func run(_ arguments: [String]) async throws -> Outcome {
    let process = Process()
    process.executableURL = URL(filePath: "/usr/bin/env")
    process.arguments = arguments
    process.currentDirectoryURL = URL(filePath: "/")
    let pipe = Pipe()
    process.standardInput = FileHandle.nullDevice
    process.standardOutput = pipe
    process.standardError = pipe
    let status = try await withCheckedThrowingContinuation { continuation in
      process.terminationHandler = { continuation.resume(returning: $0.terminationStatus) }
      do {
        try process.run()
      } catch {
        process.terminationHandler = nil
        continuation.resume(throwing: error)
      }
    }
    let output = try pipe.fileHandleForReading.readToEnd() ?? Data()
    return Outcome(
      status: status,
      output: String(decoding: output, as: UTF8.self)
        .trimmingCharacters(in: .whitespacesAndNewlines))
  }

  /// Runs a program and returns its output; fails on a non-zero exit status.
  @discardableResult
  static func succeed(_ arguments: [String]) async throws -> String {
    let outcome = try await run(arguments)
    guard outcome.status == 0 else {
      throw PrivatePostgresError.commandFailed(
        command: arguments.joined(separator: " "), output: outcome.output)
    }
    return outcome.output
  }

  static func exists(_ name: String) async -> Bool {
    (try? await run(["sh", "-c", "command -v \"$0\"", name]).status) == 0
  }
}

struct ServerBinaries: Sendable {
  let path: String

  var initdb: String { "\(path)/initdb" }
  var postgres: String { "\(path)/postgres" }
  var control: String { "\(path)/pg_ctl" }
  var baseBackup: String { "\(path)/pg_basebackup" }

  /// Searches the PATH, pg_config's directory and the locations of Debian and Homebrew.
  static func find(preferring setting: String?) async throws -> ServerBinaries {
    var candidates: [String]
    if let setting {
      candidates = [setting]
    } else {
      candidates = (ProcessInfo.processInfo.environment["PATH"] ?? "").split(separator: ":").map(
        String.init)
      if let outcome = try? await Command.run(["pg_config", "--bindir"]), outcome.status == 0 {
        candidates.append(outcome.output)
      }
      candidates += versions(in: "/usr/lib/postgresql", binaries: "bin")
      candidates += versions(in: "/opt/homebrew/opt", binaries: "bin")
    }
    for candidate in candidates {
      let binaries = ServerBinaries(path: candidate)
      let files = FileManager.default
      if files.isExecutableFile(atPath: binaries.initdb),
        files.isExecutableFile(atPath: binaries.postgres)
      {
        // The PATH may link to these two programs only, so follow the link.
        let folder = URL(filePath: binaries.postgres).resolvingSymlinksInPath()
          .deletingLastPathComponent()
        return ServerBinaries(path: folder.path)
      }
    }
    throw PrivatePostgresError.binariesNotFound(searched: candidates)
  }

  /// The folders of all versions, newest first.
  private static func versions(in folder: String, binaries: String) -> [String] {
    let names = (try? FileManager.default.contentsOfDirectory(atPath: folder)) ?? []
    let versions = names.compactMap { name -> (version: Int, path: String)? in
      guard let version = Int(name.replacing("postgresql@", with: "")) else { return nil }
      return (version, "\(folder)/\(name)/\(binaries)")
    }
    return versions.sorted { $0.version > $1.version }.map(\.path)
  }
}
