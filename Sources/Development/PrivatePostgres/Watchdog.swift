import Foundation

/// A small shell process that stops the server when this process ends, even by `kill -9`.
///
/// It reads a pipe whose other end only this process has, so that its input ends with this process.
/// The watchdogs of all processes using the server hold a shared lock on its lock file; the one
/// that can lock it exclusively is the last and stops the server.
final class Watchdog: Sendable {
  /// $1: data directory; $2: lock file; $3 and following: paths to remove afterwards.
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
    # After a crash, the process ID may have been reused by another program.
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

  /// Starts watching; returns once the shared lock is held, so that no other watchdog stops the
  /// server.
  static func start(
    for directory: ServerDirectory, removing isTemporary: Bool
  ) async throws -> Watchdog {
    let process = Process()
    let (ended, continuation) = AsyncStream.makeStream(of: Never.self)
    process.executableURL = URL(filePath: "/usr/bin/env")
    // In its own session, so that the terminal's Ctrl-C does not reach the server before this
    // process has finished.
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
    // May be called once more before the handler is removed.
    file.readabilityHandler = { file in
      file.readabilityHandler = nil
      continuation.finish()
    }
    for await _ in output {}
  }

  /// Makes the watchdog stop the server now, and waits for it.
  func end() async {
    try? input.fileHandleForWriting.close()
    for await _ in ended {}
  }
}
