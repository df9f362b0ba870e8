import Foundation

/// As whom the server runs: PostgreSQL refuses to run as root.
enum ServerUser: Sendable {
  case ourselves
  /// Somebody unprivileged, by a command that changes to him in front of the program's own.
  case other(name: String, command: [String])

  /// The arguments that run a program as this user.
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

  /// Finds a way in which the user reaches the directory.
  ///
  /// A directory inside of root's home cannot be entered by others. Then the server is let past
  /// that one obstacle by a capability (CAP_DAC_OVERRIDE), since its own check is only for the
  /// user's number.
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
