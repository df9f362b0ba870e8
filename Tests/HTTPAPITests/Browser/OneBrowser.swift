import Foundation
import Testing

/// Gives all tests of a suite one browser, for starting it takes longer than they do.
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

  /// Whether there has to be one: a Debian has the package, and then its absence is a failure.
  static var isToBeHad: Bool {
    let release = (try? String(contentsOfFile: "/etc/os-release", encoding: .utf8)) ?? ""
    return BrowserProcess.program != nil || release.split(separator: "\n").contains("ID=debian")
  }
}

extension Trait where Self == OneBrowser {
  static var oneBrowser: Self { OneBrowser() }
}
