import Foundation

/// The memory of processes, where the system tells it.
enum ProcessMemory {
  /// In bytes, the most that a process has had; nil where the system does not tell.
  static func peak(of processID: Int32) -> Int? {
    guard let status = try? String(contentsOfFile: "/proc/\(processID)/status", encoding: .utf8),
      let match = status.firstMatch(of: /VmHWM:\s+([0-9]+) kB/), let kibibytes = Int(match.1)
    else { return nil }
    return kibibytes * 1024
  }

  /// Forgets what this process has had: its peak begins with what it has now.
  ///
  /// See [proc(5)](https://man7.org/linux/man-pages/man5/proc_pid_clear_refs.5.html).
  static func resetPeak() {
    try? FileHandle(forWritingTo: URL(filePath: "/proc/self/clear_refs")).write(
      contentsOf: Data("5".utf8))
  }
}
