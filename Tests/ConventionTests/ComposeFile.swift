import Testing
import Yams

/// What the tests ask of `docker-compose.yml`.
struct ComposeFile: Decodable {
  struct Service: Decodable {
    struct Dependency: Decodable {
      var condition: String
    }

    struct Build: Decodable {
      var dockerfile: String
    }

    struct Healthcheck: Decodable {
      var test: [String]
    }

    var image: String
    var build: Build?
    var profiles: [String]?
    var command: [String]?
    var environment: [String: String]?
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
      case isReadOnly = "read_only"
      case droppedCapabilities = "cap_drop"
      case securityOptions = "security_opt"
      case healthcheck
      case dependencies = "depends_on"
    }

    /// Files of the repository, by where they are mounted.
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
  var secrets: [String: Secret]
  var volumes: [String: String?]

  /// The services that `docker compose up` starts with a profile, or without any.
  func started(with profile: String? = nil) -> Set<String> {
    Set(
      services.filter { _, service in
        service.profiles.map { names in profile.map(names.contains) ?? false } ?? true
      }.keys)
  }

  static func read(_ path: String = "docker-compose.yml") throws -> ComposeFile {
    try YAMLDecoder().decode(ComposeFile.self, from: try #require(Repository.text(of: path)))
  }
}
