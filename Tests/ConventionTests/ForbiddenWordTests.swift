import Testing

struct ForbiddenWordTests {
  @Test(arguments: ForbiddenWord.all)
  func doesNotOccur(word: ForbiddenWord) throws {
    try Repository.sources.flatMap(word.findings).report()
  }

  @Test(arguments: [
    // file                          code                                            is a finding
    ("Sources/Intake/X.swift", "package struct A {}", false),
    ("Sources/Intake/X.swift", "public struct A {}", true),
    ("Sources/Intake/X.swift", "let republic = 1  // public", false),
    ("Sources/Intake/X.swift", #"let schema = "public""#, false),
    ("Sources/Intake/X.swift", "final class A: @unchecked Sendable {}", true),
    ("Sources/Intake/X.swift", "nonisolated(unsafe) var a = 1", true),
    ("Sources/Intake/X.swift", "bytes.withUnsafeBytes { $0.count }", true),
    ("Sources/Intake/X.swift", "let a: UnsafeRawPointer", true),
    ("Tests/IntakeTests/X.swift", "unsafe f()", true),
    ("Sources/Postgres/X.swift", "unsafe f()", false),
    ("Tests/PostgresTests/X.swift", "unsafe f()", false),
    ("Sources/Development/PrivatePostgres/X.swift", "unsafe f()", true),
    ("Sources/Intake/X.swift", "Task { await f() }", false),
    ("Sources/Intake/X.swift", "Task.detached { await f() }", true),
    ("Sources/Intake/X.swift", "try f()", false),
    ("Sources/Intake/X.swift", "try? f()", false),
    ("Tests/IntakeTests/X.swift", "try! f()", true),
    ("Sources/Intake/X.swift", "a as? B", false),
    ("Sources/Intake/X.swift", "a as! B", true),
    ("Sources/Intake/X.swift", #"fatalError("no")"#, true),
    ("Sources/Intake/X.swift", "let a = Date()", false),
    ("Sources/Subscriptions/X.swift", "let a = Date()", true),
    ("Sources/Subscriptions/X.swift", "ContinuousClock.now", true),
    ("Sources/Subscriptions/X.swift", "let clockTolerance: CalendarDate", false),
    ("Sources/Subscriptions/X.swift", "UUID()", true),
    ("Sources/Subscriptions/X.swift", "Int.random(in: 0...1)", true),
    ("Sources/Subscriptions/X.swift", "var a: [String: Int] = [:]", true),
    ("Sources/Subscriptions/X.swift", "var a: [ExactText: Int] = [:]", false),
    ("Sources/JSONText/X.swift", "throw mismatch([String: Any].self)", false),
    ("Sources/HTTPAPI/Input/X.swift", "let a = Set<String>()", true),
    ("Sources/HTTPAPI/Metrics/X.swift", "let a = Set<String>()", false),
    ("Sources/HTTPAPI/Orders/X.swift", "JSONDecoder().decode(A.self, from: data)", true),
    ("Sources/AdminSite/X.swift", "request.cookies[name]", true),
    ("Sources/Development/Demo/X.swift", "JSONDecoder().decode(A.self, from: data)", false),
  ])
  func canFail(path: String, code: String, isFinding: Bool) throws {
    let source = SwiftSource(path: path, text: code)
    #expect(try ForbiddenWord.all.flatMap { try $0.findings(in: source) }.isEmpty != isFinding)
  }
}
