import Foundation
import Testing
import Yams

/// `docker-compose.yml` and what belongs to it fit together, as far as it can be seen without an
/// engine.
struct ContainerTests {
  /// A tag that names one version, or one day.
  private static func isPinned(_ image: String) -> Bool {
    image.contains(/^[\w\/-]+:[\w.-]*(?:\d+\.\d+|\d\d\d\d\d\d\d\d)[\w.-]*$/)
  }

  @Test func everyImageIsPinned() throws {
    for (name, service) in try ComposeFile.read().services {
      #expect(
        service.build.map { _ in service.image == "tenure" } ?? Self.isPinned(service.image),
        "\(name)")
    }
    let dockerfile = try #require(Repository.text(of: ".docker/Dockerfile"))
    let bases = dockerfile.matches(of: /FROM (\S+)/).map { String($0.1) }
    #expect(bases.count == 2)
    for base in bases { #expect(Self.isPinned(base), "\(base)") }
  }

  @Test(arguments: [
    ("postgres:17.7-bookworm", true), ("debian:bookworm-20251229-slim", true),
    ("a/b:v3.5.0", true), ("postgres:17", false), ("postgres", false), ("a/b:latest", false),
  ])
  func aLooseTagIsFound(image: String, isPinned: Bool) {
    #expect(Self.isPinned(image) == isPinned)
  }

  @Test func everySecretIsAFileThatTheFirstLinesMake() throws {
    let file = try ComposeFile.read()
    let head = try #require(Repository.text(of: "docker-compose.yml"))
      .split(separator: "\n").prefix { $0.hasPrefix("#") }.joined(separator: "\n")
    #expect(Repository.text(of: ".gitignore")?.contains("\n.secrets/\n") == true)
    for (name, secret) in file.secrets {
      #expect(secret.file == ".secrets/\(name)")
      #expect(head.contains(name), "no line makes \(name)")
      #expect(file.services.values.contains { $0.secrets?.contains(name) == true }, "\(name)")
    }
    for (name, service) in file.services {
      for secret in service.secrets ?? [] { #expect(file.secrets[secret] != nil, "\(secret)") }
      for (setting, value) in service.environment ?? [:] {
        let isSecret = setting.contains(/PASSWORD|SECRET|_KEYS?\b|_URL\b/)
        #expect(!isSecret, "\(name): \(setting) would be told by `docker inspect`")
        guard setting.hasSuffix("_FILE") else { continue }
        let mounted = (service.secrets ?? []).map { "/run/secrets/\($0)" }
        #expect(mounted.contains(value), "\(name): \(setting)")
      }
    }
  }

  @Test func everyPortIsOnTheLoopbackAddress() throws {
    let ports = try ComposeFile.read().services.values.flatMap { $0.ports ?? [] }
    #expect(ports.count == 3)
    for port in ports { #expect(port.hasPrefix("127.0.0.1:"), "\(port)") }
  }

  @Test func everySettingIsOne() throws {
    let article = try #require(Repository.text(of: "Sources/HTTPAPI/HTTPAPI.docc/Settings.md"))
    for (name, service) in try ComposeFile.read().services {
      for setting in (service.environment ?? [:]).keys
      where setting.hasPrefix("TENURE_") || setting.hasPrefix("DATABASE_") {
        let setting = setting.hasSuffix("_FILE") ? String(setting.dropLast(5)) : setting
        #expect(article.contains("`\(setting)`"), "\(name): \(setting)")
      }
    }
  }

  @Test func everyMountIsThere() throws {
    let file = try ComposeFile.read()
    for (name, service) in file.services {
      for mount in service.mountedFiles {
        #expect(Repository.files.contains(mount.source), "\(name): \(mount.source)")
        #expect(mount.isReadOnly, "\(name): \(mount.source)")
      }
      for volume in service.namedVolumes {
        #expect(file.volumes.keys.contains(volume), "\(name): \(volume)")
      }
      if let build = service.build { #expect(Repository.files.contains(build.dockerfile)) }
    }
    let used = Set(file.services.values.flatMap(\.namedVolumes))
    #expect(used == Set(file.volumes.keys))
  }

  @Test func everyServiceIsConfinedAndWatched() throws {
    for (name, service) in try ComposeFile.read().services {
      #expect(service.droppedCapabilities == ["ALL"], "\(name)")
      #expect(service.securityOptions == ["no-new-privileges:true"], "\(name)")
      // PostgreSQL's image makes its sockets and its user's files as root.
      #expect(service.isReadOnly == true || name == "postgres", "\(name)")
      // What runs once is watched by those who wait for its end.
      #expect((service.healthcheck == nil) == (service.restart == "no"), "\(name)")
    }
    let dockerfile = try #require(Repository.text(of: ".docker/Dockerfile"))
    #expect(dockerfile.contains(/\nUSER [1-9]\d*\n/))
  }

  @Test func profilesAddToWhatIsAlwaysThere() throws {
    let file = try ComposeFile.read()
    #expect(file.started() == ["postgres", "migrate", "serve", "work"])
    #expect(file.started(with: "monitoring") == file.started().union(["prometheus", "grafana"]))
    for profile in [nil, "monitoring"] {
      let started = file.started(with: profile)
      for name in started {
        for (other, dependency) in file.services[name]?.dependencies ?? [:] {
          #expect(started.contains(other), "\(name) waits for \(other)")
          let runsOnce = file.services[other]?.restart == "no"
          let condition = runsOnce ? "service_completed_successfully" : "service_healthy"
          #expect(dependency.condition == condition, "\(name) waits for \(other)")
        }
      }
    }
  }

  /// Prometheus finds its rules, its key and its targets, and Grafana the dashboard.
  @Test func monitoringFitsTogether() throws {
    let services = try ComposeFile.read().services
    let prometheus = try #require(services["prometheus"])
    let scrape = try #require(Repository.text(of: ".docker/prometheus.yml"))
    let rules = prometheus.mountedFiles.map(\.target).filter { $0.hasSuffix("-alerts.yaml") }
    #expect(rules == ["/etc/prometheus/tenure-alerts.yaml"])
    #expect(scrape.contains("rule_files: [tenure-alerts.yaml]"))
    #expect(scrape.contains("credentials_file: /run/secrets/metrics_key"))
    #expect(prometheus.secrets == ["metrics_key"])
    #expect(scrape.contains("targets: [\"serve:8080\"]"))
    let port = try #require(services["work"]?.environment?["TENURE_METRICS_PORT"])
    #expect(scrape.contains("names: [work], type: A, port: \(port)"))

    let grafana = try #require(services["grafana"])
    let home = grafana.environment?["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    #expect(grafana.mountedFiles.map(\.target).contains(try #require(home)))
    let providers = try #require(Repository.text(of: ".docker/grafana-dashboards.yml"))
    #expect(providers.contains("path: /etc/grafana/dashboards "))
    let source = try #require(Repository.text(of: ".docker/grafana-datasource.yml"))
    #expect(source.contains("url: http://prometheus:9090\n"))
  }
}
