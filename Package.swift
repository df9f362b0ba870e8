// swift-tools-version: 6.2

import PackageDescription

/// The compiler settings of every target: upcoming features, memory safety, warnings as errors.
let strict: [SwiftSetting] = [
  .enableUpcomingFeature("ExistentialAny"),  // SE-0335
  .enableUpcomingFeature("InternalImportsByDefault"),  // SE-0409
  .enableUpcomingFeature("MemberImportVisibility"),  // SE-0444
  .enableUpcomingFeature("NonisolatedNonsendingByDefault"),  // SE-0461
  .enableUpcomingFeature("InferIsolatedConformances"),  // SE-0470
  .strictMemorySafety(),  // SE-0458: every `unsafe` is visible
  .treatAllWarnings(as: .error),  // SE-0480
]

/// Those of the targets where the tests spend most of the product's time: their debug builds are
/// optimized, too.
let optimized: [SwiftSetting] = strict + [.unsafeFlags(["-O"], .when(configuration: .debug))]

let argumentParser = Target.Dependency.product(
  name: "ArgumentParser", package: "swift-argument-parser")
let asn1 = Target.Dependency.product(name: "SwiftASN1", package: "swift-asn1")
let asyncHTTPClient = Target.Dependency.product(
  name: "AsyncHTTPClient", package: "async-http-client")
let collections = Target.Dependency.product(name: "Collections", package: "swift-collections")
let coreMetrics = Target.Dependency.product(name: "CoreMetrics", package: "swift-metrics")
let configuration = Target.Dependency.product(
  name: "Configuration", package: "swift-configuration")
let crypto = Target.Dependency.product(name: "Crypto", package: "swift-crypto")
let cryptoExtras = Target.Dependency.product(name: "CryptoExtras", package: "swift-crypto")
let heap = Target.Dependency.product(name: "HeapModule", package: "swift-collections")
let httpTypes = Target.Dependency.product(name: "HTTPTypes", package: "swift-http-types")
let hummingbird = Target.Dependency.product(name: "Hummingbird", package: "hummingbird")
let hummingbirdCore = Target.Dependency.product(name: "HummingbirdCore", package: "hummingbird")
let hummingbirdTesting = Target.Dependency.product(
  name: "HummingbirdTesting", package: "hummingbird")
let instrumentation = Target.Dependency.product(
  name: "Instrumentation", package: "swift-distributed-tracing")
let logging = Target.Dependency.product(name: "Logging", package: "swift-log")
let mustache = Target.Dependency.product(name: "Mustache", package: "swift-mustache")
let nioCore = Target.Dependency.product(name: "NIOCore", package: "swift-nio")
let nioHTTP1 = Target.Dependency.product(name: "NIOHTTP1", package: "swift-nio")
let nioPosix = Target.Dependency.product(name: "NIOPosix", package: "swift-nio")
let nioSSL = Target.Dependency.product(name: "NIOSSL", package: "swift-nio-ssl")
let serviceLifecycle = Target.Dependency.product(
  name: "ServiceLifecycle", package: "swift-service-lifecycle")
let tracing = Target.Dependency.product(name: "Tracing", package: "swift-distributed-tracing")
let unixSignals = Target.Dependency.product(
  name: "UnixSignals", package: "swift-service-lifecycle")
let x509 = Target.Dependency.product(name: "X509", package: "swift-certificates")
let yams = Target.Dependency.product(name: "Yams", package: "Yams")

/// The dependencies of the executable and the development tools: the product and its libraries.
let assembled: [Target.Dependency] = [
  "AdminSite", "AppStore", "AppStoreSimulator", "BackgroundJobs", "Bootstrap", "HTTPAPI", "Intake",
  "JSONText", "LedgerStorage", "Observability", "Postgres", "PrivatePostgres", "Reports", "Secrets",
  "Subscriptions", asyncHTTPClient, configuration, coreMetrics, crypto, hummingbird, logging,
  nioCore, nioHTTP1, nioPosix, serviceLifecycle, tracing, unixSignals,
]

