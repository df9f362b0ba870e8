import Foundation
import Testing

@testable import Development
@testable import HTTPAPI
@testable import tenure

/// The OpenAPI document, in the hands of a generator of clients.
@Suite("Generated clients")
struct GeneratedClientTests {
  /// The status of `generate-client` without its generator.
  private static let notInstalled: Int32 = 75

  @Test("A client in Python calls every operation")
  func python() async throws {
    let scripts = URL(filePath: #filePath).deletingLastPathComponent()
    try await withTemporaryDirectory { directory in
      try OpenAPIDocument.text.write(
        to: directory.appending(path: "openapi.yaml"), atomically: true, encoding: .utf8)
      let generation = try await ChildProcess.run(
        scripts.appending(path: "generate-client"), [directory.path(percentEncoded: false)],
        in: directory)
      if generation.status == Self.notInstalled, ProcessInfo.processInfo.environment["CI"] == nil {
        try Test.cancel("openapi-python-client can't be installed: \(generation.errors)")
      }
      try #require(
        generation.status == 0, "\(generation.errors.suffix(4000))\n\(generation.output)")
      try await ClientStage.serving { stage in
        let encoder = JSONEncoder()
        encoder.keyEncodingStrategy = .convertToSnakeCase
        try encoder.encode(stage).write(to: directory.appending(path: "stage.json"))
        let outcome = try await ChildProcess.run(
          URL(filePath: "/usr/bin/env"),
          [
            "PYTHONPATH=.", "bash", "-c",
            #"cd "$1" && exec venv/bin/python -B "$2" < stage.json"#, "bash",
            directory.path(percentEncoded: false),
            scripts.appending(path: "generated_client.py").path(percentEncoded: false),
          ], in: directory)
        #expect(outcome.status == 0, "\(outcome.errors)")
      }
    }
  }
}
