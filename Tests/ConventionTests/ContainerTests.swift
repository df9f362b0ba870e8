import Foundation
import Testing
import Yams

/// `docker-compose.yml` and what belongs to it fit together in every form, as far as it can be seen
/// without an engine.
struct ContainerTests {
  /// A tag that names one version, or one day.
  private static func isPinned(_ image: String) -> Bool {
    image.contains(/^[\w\/-]+:[\w.-]*(?:\d+\.\d+|\d\d\d\d\d\d\d\d)[\w.-]*$/)
  }

  /// The first lines of `docker-compose.yml`, its instructions.
  private static var head: String {
    get throws {
      try #require(Repository.text(of: "docker-compose.yml"))
        .split(separator: "\n").prefix { $0.hasPrefix("#") }.joined(separator: "\n")
    }
  }

  /// The stages of the Dockerfile; a base is an image or another stage.
  private static var stages: [(base: String, name: String, user: String?)] {
    get throws {
      try #require(Repository.text(of: ".docker/Dockerfile"))
        .split(separator: "\nFROM ").dropFirst().map { stage in
          let head = try #require(stage.prefixMatch(of: /(\S+) AS (\S+)\n/))
          let user = stage.matches(of: /\nUSER (\S+)/).last
          return (String(head.1), String(head.2), user.map { String($0.1) })
        }
    }
  }

  /// The operator's directories next to `docker-compose.yml`; true: mounted read-only.
  private static let ownDirectories = [".secrets/optional": true, "exchange": false]

  @Test(arguments: ComposeForm.allCases)
  func everyImageIsPinned(form: ComposeForm) throws {
    for (name, service) in try form.file.services {
      #expect(
        service.build.map { build in
          service.image == (build.target == "tenure" ? "tenure" : "tenure-\(build.target)")
        } ?? service.image.map(Self.isPinned) ?? false,
        "\(name)")
    }
    let stages = try Self.stages
    let bases = stages.map(\.base).filter { base in !stages.contains { $0.name == base } }
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

