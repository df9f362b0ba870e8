import AppStoreSimulator
import Foundation

/// Where a run keeps the input that is tried now, for whoever finds it dead.
struct FuzzDirectory: Sendable {
  let url: URL

  var input: URL { url.appending(path: "input") }
  var context: URL { url.appending(path: "context") }
}

/// One target, tried in this process until its time is over: it dies of what it finds.
struct FuzzRun: Sendable {
  let target: FuzzTarget
  let subject: any FuzzSubject
  let directory: FuzzDirectory

  /// What came of a run that nothing was found in.
  struct Summary: Sendable, Codable {
    var inputs = 0
    var accepted = 0
  }

  /// Tries inputs that follow from a seed.
  ///
  /// - Throws: ``FuzzFinding``, or what keeps the input from being written down.
  func run(seed: UInt64, for duration: Duration) async throws -> Summary {
    try Data(subject.context.utf8).write(to: directory.context)
    try Data().write(to: directory.input)
    let file = try FileHandle(forWritingTo: directory.input)
    defer { try? file.close() }
    var random = SplitMix64(seed: seed)
    var summary = Summary()
    let end = ContinuousClock.now + duration
    while ContinuousClock.now < end {
      let isAccepted = try await subject.tryNext(&random) { input in
        try file.seek(toOffset: 0)
        try file.write(contentsOf: input.bytes)
        try file.truncate(atOffset: UInt64(input.bytes.count))
      }
      summary.inputs += 1
      if isAccepted { summary.accepted += 1 }
    }
    return summary
  }
}
