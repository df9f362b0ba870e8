import Foundation

/// The server of this process's scratch databases.
///
/// `TENURE_TEST_DATABASE_URL` names a superuser's database on the server under test; without
/// it each process starts a private server. `TENURE_TEST_CITUS_URL` names a superuser's database
/// on the coordinator of a Citus instead, in which Citus knows its nodes: see ``ScratchCitus``.
package struct ScratchPlace: Sendable {
  /// The connection URI of a server that exists already.
  package let server: String?
  /// Whether the schema of every scratch database is distributed.
  package let isDistributed: Bool
  /// The prefix of database names: several processes may use a server.
  let prefix: String

  package init(environment: [String: String]) {
    let citus = environment["TENURE_TEST_CITUS_URL"].flatMap { $0.isEmpty ? nil : $0 }
    isDistributed = citus != nil
    server = citus ?? environment["TENURE_TEST_DATABASE_URL"].flatMap { $0.isEmpty ? nil : $0 }
    prefix =
      server == nil ? "scratch_" : "scratch_\(ProcessInfo.processInfo.processIdentifier)_"
  }

  /// The view of the server's connections: on a Citus, those of all nodes, where locks are waited
  /// for.
  package var activity: String { isDistributed ? "citus_stat_activity" : "pg_stat_activity" }
  /// A role with the privileges of `tenure_program`; on a Citus a login, which its nodes need.
  package var program: String { isDistributed ? "tenure_server" : "tenure_program" }
  /// A role with the privileges of `tenure_reader`; on a Citus a login, which its nodes need.
  package var reader: String { isDistributed ? "tenure_analyst" : "tenure_reader" }

  package static let environment = ScratchPlace(environment: ProcessInfo.processInfo.environment)

  var template: String { "\(prefix)template" }

  /// The connection URI of another database of a server.
  package static func uri(_ server: String, database: String) -> String {
    guard let (start, end) = path(of: server) else { return server }
    return server[..<start] + "/\(database)" + server[end...]
  }

  /// The database that a connection URI names.
  package static func database(of uri: String) -> String? {
    guard let (start, end) = path(of: uri), start < end else { return nil }
    return String(uri[start..<end].dropFirst())
  }

  /// From the slash before the database's name to its end.
  private static func path(of uri: String) -> (start: String.Index, end: String.Index)? {
    guard let scheme = uri.range(of: "://") else { return nil }
    let end = uri[scheme.upperBound...].firstIndex(of: "?") ?? uri.endIndex
    let start = uri[scheme.upperBound..<end].firstIndex(of: "/") ?? end
    return (start, end)
  }
}
