import AppStore
import AsyncHTTPClient
import Foundation
import JSONText
import NIOCore
import NIOHTTP1

/// A session of a headless Chromium, driven by JSON over HTTP: <https://www.w3.org/TR/webdriver2/>.
struct WebDriver: Sendable {
  /// What the browser does not do.
  struct Refusal: Error, CustomStringConvertible {
    /// One of the specification's, as "no such element".
    let code: String
    let message: String

    var description: String { "\(code): \(message)" }

    /// Whether the page may only not be ready for it yet.
    var mayPass: Bool {
      [
        "no such element", "stale element reference", "element click intercepted",
        "element not interactable", "javascript error", "unknown error",
      ].contains(code)
    }
  }

  /// The address of the session.
  private let url: String
  private let directory: URL

  /// Starts a browser, and ends it with the body, however that ends.
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

  /// A Chromium that asks nobody but this machine for anything.
  private static func capabilities(in directory: URL) -> JSONValue {
    let path = directory.path(percentEncoded: false)
    return [
      "browserName": "chrome",
      "goog:loggingPrefs": ["browser": "ALL"],
      "goog:chromeOptions": [
        "args": [
          // Nothing but our own pages is loaded, and root may not have a sandbox.
          "--headless", "--no-sandbox", .string("--user-data-dir=\(path)/profile"),
          "--no-first-run", "--disable-background-networking", "--disable-component-update",
          "--disable-dev-shm-usage", "--disable-gpu", "--disable-sync", "--disable-breakpad",
          "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost",
          // What scrolls slowly is not where it is clicked.
          "--force-prefers-reduced-motion", "--window-size=1280,900", "--lang=en",
        ],
        "prefs": ["download.default_directory": .string(path + "/downloads")],
      ],
    ]
  }

  /// Sends a command of the session.
  @discardableResult
  func post(_ path: String, _ body: JSONValue) async throws -> JSONValue {
    try await Self.send(.POST, url + path, body)
  }

  /// Asks the session for something.
  func get(_ path: String) async throws -> JSONValue {
    try await Self.send(.GET, url + path, nil)
  }

  private static func send(_ method: HTTPMethod, _ url: String, _ body: JSONValue?) async throws
    -> JSONValue
  {
    var request = HTTPClientRequest(url: url)
    request.method = method
    // The driver may close a connection that rests in the very moment when it is used again.
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

  /// What was downloaded by this name, if it is there already.
  func download(_ name: String) -> [UInt8]? {
    (try? Data(contentsOf: directory.appending(path: "downloads/\(name)"))).map(Array.init)
  }

  /// Forgets what was downloaded.
  func forgetDownloads() throws {
    let downloads = directory.appending(path: "downloads")
    try? FileManager.default.removeItem(at: downloads)
    try FileManager.default.createDirectory(at: downloads, withIntermediateDirectories: true)
  }
}
