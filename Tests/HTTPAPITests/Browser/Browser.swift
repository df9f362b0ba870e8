import AppStore
import Foundation
import JSONText
import Testing

/// A user of a browser, who waits for elements before clicking them.
struct Browser: Sendable {
  let driver: WebDriver
  let origin: String

  /// Long enough for a busy machine.
  private static let patience: Duration = .seconds(90)
  private static let pause: Duration = .milliseconds(20)

  enum Place: Sendable, CustomStringConvertible, ExpressibleByStringLiteral {
    case selector(String)
    /// Finds a link by its complete text.
    case link(String)

    init(stringLiteral value: String) { self = .selector(value) }

    var description: String {
      switch self {
      case .selector(let text): text
      case .link(let text): "the link “\(text)”"
      }
    }

    fileprivate var locator: JSONValue {
      switch self {
      case .selector(let text): ["using": "css selector", "value": .string(text)]
      case .link(let text): ["using": "link text", "value": .string(text)]
      }
    }
  }

  enum Key: String {
    case tab = "\u{E004}"
    case enter = "\u{E007}"
    case end = "\u{E010}"
  }

  // MARK: Navigation

  /// Opens a page and waits until it is complete, including reports that are still computed.
  func open(_ path: String) async throws {
    try await driver.post("/url", ["url": .string(origin + path)])
    try await settle()
  }

  func settle() async throws {
    try await wait(
      for: "a page that is finished",
      until: """
        return document.readyState === "complete" &&
          !document.querySelector("meta[http-equiv=refresh]")
        """)
  }

  /// The path, query and fragment of the current page.
  var address: String {
    get async throws {
      let url = try await driver.get("/url").string ?? ""
      return url.hasPrefix(origin) ? String(url.dropFirst(origin.count)) : url
    }
  }

  func arrive(at path: String, sourceLocation: SourceLocation = #_sourceLocation) async throws {
    try await wait(
      for: path, until: "return location.href === arguments[0]", [.string(origin + path)],
      sourceLocation: sourceLocation)
    try await settle()
  }

  // MARK: Input

  func click(_ place: Place, sourceLocation: SourceLocation = #_sourceLocation) async throws {
    try await onceThere(place, sourceLocation) { element in
      try await driver.post("/element/\(element)/click", [:])
    }
  }

  /// Replaces the text of a field.
  func type(
    _ text: String, into place: Place, sourceLocation: SourceLocation = #_sourceLocation
  ) async throws {
    try await onceThere(place, sourceLocation) { element in
      try await driver.post("/element/\(element)/clear", [:])
      try await driver.post("/element/\(element)/value", ["text": .string(text)])
    }
  }

  func press(_ key: Key) async throws {
    let strokes: JSONValue = [
      ["type": "keyDown", "value": .string(key.rawValue)],
      ["type": "keyUp", "value": .string(key.rawValue)],
    ]
    try await driver.post(
      "/actions", ["actions": [["type": "key", "id": "keyboard", "actions": strokes]]])
  }

  /// Retries until the page is ready.
  private func onceThere(
    _ place: Place, _ sourceLocation: SourceLocation,
    _ action: (_ element: String) async throws -> Void
  ) async throws {
    let end = ContinuousClock.now + Self.patience
    while true {
      do {
        let found = try await driver.post("/element", place.locator)
        guard case .object(let members) = found, let element = members.first?.value.string else {
          throw WebDriver.Refusal(code: "no such element", message: "\(found)")
        }
        return try await action(element)
      } catch let refusal as WebDriver.Refusal where refusal.mayPass {
        guard ContinuousClock.now < end else {
          await fail("\(place): \(refusal)", sourceLocation)
          throw refusal
        }
        try await Task.sleep(for: Self.pause)
      }
    }
  }

  // MARK: Output

  /// Runs a script and returns its result.
  @discardableResult
  func run(_ script: String, _ arguments: [JSONValue] = []) async throws -> JSONValue {
    try await driver.post(
      "/execute/sync", ["script": .string(script), "args": .array(arguments)])
  }

  /// The trimmed texts of all elements that match a selector.
  func texts(_ selector: String) async throws -> [String] {
    let script = """
      return [...document.querySelectorAll(arguments[0])].map((found) => found.textContent.trim())
      """
    return try await run(script, [.string(selector)]).array?.compactMap(\.string) ?? []
  }

  /// Waits until a text is visible on the page.
  func see(_ text: String, sourceLocation: SourceLocation = #_sourceLocation) async throws {
    try await wait(
      for: "“\(text)”",
      until: "return document.querySelector('main').innerText.includes(arguments[0])",
      [.string(text)], sourceLocation: sourceLocation)
  }

  /// Waits until a script returns true.
  func wait(
    for what: String, until script: String, _ arguments: [JSONValue] = [],
    sourceLocation: SourceLocation = #_sourceLocation
  ) async throws {
    try await wait(for: what, sourceLocation: sourceLocation) {
      try await run(script, arguments).bool == true
    }
  }

  func wait(
    for what: String, sourceLocation: SourceLocation = #_sourceLocation,
    until isSo: () async throws -> Bool
  ) async throws {
    let end = ContinuousClock.now + Self.patience
    while true {
      do {
        if try await isSo() { return }
      } catch let refusal as WebDriver.Refusal where refusal.mayPass {
        // The page is being unloaded.
      }
      guard ContinuousClock.now < end else {
        await fail("Timed out waiting for \(what).", sourceLocation)
        throw WebDriver.Refusal(code: "timeout", message: what)
      }
      try await Task.sleep(for: Self.pause)
    }
  }

  /// Reports the page's actual text, and attaches a screenshot (see `--attachments-path`).
  private func fail(_ comment: String, _ sourceLocation: SourceLocation) async {
    let address = (try? await address) ?? "?"
    let text = (try? await run("return document.body.innerText"))?.string ?? ""
    if let picture = try? await picture() {
      Attachment.record(picture, named: "page.png", sourceLocation: sourceLocation)
    }
    Issue.record("\(comment) At \(address): \(text.prefix(2000))", sourceLocation: sourceLocation)
  }
}
