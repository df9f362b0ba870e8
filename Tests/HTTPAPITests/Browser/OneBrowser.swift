import Foundation
import Testing

/// Shares one browser between all tests of a suite, since starting it is slow.
struct OneBrowser: SuiteTrait, TestScoping {
  @TaskLocal static var driver: WebDriver?

  func provideScope(
    for test: Test, testCase: Test.Case?,
    performing function: @Sendable @concurrent () async throws -> Void
  ) async throws {
    try await WebDriver.run { driver in
      try await Self.$driver.withValue(driver) { try await function() }
    }
  }

  /// Whether the suite runs: with the program, and on Debian, where its absence is a failure.
  static var isToBeHad: Bool {
    let release = (try? String(contentsOfFile: "/etc/os-release", encoding: .utf8)) ?? ""
    return BrowserProcess.program != nil || release.split(separator: "\n").contains("ID=debian")
  }
}

extension Trait where Self == OneBrowser {
  static var oneBrowser: Self { OneBrowser() }
}
