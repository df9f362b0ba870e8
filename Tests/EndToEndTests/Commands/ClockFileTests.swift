import BackgroundJobs
import Foundation
import Subscriptions
import Testing

@testable import Bootstrap
@testable import Development
@testable import Intake
@testable import tenure

@Suite("The clock in a file")
struct ClockFileTests {
  @Test("is what the file says, never runs backwards, and passes over what is no time")
  func follows() async throws {
    try await withTemporaryDirectory { directory in
      let file = directory.appending(path: "clock")
      func set(_ text: String) throws {
        try text.write(to: file, atomically: true, encoding: .utf8)
      }
      try set("1800000000000\n")
      let settings = try Settings(
        await SettingSource(
          flags: ["TENURE_CLOCK_FILE": file.path(percentEncoded: false)], environment: [:]))
      let clock = settings.clock
      #expect(settings.isClockSet)
      #expect(clock.longestSleep <= .milliseconds(20))
      #expect(clock.now().milliseconds == 1_800_000_000_000)
      for text in ["", "soon", "1800000000", "1799999999999"] {
        try set(text)
        #expect(clock.now().milliseconds == 1_800_000_000_000, "\(text)")
      }
      try FileManager.default.removeItem(at: file)
      #expect(clock.now().milliseconds == 1_800_000_000_000)
      try set("1800000000001")
      #expect(clock.now().milliseconds == 1_800_000_000_001)
    }
  }

  @Test("without one the time is the system's")
  func system() async throws {
    let settings = try Settings(await SettingSource(environment: [:]))
    #expect(!settings.isClockSet)
    let before = Timestamp.now
    #expect(settings.clock.now() >= before)
  }
}
