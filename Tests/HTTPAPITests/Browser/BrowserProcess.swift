import Foundation

/// `chromedriver` with its Chromium, in a temporary directory.
final class BrowserProcess: Sendable {
  /// The reason why the browser can't be used.
  struct DidNotStart: Error {
    let log: String
  }

  /// Chromium starts slowly on a busy machine.
  static let patience: Duration = .seconds(120)
  private static let pause: Duration = .milliseconds(20)

  /// The program's path, if installed; Ubuntu's package is a snap, which can't use our directories.
  static var program: String? {
    let path = ProcessInfo.processInfo.environment["PATH"] ?? "/usr/bin:/bin"
    return path.split(separator: ":").map { "\($0)/chromedriver" }.first { file in
      let first = FileHandle(forReadingAtPath: file).flatMap { try? $0.read(upToCount: 4) }
      return first.map(Array.init) == [0x7F] + Array("ELF".utf8)
        && FileManager.default.isExecutableFile(atPath: file)
    }
  }

  /// A script that ends both, with their children, when the pipe on its standard input closes: on
  /// request, or when the test process ends.
  ///
  /// It does not use `wait`: the test process may start it with SIGCHLD blocked.
  ///
  /// $1: the directory; $2…: the program.
  private static let script = """
    directory=$1
    shift
    setsid "$@" >"$directory/log" 2>&1 &
    driver=$!
    read -r line
    kill -s KILL -- "-$driver"
    tries=0
    until sleep 0.1 && rm -rf "$directory" || [ "$tries" = 50 ]; do
      tries=$((tries + 1))
    done
    """

  /// The directory of all files that the browser writes.
  let directory: URL
  private let input = Pipe()
  private let ended: AsyncStream<Never>

  init() throws {
    // Short, since Chromium creates a socket in it.
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

  /// The port of `chromedriver`, once it listens.
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

  /// Ends all processes and waits for their end.
  func end() async {
    try? input.fileHandleForWriting.close()
    for await _ in ended {}
  }
}
