/// Why the schema is not, or can't be, distributed with Citus.
package enum DistributionError: Error, Hashable, Sendable, CustomStringConvertible {
  /// The server does not have the extension.
  case notInstalled
  /// The database does not have it.
  case notCreated
  /// Citus does not answer; with what the server says.
  case notLoaded(String)
  /// There are other nodes, and the coordinator is none of them.
  case coordinatorUnknown
  /// Citus does not know these roles in this database.
  case unknownRoles([String])
  /// The table's comment does not say where its rows are.
  case unsaid(table: String)
  /// Somebody placed the table otherwise.
  case otherwise(table: String, placed: TableDistribution, wanted: TableDistribution)
  /// No table is distributed.
  case notBegun
  /// Some tables are distributed, and these are not.
  case incomplete(tables: [String])

  package var description: String {
    switch self {
    case .notInstalled:
      "The server has no extension `citus`: install Citus on it and on every other node."
    case .notCreated:
      "The database has no extension `citus`: let a superuser say CREATE EXTENSION citus in it, "
        + "here and on every other node."
    case .notLoaded(let message):
      "Citus does not answer (\(message)): put citus first into shared_preload_libraries and start "
        + "the server again."
    case .coordinatorUnknown:
      "The other nodes do not know the coordinator: say "
        + "SELECT citus_set_coordinator_host('its host name') on it."
    case .unknownRoles(let roles):
      "Citus does not know the roles \(roles.joined(separator: ", ")) in this database: let a "
        + "superuser make a function depend on them there, as in the article on growing."
    case .unsaid(let table):
      "The comment of the table \(table) does not say how it is distributed."
    case .otherwise(let table, let placed, let wanted):
      "The table \(table) is distributed otherwise: \(placed) instead of \(wanted). "
        + "SELECT undistribute_table('tenure.\(table)') takes that back."
    case .notBegun: "No table is distributed: run `tenure migrate --distributed`."
    case .incomplete(let tables):
      "Not all tables are distributed (\(tables.joined(separator: ", "))): "
        + "run `tenure migrate --distributed`."
    }
  }
}
