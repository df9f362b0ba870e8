package import Secrets

extension ConnectionPool {
  package struct Configuration: Sendable {
    /// A libpq URI or `key=value` string, with any number of hosts and `target_session_attrs`.
    package var uri: Secret<String>
    /// The address for LISTEN if ``uri`` leads to a PgBouncer, which does not support LISTEN.
    package var listenURI: Secret<String>?
    /// The maximum number of connections, without those of listeners; a few are faster than many,
    /// because requests share them, and of several, transactions leave one to other statements.
    package var connectionLimit = 5
    /// How long a request waits for a connection, reconnecting included, before
    /// ``PostgresError/Code/poolTimeout``.
    package var acquireTimeout = Duration.seconds(10)
    /// How long a request waits while no connection can be made and none responds, before
    /// ``PostgresError/Code/connectionFailed``; the caller can then try another server.
    package var outageTimeout = Duration.seconds(2)
    /// The server's time limit for one request, unless the request has its own.
    package var statementDeadline = Duration.seconds(30)
    /// How long a statement of a transaction waits for a lock before ``SQLState/lockNotAvailable``,
    /// in whole milliseconds; longer than ``idleTransactionTimeout``, to outlast a frozen process's
    /// lock.
    package var lockTimeout = Duration.seconds(15)
    /// How long a transaction may be idle before the server ends it, because a frozen process's
    /// locks block others; in whole milliseconds.
    package var idleTransactionTimeout = Duration.seconds(10)
    /// How long to wait for one host if the URI has no `connect_timeout`; in whole seconds.
    package var connectTimeout = Duration.seconds(5)
    /// Off for a PgBouncer in transaction mode; statements are then sent unnamed each time.
    package var usesPreparedStatements = true
    /// The maximum number of prepared statements per connection; each uses memory on the server.
    package var preparedStatementLimit = 256
    /// The name shown in `pg_stat_activity`, unless the URI has one.
    package var applicationName = "tenure"
    package var idleHealthCheckInterval = Duration.seconds(10)
    /// How long a primary may be silent, if the URI lists several hosts, before the pool checks
    /// whether another was promoted; a frozen one would block requests until their deadline.
    package var suspicionAfter = Duration.seconds(3)

    package init(uri: Secret<String>) { self.uri = uri }

    /// Settings sent with each BEGIN; a PgBouncer in transaction mode allows no longer-lived ones.
    var transactionSettings: [SQL] {
      [
        ("lock_timeout", lockTimeout),
        ("idle_in_transaction_session_timeout", idleTransactionTimeout),
      ]
      .map { name, timeout in
        SQL(unescaped: "SET LOCAL \(name) = \(max(1, Int(timeout / .milliseconds(1))))")
      }
    }

    /// The parameters for libpq; later ones win, so those before the URI are defaults.
    func parameters(uri: Secret<String>) -> [(name: String, value: String)] {
      [
        ("connect_timeout", String(max(2, connectTimeout.components.seconds))),
        // A lost machine does not report that it is gone. These limits bound how soon the system
        // drops its connections, with and without unacknowledged data.
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
