package import Secrets

extension ConnectionPool {
  /// How to reach the server, and the pool's limits.
  package struct Configuration: Sendable {
    /// A libpq connection URI or `key=value` string; several hosts and `target_session_attrs` work.
    package var uri: Secret<String>
    /// Where to listen, when ``uri`` leads to a PgBouncer, which cannot LISTEN.
    package var listenURI: Secret<String>?
    /// The most connections kept, those of listeners apart.
    ///
    /// Few are faster than many: requests share them. Where there are several, transactions leave
    /// one to the statements outside of them.
    package var connectionLimit = 5
    /// How long a request waits for a connection, reconnecting included, before
    /// ``PostgresError/Code/poolTimeout``.
    package var acquireTimeout = Duration.seconds(10)
    /// How long a request waits while no connection can be made and none answers, before
    /// ``PostgresError/Code/connectionFailed``: a caller that hears so can try another server.
    package var outageTimeout = Duration.seconds(2)
    /// How long the server has for the statements of one request, unless the request says
    /// otherwise.
    package var statementDeadline = Duration.seconds(30)
    /// How long a statement of a transaction waits for a lock before it fails with
    /// ``SQLState/lockNotAvailable``; whole milliseconds.
    ///
    /// Longer than ``idleTransactionTimeout``, so that whoever waits for a frozen process outlasts
    /// it.
    package var lockTimeout = Duration.seconds(15)
    /// How long a transaction may send nothing before the server ends it, for the locks of a frozen
    /// process are in everybody's way; whole milliseconds.
    package var idleTransactionTimeout = Duration.seconds(10)
    /// How long one host has to accept a connection, where the URI has no `connect_timeout`; whole
    /// seconds.
    package var connectTimeout = Duration.seconds(5)
    /// Off behind a PgBouncer that pools transactions: statements are then sent unnamed each time.
    package var usesPreparedStatements = true
    /// The most prepared statements per connection; each holds memory on the server.
    package var preparedStatementLimit = 256
    /// The name that `pg_stat_activity` shows, unless the URI has one.
    package var applicationName = "tenure"
    /// How often an idle connection is asked whether it still works.
    package var idleHealthCheckInterval = Duration.seconds(10)
    /// How long a primary may be silent before it is looked whether another server has taken its
    /// place, where the URI can tell: a frozen one would be waited for until the deadline.
    package var suspicionAfter = Duration.seconds(3)

    package init(uri: Secret<String>) {
      self.uri = uri
    }

    /// What is set for each transaction, together with BEGIN: a PgBouncer that pools transactions
    /// allows no setting that lasts longer.
    var transactionSettings: [SQL] {
      [
        ("lock_timeout", lockTimeout),
        ("idle_in_transaction_session_timeout", idleTransactionTimeout),
      ]
      .map { name, timeout in
        SQL(unescaped: "SET LOCAL \(name) = \(max(1, Int(timeout / .milliseconds(1))))")
      }
    }

    /// The parameters for libpq; later ones win, so what stands before the URI is a default.
    func parameters(uri: Secret<String>) -> [(name: String, value: String)] {
      [
        ("connect_timeout", String(max(2, connectTimeout.components.seconds))),
        // A machine that is gone says nothing, not even that it is: this is how soon the system
        // gives its connections up, after something was sent in vain, or without.
        ("tcp_user_timeout", "10000"),
        ("keepalives_idle", "10"),
        ("keepalives_interval", "5"),
        ("keepalives_count", "3"),
        ("fallback_application_name", applicationName),
        ("dbname", uri.revealed),
        ("client_encoding", "UTF8"),
      ]
    }
  }
}
