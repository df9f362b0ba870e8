import Foundation

/// `chromedriver` with the Chromium that it starts, in a directory that is removed with them.
final class BrowserProcess: Sendable {
  /// What is missing on a machine on which the pages can't be looked at.
  struct DidNotStart: Error {
    let log: String
  }

  /// Chromium's start alone takes long where every processor is busy.
  static let patience: Duration = .seconds(120)
  private static let pause: Duration = .milliseconds(20)

  /// The program, if this machine has it; Ubuntu's only installs a snap, which sees no directory of
  /// ours.
  static var program: String? {
    let path = ProcessInfo.processInfo.environment["PATH"] ?? "/usr/bin:/bin"
    return path.split(separator: ":").map { "\($0)/chromedriver" }.first { file in
      let first = FileHandle(forReadingAtPath: file).flatMap { try? $0.read(upToCount: 4) }
      return first.map(Array.init) == [0x7F] + Array("ELF".utf8)
        && FileManager.default.isExecutableFile(atPath: file)
    }
  }

  /// Ends both, and whatever they started, when we say so or are no more: then the pipe that it
  /// reads has no other end.
  ///
  /// $1: the directory; $2…: the program.
  private static let script = """
    directory=$1
    shift
    setsid "$@" >"$directory/log" 2>&1 &
    driver=$!
    read -r line
    kill -s KILL -- "-$driver"
    wait "$driver"
    rm -rf "$directory" || { sleep 1; rm -rf "$directory"; }
    """

  /// Where everything is that the browser writes.
  let directory: URL
  private let input = Pipe()
  private let ended: AsyncStream<Never>

  init() throws {
    // Short, for Chromium makes a socket below it.
    directory = FileManager.default.temporaryDirectory
      .appending(path: "tenure-browser-\(UUID().uuidString.prefix(8))")
    try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
    let path = directory.path(percentEncoded: false)
    let process = Process()
    let (ended, continuation) = AsyncStream.makeStream(of: Never.self)
    self.ended = ended
    process.executableURL = URL(filePath: "/bin/sh")
    process.arguments = [
      "-c", Self.script, "tenure-browser", path, Self.program ?? "chromedriver", "--port=0",
    ]
    process.environment = ProcessInfo.processInfo.environment.merging([
      "HOME": path, "TMPDIR": path, "XDG_CACHE_HOME": path, "XDG_CONFIG_HOME": path,
    ]) { $1 }
    process.standardInput = input
    process.standardOutput = FileHandle.nullDevice
    process.standardError = FileHandle.nullDevice
    process.terminationHandler = { _ in continuation.finish() }
    do {
      try process.run()
    } catch {
      try? FileManager.default.removeItem(at: directory)
      throw error
    }
  }

  private var log: String {
    (try? String(contentsOf: directory.appending(path: "log"), encoding: .utf8)) ?? ""
  }

  /// Where `chromedriver` listens, once it does.
  var port: Int {
    get async throws {
      let end = ContinuousClock.now + Self.patience
      while ContinuousClock.now < end {
        if let port = log.firstMatch(of: /successfully on port (\d+)/).flatMap({ Int($0.1) }) {
          return port
        }
        try await Task.sleep(for: Self.pause)
      }
      throw DidNotStart(log: log)
    }
  }

  /// Ends everything, and waits until it is gone.
  func end() async {
    try? input.fileHandleForWriting.close()
    for await _ in ended {}
  }
}
