import Foundation
import Logging
import Synchronization
import Testing

@testable import Bootstrap
@testable import Development
@testable import Intake
@testable import Observability
@testable import tenure

@Suite("Logs as JSON")
struct LogFormatTests {
  /// The written lines.
  private final class Lines: Sendable {
    private let lines = Mutex<[String]>([])

    var all: [String] { lines.withLock(\.self) }

    func add(_ line: String) { lines.withLock { $0.append(line) } }
  }

  @Test("every line is one object, whatever is in it")
  func lines() throws {
    let lines = Lines()
    var logger = Logger(label: "test") { label in
      JSONLogHandler(
        label: label, metadataProvider: LogContext.metadataProvider, write: { lines.add($0) })
    }
    logger[metadataKey: "own"] = "a"
    let logContext = LogContext.request(id: "4711")
    LogContext.$current.withValue(logContext) {
      logger.warning("Two\nlines and a \"quote\"", metadata: ["x": "\\", "time": "late"])
    }
    logger.debug("It is not grave enough")
    logger.info("Outside of a request")
    #expect(lines.all.count == 2)
    let objects = try lines.all.map { line in
      #expect(line.hasSuffix("\n"))
      #expect(!line.dropLast().contains("\n"))
      return try JSONDecoder().decode([String: String].self, from: Data(line.utf8))
    }
    let first = objects[0]
    #expect(first["message"] == "Two\nlines and a \"quote\"")
    #expect(first["level"] == "warning")
    #expect(first["logger"] == "test")
    #expect(first["own"] == "a")
    #expect(first["x"] == "\\")
    #expect(first["request.id"] == "4711")
    #expect(first["metadata.time"] == "late")
    #expect(first["time"]?.hasSuffix("Z") == true)
    #expect(objects[1]["request.id"] == nil)
  }
}
