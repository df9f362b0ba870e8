import Testing

@testable import Bootstrap
@testable import Development
@testable import Intake
@testable import tenure

@Suite("The progress of tenure import")
struct ImportBarTests {
  struct Case: Sendable, CustomTestStringConvertible {
    let testDescription: String
    let lines, errors, bytesRead: Int
    let bytes: Int?
    let milliseconds: Int
    let text: String

    init(
      _ name: String, _ lines: Int, _ errors: Int, read bytesRead: Int, of bytes: Int?,
      after milliseconds: Int, _ text: String
    ) {
      testDescription = name
      self.lines = lines
      self.errors = errors
      self.bytesRead = bytesRead
      self.bytes = bytes
      self.milliseconds = milliseconds
      self.text = text
    }
  }

  private static func bar(_ done: Int) -> String {
    "[" + String(repeating: "#", count: done) + String(repeating: ".", count: 40 - done) + "]"
  }

  // swift-format-ignore
  static let cases: [Case] = [
    Case("nothing yet",            0,   0, read: 0,     of: 1000, after: 0,    "0 lines, 0/s, 0 errors"),
    Case("begun at this moment",   5,   0, read: 10,    of: 1000, after: 0,    "\(bar(0)) 1%, 5 lines, 5000/s, 0 errors, 1 s left"),
    Case("a quarter",              500, 2, read: 250,   of: 1000, after: 2000, "\(bar(10)) 25%, 500 lines, 250/s, 2 errors, 6 s left"),
    Case("a part of a second",     10,  0, read: 990,   of: 1000, after: 1500, "\(bar(39)) 99%, 10 lines, 6/s, 0 errors, 1 s left"),
    Case("all",                    900, 0, read: 1000,  of: 1000, after: 3000, "\(bar(40)) 100%, 900 lines, 300/s, 0 errors, 0 s left"),
    Case("the file has grown",     900, 1, read: 1500,  of: 1000, after: 3000, "\(bar(40)) 100%, 900 lines, 300/s, 1 errors, 0 s left"),
    Case("of unknown length",      900, 0, read: 1000,  of: nil,  after: 3000, "900 lines, 300/s, 0 errors"),
    Case("an empty file",          0,   0, read: 0,     of: 0,    after: 1000, "0 lines, 0/s, 0 errors"),
  ]

  @Test("the part, the lines, their rate, the errors and the time left", arguments: cases)
  func text(_ row: Case) {
    var summary = OwnerImport.Summary()
    summary.lines = row.lines
    summary.errors = row.errors
    summary.bytesRead = row.bytesRead
    #expect(
      ProgressBar.text(summary, of: row.bytes, after: .milliseconds(row.milliseconds)) == row.text)
  }
}
