extension PrivatePostgres {
  /// How the server is run.
  package struct Options: Sendable {
    /// Whether commits survive a crash of the machine; off is faster and good for tests only.
    package var isDurable = true
    /// Whether the directory is removed when the server has been stopped.
    package var isTemporary = false
    /// Whether the server also listens on 127.0.0.1, on a free port and with a password.
    package var listensOnLoopback = false
    /// Where `initdb` and `postgres` are; otherwise they are looked for.
    package var binaries: String?
    /// Settings of the server besides those that ``PrivatePostgres`` makes.
    package var settings: [String: String] = [:]

    package init() {}

    /// For tests: fast, forgetful and gone afterwards.
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
        // Nothing that an application sends is to be found in the server's log.
        "log_parameter_max_length": "0",
        "log_parameter_max_length_on_error": "0",
        // Statistics of tables just filled are guesses, and a statement that looks dear is compiled
        // for a hundred times as long as it runs.
        "jit": "off",
      ]
      if !isDurable {
        all["fsync"] = "off"
        all["synchronous_commit"] = "off"
        all["full_page_writes"] = "off"
      }
      return all.merging(settings) { _, given in given }
    }
  }
}
