import Foundation
import Secrets
import Subscriptions
import Testing

@testable import BackgroundJobs
@testable import Bootstrap
@testable import Development
@testable import Intake
@testable import tenure

/// The examples for receivers of webhooks, run.
@Suite("The documented verification of webhooks")
struct WebhookExampleTests {
  private struct Case: Encodable, Sendable {
    var name: String
    var header: String
    var body = Self.body
    var secret = Self.secret
    /// In seconds since 1970.
    var now = Self.sent
    var isGenuine = false

    static let body = #"{"id":"81241","type":"entitlement.granted"}"#
    static let secret = "the receiver's own secret"
    static let sent = 1_767_225_600

    static func signed(_ secrets: String...) -> String {
      WebhookSignature.value(
        of: Array(body.utf8), secrets: secrets.map { Secret($0) },
        at: Timestamp(milliseconds: Int64(sent) * 1000 + 999))
    }
  }

  private static let cases: [Case] = {
    let header = Case.signed(Case.secret)
    let signature = header.split(separator: ",").last ?? ""
    return [
      Case(name: "as it was sent", header: header, isGenuine: true),
      Case(name: "a bit late", header: header, now: Case.sent + 299, isGenuine: true),
      Case(name: "by a clock behind ours", header: header, now: Case.sent - 299, isGenuine: true),
      Case(name: "too late", header: header, now: Case.sent + 301),
      Case(name: "too early", header: header, now: Case.sent - 301),
      Case(
        name: "the new one of two secrets", header: Case.signed(Case.secret, "an older secret"),
        isGenuine: true),
      Case(
        name: "the old one of two secrets", header: Case.signed("a newer secret", Case.secret),
        isGenuine: true),
      Case(name: "another secret", header: header, secret: "another secret"),
      Case(name: "another body", header: header, body: Case.body + " "),
      Case(name: "another time", header: "t=\(Case.sent + 1),\(signature)"),
      Case(name: "no time", header: String(signature)),
      Case(name: "a time that is none", header: "t=now,\(signature)"),
      Case(name: "no signature", header: "t=\(Case.sent)"),
      Case(name: "an empty signature", header: "t=\(Case.sent),v1="),
      Case(name: "half a signature", header: String(header.dropLast(32))),
      Case(
        name: "a signature that is none",
        header: "t=\(Case.sent),v1=\(String(repeating: "zz", count: 32))"),
      Case(name: "a signature beyond ASCII", header: "t=\(Case.sent),v1=é"),
      Case(name: "of another version", header: header.replacing("v1=", with: "v2=")),
      Case(name: "nothing", header: ""),
      Case(name: "nonsense", header: ",,=,t,v1,==="),
    ]
  }()

  @Test("in Swift is what is compiled here, and knows what is genuine")
  func swift() throws {
    let example = try #require(
      WebhookArticle.blocks("swift").first { $0.contains("func isGenuine") })
    let source = try String(
      contentsOf: URL(filePath: #filePath).deletingLastPathComponent()
        .appending(path: "WebhookVerification.swift"), encoding: .utf8)
    #expect(example == source)
    for one in Self.cases {
      let verdict = isGenuine(
        one.header, body: Data(one.body.utf8), secret: one.secret,
        now: Date(timeIntervalSince1970: TimeInterval(one.now)))
      #expect(verdict == one.isGenuine, "\(one.name)")
    }
  }

  @Test("in Python knows what is genuine")
  func python() async throws {
    try await withTemporaryDirectory { directory in
      try WebhookArticle.writePythonExample(into: directory)
      let cases = directory.appending(path: "cases.json")
      try JSONEncoder().encode(Self.cases).write(to: cases)
      let program = """
        import json, sys
        from webhook import is_genuine
        for case in json.load(open(sys.argv[1])):
            print(is_genuine(case["header"], case["body"].encode(), case["secret"], case["now"]))
        """
      let file = directory.appending(path: "cases.py")
      try program.write(to: file, atomically: true, encoding: .utf8)
      let outcome = try await ChildProcess.run(
        URL(filePath: "/usr/bin/env"),
        ["python3", file.path(percentEncoded: false), cases.path(percentEncoded: false)],
        in: directory)
      #expect(outcome.status == 0, "\(outcome.errors)")
      let answers = outcome.output.split(separator: "\n").map(String.init)
      #expect(answers.count == Self.cases.count)
      for (one, answer) in zip(Self.cases, answers) {
        #expect(answer == (one.isGenuine ? "True" : "False"), "\(one.name)")
      }
    }
  }
}

/// The examples of *Receiving webhooks*.
enum WebhookArticle {
  private static let path = "Sources/HTTPAPI/HTTPAPI.docc/ReceivingWebhooks.md"

  private static var text: String {
    get throws {
      let root = (0..<4).reduce(URL(filePath: #filePath)) { url, _ in
        url.deletingLastPathComponent()
      }
      return try String(contentsOf: root.appending(path: path), encoding: .utf8)
    }
  }

  /// The blocks of code in a language.
  static func blocks(_ language: String) throws -> [String] {
    try text.components(separatedBy: "\n```\(language)\n").dropFirst().map { rest in
      (rest.components(separatedBy: "\n```").first ?? "") + "\n"
    }
  }

  /// Writes the verification in Python as the module `webhook`.
  static func writePythonExample(into directory: URL) throws {
    let example = try #require(blocks("python").first { $0.contains("def is_genuine") })
    try example.write(
      to: directory.appending(path: "webhook.py"), atomically: true, encoding: .utf8)
  }
}
