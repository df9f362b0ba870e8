import Foundation

/// Where the server is reached.
struct ServerAddress: Sendable {
  let socketDirectory: String
  let port: Int
  let isOnLoopback: Bool

  func uri(database: String) -> String {
    "postgresql:///\(escaped(database))?host=\(escaped(socketDirectory))&port=\(port)"
      + "&user=\(PrivatePostgres.userName)"
  }

  func uri(database: String, or other: ServerAddress) -> String {
    "postgresql:///\(escaped(database))"
      + "?host=\(escaped(socketDirectory)),\(escaped(other.socketDirectory))"
      + "&port=\(port),\(other.port)&user=\(PrivatePostgres.userName)"
      + "&target_session_attrs=read-write&connect_timeout=2"
  }

  func loopbackURI(database: String, password: String?) -> String? {
    guard isOnLoopback, let password else { return nil }
    return "postgresql://\(PrivatePostgres.userName):\(escaped(password))@127.0.0.1:\(port)/"
      + escaped(database)
  }

  private func escaped(_ text: String) -> String {
    text.addingPercentEncoding(withAllowedCharacters: .alphanumerics) ?? text
  }
}
