import Foundation
import Logging
import PrivatePostgres

/// Two database servers: one that takes writes, and a standby that has every commit that was
/// acknowledged.
struct RehearsalServers: Sendable {
  let primary: PrivatePostgres
  let standby: PrivatePostgres
  /// Of whichever takes writes.
  let url: String

  static func start(in directory: URL, logger: Logger) async throws -> RehearsalServers {
    var options = PrivatePostgres.Options.temporary
    // A commit is told when the standby has it: what is lost then is a server, and no machine.
    options.settings["synchronous_commit"] = "on"
    let standbyOptions = options
    options.settings["synchronous_standby_names"] = "*"
    let primary = try await PrivatePostgres.start(
      in: directory.appending(path: "primary"), options: options, logger: logger)
    do {
      let standby = try await primary.startStandby(
        in: directory.appending(path: "standby"), options: standbyOptions, logger: logger)
      return RehearsalServers(
        primary: primary, standby: standby, url: await primary.uri(orOf: standby))
    } catch {
      await primary.stop()
      throw error
    }
  }

  /// Loses the primary, and makes the standby take its place.
  func failOver() async throws {
    try await primary.kill()
    try await standby.promote()
  }

  func stop() async {
    await standby.stop()
    await primary.stop()
  }
}