  @Test(arguments: ComposeForm.allCases)
  func everySecretIsAFileThatTheFirstLinesMake(form: ComposeForm) throws {
    let file = try form.file
    let head = try Self.head
    #expect(Repository.text(of: ".gitignore")?.contains("\n.secrets/\n") == true)
    for (name, secret) in file.secrets ?? [:] {
      #expect(secret.file == ".secrets/\(name)")
      #expect(head.contains(name), "no line makes \(name)")
      #expect(file.services.values.contains { $0.secrets?.contains(name) == true }, "\(name)")
    }
    for (name, service) in file.services {
      for secret in service.secrets ?? [] { #expect(file.secrets?[secret] != nil, "\(secret)") }
      for (setting, value) in service.environment ?? [:] {
        guard setting.hasSuffix("_FILE") else {
          let isSecret = setting.contains(/PASSWORD|SECRET|_KEYS?$|_URL$/)
          #expect(!isSecret, "\(name): \(setting) would be shown by `docker inspect`")
          continue
        }
        let mounted = (service.secrets ?? []).map { "/run/secrets/\($0)" }
        #expect(mounted.contains(value), "\(name): \(setting)")
      }
    }
  }

  @Test(arguments: ComposeForm.allCases)
  func everyPortIsOnTheLoopbackAddress(form: ComposeForm) throws {
    let ports = try form.file.services.values.flatMap { $0.ports ?? [] }
    #expect(ports.count == 6)
    for port in ports { #expect(port.hasPrefix("127.0.0.1:"), "\(port)") }
  }

  @Test(arguments: ComposeForm.allCases)
  func everySettingIsOne(form: ComposeForm) throws {
    let article = try #require(Repository.text(of: "Sources/HTTPAPI/HTTPAPI.docc/Settings.md"))
    for (name, service) in try form.file.services {
      for setting in (service.environment ?? [:]).keys
      where setting.hasPrefix("TENURE_") || setting.hasPrefix("DATABASE_") {
        let setting = setting.hasSuffix("_FILE") ? String(setting.dropLast(5)) : setting
        #expect(article.contains("`\(setting)`"), "\(name): \(setting)")
      }
    }
  }

  /// Values fixed in the file can't be changed in `.env`; all others can.
  @Test(arguments: ComposeForm.allCases)
  func everySettingCanBeMade(form: ComposeForm) throws {
    let article = try #require(Repository.text(of: "Sources/HTTPAPI/HTTPAPI.docc/Settings.md"))
    let rows = article.split(separator: "\n").filter { $0.hasPrefix("| `") }
    let names = rows.flatMap { row in
      row.split(separator: "|")[0].matches(of: /`([A-Z_]+)`/).map { String($0.1) }
    }
    #expect(names.count > 40)
    let settled: [String: Set<String>] = [
      "serve": ["TENURE_HTTP_HOST", "TENURE_HTTP_PORT", "TENURE_API_KEYS"],
      "work": ["TENURE_METRICS_HOST", "TENURE_METRICS_PORT"],
      // The doctor looks at what `serve` needs.
      "tenure": ["TENURE_API_KEYS"],
    ]
    let file = try form.file
    for (name, settled) in settled {
      let service = try #require(file.services[name])
      #expect(service.environmentFiles == [".env"], "\(name)")
      let stated = (service.environment ?? [:]).keys.map { setting in
        setting.hasSuffix("_FILE") ? String(setting.dropLast(5)) : setting
      }
      let everywhere: Set = ["DATABASE_URL", "TENURE_APPSTORE_SHARED_SECRET"]
      #expect(Set(stated) == settled.union(everywhere), "\(name)")
      #expect(Set(stated).isSubset(of: names), "\(name)")
      // Files that settings name.
      let optional = service.mountedFiles.first { $0.source == ".secrets/optional" }
      #expect(optional?.target == "/etc/tenure", "\(name)")
    }
    let head = try Self.head
    let shown = head.matches(of: /\n# +([A-Z_]+)=(\S+)/).map { (String($0.1), String($0.2)) }
    #expect(shown.count > 5)
    for (setting, value) in shown {
      let isFile = setting.hasSuffix("_FILE") && setting.hasPrefix("TENURE_")
      let name = isFile ? String(setting.dropLast(5)) : setting
      #expect(names.contains(name) || name == "COMPOSE_FILE", "\(setting)")
      let isSecret = setting.contains(/SECRET|PASSWORD|PRIVATE_KEY|DATABASE_URL/)
      #expect(!isSecret || value.hasPrefix("/etc/tenure/"), "\(setting)")
    }
  }

  /// The compose file has a line to copy for imports, with everything that it needs.
  @Test func commandsCanBeRun() throws {
    let service = try #require(try ComposeForm.postgres.file.services["tenure"])
    let head = try Self.head
    let line = try #require(head.firstMatch(of: /docker compose run --rm .*? (\S+) import (\S+)/))
    #expect(line.1 == "tenure")
    #expect(head.contains("cp \(line.2) exchange\n"))
    // The image's own program is asked, and nothing but the argument is said.
    #expect(service.command == nil)
    #expect(service.workingDirectory == "/exchange")
    #expect(service.mountedFiles.contains { $0 == ("exchange", "/exchange", false) })
    let dockerfile = try #require(Repository.text(of: ".docker/Dockerfile"))
    #expect(dockerfile.contains("ENTRYPOINT [\"tenure\"]"))
    #expect(service.profiles == ["command"])
  }

  @Test(arguments: ComposeForm.allCases)
  func everyMountIsThere(form: ComposeForm) throws {
    let file = try form.file
    for (name, service) in file.services {
      for mount in service.mountedFiles {
        if let isReadOnly = Self.ownDirectories[mount.source] {
          #expect(mount.isReadOnly == isReadOnly, "\(name): \(mount.source)")
          let directory = try #require(mount.source.split(separator: "/").last)
          #expect(try Self.head.contains(try Regex("mkdir (-p )?\(directory) ")), "\(directory)")
          continue
        }
        #expect(Repository.files.contains(mount.source), "\(name): \(mount.source)")
        #expect(mount.isReadOnly, "\(name): \(mount.source)")
      }
      for volume in service.namedVolumes {
        #expect(file.volumes?.keys.contains(volume) == true, "\(name): \(volume)")
      }
      guard let build = service.build else { continue }
      #expect(Repository.files.contains(build.dockerfile))
      #expect(try Self.stages.contains { $0.name == build.target }, "\(name)")
    }
    // The Citus leaves the volume of the one PostgreSQL as it is.
    let used = Set(file.services.values.flatMap(\.namedVolumes)).union(["postgres"])
    #expect(used == Set((file.volumes ?? [:]).keys))
  }

  @Test(arguments: ComposeForm.allCases)
  func everyServiceIsConfinedAndWatched(form: ComposeForm) throws {
    for (name, service) in try form.file.services {
      #expect(service.droppedCapabilities == ["ALL"], "\(name)")
      #expect(service.securityOptions == ["no-new-privileges:true"], "\(name)")
      let isDatabase = service.namedVolumes.contains { $0 == "postgres" || $0.hasPrefix("citus-") }
      // PostgreSQL's image makes its sockets and its user's files as root.
      #expect(service.isReadOnly == true || isDatabase, "\(name)")
      // Services that run once need no health check: others wait for their exit.
      #expect((service.healthcheck == nil) == (service.restart == "no"), "\(name)")
      // `up --wait` waits for the first check, which comes after one interval.
      if let interval = service.healthcheck?.interval,
        service.profiles?.contains("production") == true
      {
        #expect(["2s", "5s"].contains(interval), "\(name): \(interval)")
      }
    }
    for stage in try Self.stages where stage.name != "build" {
      #expect(stage.user?.wholeMatch(of: /[1-9]\d*/) != nil, "\(stage.name)")
    }
  }

  /// The demo needs no settings or secrets, which do not exist without production.
  @Test(arguments: ComposeForm.allCases)
  func profilesSelectServices(form: ComposeForm) throws {
    let file = try form.file
    #expect(file.started(with: []) == [])
    #expect(file.started(with: ["production"]) == form.services)
    #expect(file.started(with: ["monitoring"]) == form.services.union(["prometheus", "grafana"]))
    // `run` adds the command's profile to those in `.env`.
    #expect(file.started(with: ["production", "command"]) == form.services.union(["tenure"]))
    #expect(try Self.head.contains("#   echo COMPOSE_PROFILES=production > .env\n"))

    #expect(file.started(with: ["demo"]) == ["demo"])
    let demo = try #require(file.services["demo"])
    #expect(demo.environmentFiles == nil && demo.secrets == nil && demo.volumes == nil)
    #expect(demo.command == ["demo", "--all-interfaces", "--port", "8080"])
    // The demo prints its own ports: they must be published unchanged.
    #expect(demo.ports == (8080...8082).map { "127.0.0.1:\($0):\($0)" })
    #expect(try Self.head.contains("`docker compose --profile demo up`"))

    for profiles in [["production"], ["monitoring"], ["production", "command"], ["demo"]] {
      let started = file.started(with: Set(profiles))
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
    let services = try ComposeForm.postgres.file.services
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

  /// The coordinator knows every node before the tables are distributed.
  @Test func theNodesOfTheCitusAreKnown() throws {
    let file = try ComposeForm.citus.file
    let nodes = file.services.filter { $0.value.image?.hasPrefix("citusdata/") == true }
    let servers = nodes.filter { $0.value.restart != "no" }.keys.sorted()
    #expect(servers == ["citus-1", "citus-2", "postgres"])
    #expect(Set(nodes.values.compactMap(\.image)).count == 1)
    let script = try #require(Repository.text(of: ".docker/citus-nodes.sql"))
    #expect(script.contains("citus_set_coordinator_host('postgres')"))
    for server in servers where server != "postgres" {
      #expect(script.contains("citus_add_node('\(server)', 5432)"))
    }
    #expect(file.services["migrate"]?.command == ["migrate", "--distributed"])
    #expect(file.services["migrate"]?.dependencies?.keys.contains("citus-nodes") == true)
    #expect(file.services["citus-nodes"]?.dependencies?.keys.sorted() == servers)
    for server in servers {
      let scripts = file.services[server]?.mountedFiles.map(\.target).filter {
        $0.hasPrefix("/docker-entrypoint-initdb.d/")
      }
      // In the order of their names: what citus.sh says needs the roles.
      #expect(scripts?.sorted().map { String($0.suffix(8)) } == ["roles.sh", "citus.sh"])
    }
  }
}
