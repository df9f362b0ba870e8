import Foundation

/// A small shell process that stops the server when we end, be it by `kill -9`.
///
/// It reads a pipe of which only we have the other end, and which therefore ends with us. All who
/// use the server hold its lock file shared, through their watchdogs; the one who can lock it alone
/// was the last and stops the server.
final class Watchdog: Sendable {
  /// $1: the data directory; $2: the lock file; $3…: what to remove afterwards.
  private static let script = """
    trap '' INT TERM HUP
    data=$1 lock=$2
    shift 2
    exec 9>>"$lock"
    flock -s 9
    echo watching
    while read -r line; do :; done
    flock -u 9
    flock -n -x 9 || exit 0
    pid=$(head -n 1 "$data/postmaster.pid" 2>/dev/null)
    # The number of a server that has crashed may be another program's by now.
    if [ -e /proc/self/cmdline ] && ! grep -qa postgres "/proc/$pid/cmdline" 2>/dev/null; then
      pid=
    fi
    if [ -n "$pid" ]; then
      kill -INT "$pid" 2>/dev/null
      waited=0
      while kill -0 "$pid" 2>/dev/null; do
        sleep 0.05
        waited=$((waited + 1))
        [ "$waited" = 200 ] && kill -QUIT "$pid" 2>/dev/null
        [ "$waited" = 400 ] && kill -KILL "$pid" 2>/dev/null
      done
    fi
    [ $# -gt 0 ] && rm -rf "$@"
    exit 0
    """

  private let input: Pipe
  private let ended: AsyncStream<Never>

  private init(input: Pipe, ended: AsyncStream<Never>) {
    self.input = input
    self.ended = ended
  }

  /// Starts watching; returns when the lock is held, so that nobody else stops the server from here
  /// on.
  static func start(
    for directory: ServerDirectory, removing isTemporary: Bool
  ) async throws -> Watchdog {
    let process = Process()
    let (ended, continuation) = AsyncStream.makeStream(of: Never.self)
    process.executableURL = URL(filePath: "/usr/bin/env")
    // A session of its own, lest Ctrl-C in the terminal reach it or the server before we have
    // finished.
    process.arguments =
      Command.inSession + [
        "sh", "-c", script, "tenure-watchdog", directory.data, directory.lockFile,
      ]
      + (isTemporary ? [directory.path, directory.socketDirectory] : [])
    process.currentDirectoryURL = URL(filePath: "/")
    let output = Pipe()
    let input = Pipe()
    process.standardInput = input
    process.standardOutput = output
    process.standardError = FileHandle.nullDevice
    process.terminationHandler = { _ in continuation.finish() }
    try process.run()
    await firstOutput(of: output.fileHandleForReading)
    return Watchdog(input: input, ended: ended)
  }

  private static func firstOutput(of file: FileHandle) async {
    let (output, continuation) = AsyncStream.makeStream(of: Void.self)
    // May be called once more before it is taken away.
    file.readabilityHandler = { file in
      file.readabilityHandler = nil
      continuation.finish()
    }
    for await _ in output {}
  }

  /// Lets the watchdog do its work now, and waits until it has.
  func end() async {
    try? input.fileHandleForWriting.close()
    for await _ in ended {}
  }
}
