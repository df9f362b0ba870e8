import Testing
import Yams

/// The parts of `docker-compose.yml`, and of the files that override it, that the tests check.
struct ComposeFile: Decodable {
  struct Service: Decodable {
    struct Dependency: Decodable {
      var condition: String
    }

    struct Build: Decodable {
      var dockerfile: String
      var target: String
    }

    struct Healthcheck: Decodable {
      var test: [String]
      var interval: String
    }

    var image: String?
    var build: Build?
    var profiles: [String]?
    var command: [String]?
    var workingDirectory: String?
    var environment: [String: String]?
    /// Overridden by `environment`.
    var environmentFiles: [String]?
    var secrets: [String]?
    /// `SOURCE:TARGET` or `SOURCE:TARGET:ro`.
    var volumes: [String]?
    var ports: [String]?
    var restart: String?
    var isReadOnly: Bool?
    var droppedCapabilities: [String]?
    var securityOptions: [String]?
    var healthcheck: Healthcheck?
    var dependencies: [String: Dependency]?

    enum CodingKeys: String, CodingKey {
      case image, build, profiles, command, environment, secrets, volumes, ports, restart
      case workingDirectory = "working_dir"
      case environmentFiles = "env_file"
      case isReadOnly = "read_only"
      case droppedCapabilities = "cap_drop"
      case securityOptions = "security_opt"
      case healthcheck
      case dependencies = "depends_on"
    }

    /// Files and directories next to `docker-compose.yml`, with their mount points.
    var mountedFiles: [(source: String, target: String, isReadOnly: Bool)] {
      (volumes ?? []).filter { $0.hasPrefix("./") }.map { volume in
        let parts = volume.split(separator: ":").map(String.init)
        return (String(parts[0].dropFirst(2)), parts[1], parts.last == "ro")
      }
    }

    var namedVolumes: [String] {
      (volumes ?? []).filter { !$0.hasPrefix("./") }
        .map { String($0.prefix { $0 != ":" }) }
    }
  }

  struct Secret: Decodable {
    var file: String
  }

  var services: [String: Service]
  var secrets: [String: Secret]?
  var volumes: [String: String?]?

  /// The services that `docker compose up` starts with these profiles.
  func started(with profiles: Set<String>) -> Set<String> {
    Set(services.filter { $0.value.profiles.map { !profiles.isDisjoint(with: $0) } ?? true }.keys)
  }

  /// Applies an override file as `docker compose` does, as far as ours need it.
  func changed(by other: ComposeFile) -> ComposeFile {
    var file = self
    for (name, change) in other.services {
      file.services[name] = file.services[name]?.changed(by: change) ?? change
    }
    file.secrets?.merge(other.secrets ?? [:]) { $1 }
    file.volumes?.merge(other.volumes ?? [:]) { $1 }
    return file
  }

  static func read(_ path: String) throws -> ComposeFile {
    try YAMLDecoder().decode(ComposeFile.self, from: try #require(Repository.text(of: path)))
  }
}

/// The forms in which the programs run in containers.
enum ComposeForm: CaseIterable, Sendable {
  case postgres
  case citus

  var file: ComposeFile {
    get throws {
      let file = try ComposeFile.read("docker-compose.yml")
      return switch self {
      case .postgres: file
      case .citus: file.changed(by: try ComposeFile.read(".docker/citus.yml"))
      }
    }
  }

  /// The services of the profile `production`.
  var services: Set<String> {
    let programs: Set = ["postgres", "migrate", "serve", "work"]
    return switch self {
    case .postgres: programs
    case .citus: programs.union(["citus-1", "citus-2", "citus-nodes"])
    }
  }
}

extension ComposeFile.Service {
  fileprivate func changed(by other: Self) -> Self {
    var service = self
    service.image = other.image ?? image
    service.command = other.command ?? command
    service.dependencies = (dependencies ?? [:]).merging(other.dependencies ?? [:]) { $1 }
    // A mount takes the place of another at the same path.
    func target(_ volume: String) -> Substring? { volume.split(separator: ":").dropFirst().first }
    let changes = other.volumes ?? []
    let kept = (volumes ?? []).filter { volume in
      !changes.contains { target($0) == target(volume) }
    }
    service.volumes = kept + changes
    return service
  }
}
