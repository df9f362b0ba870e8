import Foundation

/// The starting of the server.
enum ServerProcess {
  /// Somebody else may take a port between our choosing and the server's using it.
  private static let portAttempts = 10

  /// After a crash the old server's children hold its shared memory for a moment, and the new one
  /// refuses to start.
  private static let leftoverAttempts = 50

  /// Starts the server, at an address or a free one, and waits until it accepts connections.
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

  /// Any port will do for a socket in a folder of its own; on the loopback address it has to be
  /// free.
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

  /// Waits for the server to say that it is ready; nil when it has ended instead.
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
