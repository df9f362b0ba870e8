import AppStore
import AsyncHTTPClient
import Foundation
import JSONText
import NIOCore
import NIOHTTP1

/// A session of a headless Chromium, driven by JSON over HTTP: <https://www.w3.org/TR/webdriver2/>.
struct WebDriver: Sendable {
  /// An error response of the driver.
  struct Refusal: Error, CustomStringConvertible {
    /// A code of the specification, such as "no such element".
    let code: String
    let message: String

    var description: String { "\(code): \(message)" }

    /// Whether the page may not be ready yet.
    var mayPass: Bool {
      [
        "no such element", "stale element reference", "element click intercepted",
        "element not interactable", "javascript error", "unknown error",
      ].contains(code)
    }
  }

  /// The URL of the session.
  private let url: String
  private let directory: URL

  /// Starts a browser for the duration of the body.
  static func run<Value: Sendable>(_ body: (WebDriver) async throws -> Value) async throws -> Value
  {
    let process = try BrowserProcess()
    do {
      let value = try await body(try await WebDriver(process))
      await process.end()
      return value
    } catch {
      await process.end()
      throw error
    }
  }

  private init(_ process: BrowserProcess) async throws {
    directory = process.directory
    let driver = "http://127.0.0.1:\(try await process.port)/session"
    let answer = try await Self.send(
      .POST, driver,
      ["capabilities": ["alwaysMatch": Self.capabilities(in: process.directory)]])
    url = "\(driver)/\(answer["sessionId"]?.string ?? "")"
  }

  /// The capabilities of a Chromium that only connects to this machine.
  private static func capabilities(in directory: URL) -> JSONValue {
    let path = directory.path(percentEncoded: false)
    return [
      "browserName": "chrome",
      "goog:loggingPrefs": ["browser": "ALL"],
      "goog:chromeOptions": [
        "args": [
          // Only our own pages are loaded; Chromium has no sandbox for root.
          "--headless", "--no-sandbox", .string("--user-data-dir=\(path)/profile"),
          "--no-first-run", "--disable-background-networking", "--disable-component-update",
          "--disable-dev-shm-usage", "--disable-gpu", "--disable-sync", "--disable-breakpad",
          "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost",
          // During smooth scrolling, clicks miss their elements.
          "--force-prefers-reduced-motion", "--window-size=1280,900", "--lang=en",
        ],
        "prefs": ["download.default_directory": .string(path + "/downloads")],
      ],
    ]
  }

  /// Sends a command.
  @discardableResult
  func post(_ path: String, _ body: JSONValue) async throws -> JSONValue {
    try await Self.send(.POST, url + path, body)
  }

  /// Sends a query.
  func get(_ path: String) async throws -> JSONValue {
    try await Self.send(.GET, url + path, nil)
  }

  private static func send(_ method: HTTPMethod, _ url: String, _ body: JSONValue?) async throws
    -> JSONValue
  {
    var request = HTTPClientRequest(url: url)
    request.method = method
    // The driver may close an idle connection just when it is reused.
    request.headers.add(name: "Connection", value: "close")
    if let body {
      request.headers.add(name: "Content-Type", value: "application/json")
      request.body = .bytes(ByteBuffer(bytes: body.bytes))
    }
    let answer = try await HTTPClient.shared.execute(
      request, timeout: .seconds(BrowserProcess.patience.components.seconds))
    let bytes = Array(try await answer.body.collect(upTo: 1 << 26).readableBytesView)
    let value = try JSONValue(parsing: bytes)["value"] ?? .null
    guard answer.status == .ok else {
      throw Refusal(
        code: value["error"]?.string ?? "\(answer.status)",
        message: value["message"]?.string ?? String(decoding: bytes.prefix(1000), as: UTF8.self))
    }
    return value
  }

  /// A downloaded file, if complete.
  func download(_ name: String) -> [UInt8]? {
    (try? Data(contentsOf: directory.appending(path: "downloads/\(name)"))).map(Array.init)
  }

  /// Deletes downloaded files.
  func forgetDownloads() throws {
    let downloads = directory.appending(path: "downloads")
    try? FileManager.default.removeItem(at: downloads)
    try FileManager.default.createDirectory(at: downloads, withIntermediateDirectories: true)
  }
}
