import Foundation

@testable import Bootstrap
@testable import Development
@testable import Intake
@testable import tenure

/// A PgBouncer that pools transactions, in front of a server on this machine.
///
/// It refuses to run as root, and runs as PostgreSQL's user then.
final class PgBouncer: Sendable {
  private static let port = 6432
  private static let user = "postgres"
  /// Fewer than clients, so that they have to share.
  private static let serverConnections = 3
  private static let startLimit: Duration = .seconds(120)

  /// Debian's path, which is not in every PATH.
  private static let program = ["/usr/sbin/pgbouncer", "/usr/local/bin/pgbouncer"]
    .first(where: FileManager.default.isExecutableFile)

  /// Whether there has to be one: a Debian has the package, and then its absence is a failure.
  static var isToBeHad: Bool {
    let release = (try? String(contentsOfFile: "/etc/os-release", encoding: .utf8)) ?? ""
    return program != nil || release.split(separator: "\n").contains("ID=debian")
  }

  /// Leads through it.
  let uri: String
  private let process: ChildProcess

  struct DidNotStart: Error {
    let log: String
  }

  /// Starts one.
  ///
  /// - Parameters:
  ///   - serverURI: Of a database, through a Unix socket.
  ///   - directory: A new one.
  /// - Throws: Why it did not start.
  init(before serverURI: String, in directory: URL) async throws {
    let path = directory.path(percentEncoded: false)
    try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
    guard let parts = URLComponents(string: serverURI),
      let socket = parts.queryItems?.first(where: { $0.name == "host" })?.value
    else { throw DidNotStart(log: "\(serverURI) names no socket") }
    let database = parts.path.dropFirst()
    let file = directory.appending(path: "pgbouncer.ini")
    try """
    [databases]
    \(database) = host=\(socket) port=5432 user=\(Self.user)
    [pgbouncer]
    listen_addr =
    listen_port = \(Self.port)
    unix_socket_dir = \(path)
    auth_type = any
    pool_mode = transaction
    default_pool_size = \(Self.serverConnections)
    max_client_conn = 100
    """.write(to: file, atomically: true, encoding: .utf8)
    var arguments = [file.path(percentEncoded: false)]
    if geteuid() == 0 {
      arguments = ["--user=\(Self.user)"] + arguments
      try FileManager.default.setAttributes([.ownerAccountName: Self.user], ofItemAtPath: path)
    }
    guard let program = Self.program else {
      throw DidNotStart(log: "the package pgbouncer is not installed")
    }
    process = try ChildProcess(URL(filePath: program), arguments, in: directory)
    uri = "postgresql:///\(database)?host=\(path)&port=\(Self.port)&user=\(Self.user)"
    let end = ContinuousClock.now + Self.startLimit
    while !FileManager.default.fileExists(atPath: "\(path)/.s.PGSQL.\(Self.port)") {
      guard process.isRunning, ContinuousClock.now < end else {
        await process.kill()
        throw DidNotStart(log: process.errors)
      }
      try await Task.sleep(for: .milliseconds(10))
    }
  }

  func stop() async { await process.stop() }
}