let package = Package(
  name: "tenure",
  platforms: [.macOS(.v26)],
  products: [.executable(name: "tenure", targets: ["tenure"])],
  dependencies: [
    .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.0"),
    .package(url: "https://github.com/apple/swift-asn1", from: "1.4.0"),
    .package(url: "https://github.com/apple/swift-certificates", from: "1.18.0"),
    .package(url: "https://github.com/apple/swift-collections", from: "1.6.0"),
    .package(url: "https://github.com/apple/swift-configuration", from: "1.4.0"),
    .package(url: "https://github.com/apple/swift-crypto", from: "4.5.0"),
    .package(url: "https://github.com/apple/swift-distributed-tracing", from: "1.7.0"),
    .package(url: "https://github.com/apple/swift-http-types", from: "1.8.0"),
    .package(url: "https://github.com/apple/swift-log", from: "1.16.0"),
    .package(url: "https://github.com/apple/swift-metrics", from: "2.13.0"),
    .package(url: "https://github.com/apple/swift-nio", from: "2.101.0"),
    .package(url: "https://github.com/apple/swift-nio-ssl", from: "2.37.0"),
    .package(url: "https://github.com/hummingbird-project/hummingbird", from: "2.28.0"),
    .package(url: "https://github.com/hummingbird-project/swift-mustache", from: "2.1.0"),
    .package(url: "https://github.com/jpsim/Yams", from: "6.2.0"),
    .package(url: "https://github.com/swift-server/async-http-client", from: "1.37.0"),
    .package(url: "https://github.com/swift-server/swift-service-lifecycle", from: "2.13.0"),
  ],
  targets: [
    // The rules. Nothing below them.
    .target(name: "Subscriptions", swiftSettings: optimized),

    .target(name: "JSONText", dependencies: ["Subscriptions"], swiftSettings: optimized),

    // Values that are never printed.
    .target(name: "Secrets", swiftSettings: strict),

    // Metrics for Prometheus, spans for OpenTelemetry, logs as JSON.
    .target(
      name: "Observability",
      dependencies: [
        "JSONText", "Secrets", asyncHTTPClient, coreMetrics, instrumentation, logging, nioCore,
        nioHTTP1, serviceLifecycle, tracing,
      ],
      swiftSettings: strict),

    // PostgreSQL.
    .systemLibrary(
      name: "CLibpq", pkgConfig: "libpq", providers: [.apt(["libpq-dev"]), .brew(["libpq"])]),
    .target(
      name: "Postgres",
      dependencies: ["CLibpq", "Secrets", collections, coreMetrics, logging, tracing],
      swiftSettings: optimized),
    .systemLibrary(
      name: "CZlib", pkgConfig: "zlib", providers: [.apt(["zlib1g-dev"]), .brew(["zlib"])]),
    .target(
      name: "LedgerStorage",
      dependencies: [
        "CZlib", "JSONText", "Postgres", "Subscriptions", coreMetrics, crypto, logging,
      ],
      resources: [
        .embedInCode("Resources/bodies.dictionary"),
        .embedInCode("Resources/entries.dictionary"), .embedInCode("Resources/schema.sql"),
      ],
      swiftSettings: strict),

    .target(
      name: "Reports", dependencies: ["JSONText", "Postgres", "Subscriptions"],
      resources: ["Shared", "Subscriptions", "Money", "Operations"].map {
        .embedInCode("\($0)/SQL")
      },
      swiftSettings: strict),

    // Apple.
    .target(
      name: "AppStore",
      dependencies: [
        "JSONText", "Secrets", "Subscriptions", asn1, asyncHTTPClient, coreMetrics, crypto, logging,
        nioCore, nioHTTP1, nioPosix, nioSSL, tracing, x509,
      ],
      resources: [.embedInCode("Resources")],
      swiftSettings: strict),

    // Verify, then record.
    .target(
      name: "Intake",
      dependencies: [
        "AppStore", "JSONText", "LedgerStorage", "Subscriptions", coreMetrics, crypto, logging,
        serviceLifecycle,
      ],
      swiftSettings: strict),
    .target(
      name: "BackgroundJobs",
      dependencies: [
        "Intake", "LedgerStorage", "Secrets", "Subscriptions", asyncHTTPClient, coreMetrics,
        crypto, instrumentation, logging, nioCore, nioHTTP1, nioPosix, nioSSL, serviceLifecycle,
        tracing,
      ],
      swiftSettings: strict),
    .target(
      name: "HTTPAPI",
      dependencies: [
        "Intake", "JSONText", "LedgerStorage", "Observability", "Reports", "Secrets",
        "Subscriptions", coreMetrics, crypto, httpTypes, hummingbird, hummingbirdCore,
        instrumentation, logging, nioCore, nioHTTP1, serviceLifecycle, tracing,
      ],
      resources: [
        .embedInCode("Resources/openapi.yaml"),
        .embedInCode("Resources/Monitoring/grafana-dashboard.json"),
        .embedInCode("Resources/Monitoring/prometheus-alerts.yaml"),
      ],
      swiftSettings: strict),
    .target(
      name: "AdminSite",
      dependencies: [
        "HTTPAPI", "JSONText", "LedgerStorage", "Reports", "Secrets", "Subscriptions", crypto,
        httpTypes, hummingbird, hummingbirdCore, logging, mustache, nioCore, nioHTTP1,
      ],
      resources: [.embedInCode("Resources")], swiftSettings: strict),

    // Settings and the programs put together.
    .target(
      name: "Bootstrap",
      dependencies: [
        "AdminSite", "AppStore", "BackgroundJobs", "HTTPAPI", "Intake",
        "LedgerStorage", "Observability", "Postgres", "PrivatePostgres", "Reports", "Secrets",
        "Subscriptions", asyncHTTPClient, configuration, coreMetrics, httpTypes, logging, nioCore,
        serviceLifecycle, tracing,
      ],
      swiftSettings: strict),

    // Not needed to understand the product.
    .target(
      name: "PrivatePostgres", dependencies: [logging],
      path: "Sources/Development/PrivatePostgres", swiftSettings: strict),
    .target(
      name: "AppStoreSimulator",
      dependencies: [
        "AppStore", "JSONText", "Subscriptions", asn1, asyncHTTPClient, crypto, cryptoExtras, heap,
        httpTypes, hummingbird, logging, nioCore, serviceLifecycle, x509,
      ],
      path: "Sources/Development/AppStoreSimulator", swiftSettings: strict),
    .target(
      name: "Development", dependencies: assembled + [argumentParser],
      path: "Sources/Development",
      exclude: ["AppStoreSimulator", "PrivatePostgres"], swiftSettings: strict),

    .executableTarget(
      name: "tenure", dependencies: assembled + ["Development", argumentParser],
      swiftSettings: strict),

    // Tests. `ScratchDatabases` gives each test a PostgreSQL database of its own; `TestWidth` limits
    // how many tests run at once.
    .target(
      name: "ScratchDatabases",
      dependencies: [
        "LedgerStorage", "Postgres", "PrivatePostgres", "Reports", "Secrets", logging,
      ],
      path: "Tests/Support/ScratchDatabases", swiftSettings: strict),
    // One test target's dependency is enough: all of them are linked into one program.
    .target(name: "TestWidth", path: "Tests/Support/TestWidth"),
    .testTarget(
      name: "SubscriptionsTests", dependencies: ["Subscriptions"], swiftSettings: strict),
    .testTarget(
      name: "ObservabilityTests",
      dependencies: ["Observability", instrumentation, logging, tracing],
      swiftSettings: strict),
    .testTarget(
      name: "PostgresTests",
      dependencies: ["Postgres", "PrivatePostgres", "Secrets", coreMetrics, logging],
      swiftSettings: strict),
    .testTarget(
      name: "LedgerStorageTests",
      dependencies: [
        "LedgerStorage", "Postgres", "PrivatePostgres", "Reports", "ScratchDatabases", "Secrets",
        "Subscriptions", crypto, logging,
      ],
      swiftSettings: strict),
    .testTarget(
      name: "ReportsTests",
      dependencies: [
        "LedgerStorage", "Postgres", "Reports", "ScratchDatabases", "Subscriptions", logging,
      ],
      resources: [.copy("Samples")], swiftSettings: strict),
    .testTarget(
      name: "AppStoreTests",
      dependencies: [
        "AppStore", "JSONText", "Secrets", "Subscriptions", asn1, asyncHTTPClient, crypto,
        cryptoExtras, logging, nioCore, nioHTTP1, nioPosix, x509,
      ],
      resources: [.copy("Samples")], swiftSettings: strict),
    .testTarget(
      name: "AppStoreSimulatorTests",
      dependencies: [
        "AppStore", "AppStoreSimulator", "JSONText", "Subscriptions", asn1, crypto, logging,
        nioCore, nioPosix, serviceLifecycle, x509,
      ],
      path: "Tests/Development/AppStoreSimulatorTests", swiftSettings: strict),
    .testTarget(
      name: "BackgroundJobsTests",
      dependencies: ["BackgroundJobs", "Intake", "LedgerStorage", "Subscriptions"],
      swiftSettings: strict),
    .testTarget(
      name: "HTTPAPITests",
      dependencies: [
        "AdminSite", "AppStore", "AppStoreSimulator", "HTTPAPI", "Intake", "JSONText",
        "LedgerStorage", "Observability", "Postgres", "Reports", "ScratchDatabases", "Secrets",
        "Subscriptions", asyncHTTPClient, coreMetrics, httpTypes, hummingbird, hummingbirdCore,
        hummingbirdTesting, logging, nioCore, nioHTTP1, nioPosix, serviceLifecycle, yams,
      ],
      resources: [.copy("Samples")], swiftSettings: strict),
    .testTarget(
      name: "EndToEndTests",
      dependencies: assembled + ["Development", "ScratchDatabases", "tenure", argumentParser],
      exclude: [
        "Clients/app_server.py", "Clients/app-server.mjs", "Clients/generate-client",
        "Clients/generated_client.py", "Clients/scenario.py", "Clients/scenario.mjs",
      ],
      resources: [.copy("Resources")], swiftSettings: strict),
    .testTarget(
      name: "ConventionTests", dependencies: ["TestWidth", yams], swiftSettings: strict),
  ],
  swiftLanguageModes: [.v6]
)
