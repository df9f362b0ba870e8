import AppStore
import Foundation
import JSONText

@testable import HTTPAPI

/// axe-core, which finds barriers for people with disabilities: <https://github.com/dequelabs/axe-core>.
enum Axe {
  /// The script, from the Python package index; nil if it can't be installed, except in CI.
  static let script = Task { () throws -> String? in
    let directory = FileManager.default.temporaryDirectory
      .appending(path: "tenure-axe-\(UUID().uuidString)")
    try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(at: directory) }
    let process = Process()
    process.executableURL = URL(filePath: "/bin/sh")
    process.arguments = [
      "-c",
      """
      python3 -m venv venv && venv/bin/python -m pip install --quiet --no-deps --target . \
        axe-playwright-python==0.1.8
      """,
    ]
    process.currentDirectoryURL = directory
    await withCheckedContinuation { (continuation: CheckedContinuation<Void, Never>) in
      process.terminationHandler = { _ in continuation.resume() }
      do { try process.run() } catch { continuation.resume() }
    }
    do {
      return try String(
        contentsOf: directory.appending(path: "axe_playwright_python/axe.min.js"), encoding: .utf8)
    } catch  where ProcessInfo.processInfo.environment["CI"] == nil {
      return nil
    }
  }
}

extension Browser {
  /// Loads axe-core into every page that the body opens.
  func loading(_ axe: String?, _ body: () async throws -> Void) async throws {
    let added = try await command(
      "Page.addScriptToEvaluateOnNewDocument", ["source": .string(axe ?? "")])
    try await body()
    try await command(
      "Page.removeScriptToEvaluateOnNewDocument", ["identifier": added["identifier"] ?? .null])
  }

  /// The moderate, serious and critical violations of axe-core's rules on the current page; empty
  /// without axe-core.
  ///
  /// - Parameter isAboutColours: Whether only the rules about colours are checked.
  func barriers(isAboutColours: Bool = false) async throws -> [String] {
    let found = try await run(
      """
      if (!window.axe) return [];
      const colours = ["color-contrast", "link-in-text-block"];
      return axe.run(arguments[0] ? { runOnly: colours } : {}).then((results) => results.violations
        .filter(({ impact }) => impact !== "minor")
        .map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(" ").slice(0, 500)}`));
      """, [.bool(isAboutColours)])
    return found.array?.compactMap(\.string) ?? []
  }
}
