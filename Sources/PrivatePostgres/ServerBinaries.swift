import Foundation

/// Where PostgreSQL's server programs are.
struct ServerBinaries: Sendable {
  let path: String

  var initdb: String { "\(path)/initdb" }
  var postgres: String { "\(path)/postgres" }
  var control: String { "\(path)/pg_ctl" }
  var baseBackup: String { "\(path)/pg_basebackup" }

  /// Looks where they usually are: on the PATH, where pg_config says, and where Debian and Homebrew
  /// put them.
  static func find(preferring setting: String?) async throws -> ServerBinaries {
    var candidates: [String]
    if let setting {
      candidates = [setting]
    } else {
      candidates = (ProcessInfo.processInfo.environment["PATH"] ?? "").split(separator: ":").map(
        String.init)
      if let outcome = try? await Command.run(["pg_config", "--bindir"]), outcome.status == 0 {
        candidates.append(outcome.output)
      }
      candidates += versions(in: "/usr/lib/postgresql", binaries: "bin")
      candidates += versions(in: "/opt/homebrew/opt", binaries: "bin")
    }
    for candidate in candidates {
      let binaries = ServerBinaries(path: candidate)
      let files = FileManager.default
      if files.isExecutableFile(atPath: binaries.initdb),
        files.isExecutableFile(atPath: binaries.postgres)
      {
        // Of links to the two the others need not have any.
        let folder = URL(filePath: binaries.postgres).resolvingSymlinksInPath()
          .deletingLastPathComponent()
        return ServerBinaries(path: folder.path)
      }
    }
    throw PrivatePostgresError.binariesNotFound(searched: candidates)
  }

  /// The folders of several versions side by side, the newest first.
  private static func versions(in folder: String, binaries: String) -> [String] {
    let names = (try? FileManager.default.contentsOfDirectory(atPath: folder)) ?? []
    let versions = names.compactMap { name -> (version: Int, path: String)? in
      guard let version = Int(name.replacing("postgresql@", with: "")) else { return nil }
      return (version, "\(folder)/\(name)/\(binaries)")
    }
    return versions.sorted { $0.version > $1.version }.map(\.path)
  }
}
