package import Foundation

/// A second server that follows this one, for whoever wants to see a failover.
extension PrivatePostgres {
  /// Copies this server into a directory, and starts the copy as its standby.
  ///
  /// - Parameters:
  ///   - path: where everything of it is kept; new.
  ///   - options: how it is run; limits as of connections may be no lower than this server's.
  /// - Returns: the standby, accepting connections.
  /// - Throws: ``PrivatePostgresError``.
  package func startStandby(in path: URL, options: Options) async throws -> PrivatePostgres {
    let directory = try ServerDirectory(path)
    let user = try await ServerUser.choose(for: directory)
    try await Command.succeed(
      user.running(
        [
          "\(binaries.path)/pg_basebackup", "--pgdata=\(directory.data)", "--dbname=\(uri())",
          "--write-recovery-conf", "--checkpoint=fast",
        ] + (options.isDurable ? [] : ["--no-sync"])))
    return try await Self.start(in: path, options: options)
  }
}
