/// What a running server writes to `postmaster.pid`, a line each; miscadmin.h of PostgreSQL numbers
/// them.
struct PostmasterFile: Sendable {
  let processID: Int32
  let port: Int?
  let socketDirectory: String?
  let listensOn: String?
  let status: String?

  init?(_ text: String) {
    let lines = text.split(separator: "\n", omittingEmptySubsequences: false)
      .map { String($0.trimmingPrefix(while: \.isWhitespace)) }
    func line(_ number: Int) -> String? {
      guard lines.count >= number, !lines[number - 1].isEmpty else { return nil }
      return lines[number - 1]
    }
    guard let processID = line(1).flatMap({ Int32($0) }) else { return nil }
    self.processID = abs(processID)
    port = line(4).flatMap { Int($0) }
    socketDirectory = line(5)
    listensOn = line(6)
    status = line(8)
  }

  /// Where it accepts connections, if it does by now.
  var address: ServerAddress? {
    guard status?.hasPrefix("ready") == true, let port, let socketDirectory else { return nil }
    return ServerAddress(
      socketDirectory: socketDirectory, port: port, isOnLoopback: listensOn != nil)
  }
}
