import Crypto
import Foundation

/// Whether Tenure sent this body within the last five minutes.
func isGenuine(_ header: String, body: Data, secret: String, now: Date = Date()) -> Bool {
  let fields = header.split(separator: ",").map { $0.split(separator: "=", maxSplits: 1) }
  func values(_ name: String) -> [Substring] {
    fields.filter { $0.count == 2 && $0[0] == name }.map { $0[1] }
  }
  guard let sent = values("t").first, let second = TimeInterval(sent),
    abs(now.timeIntervalSince1970 - second) <= 300
  else { return false }
  let key = SymmetricKey(data: Data(secret.utf8))
  return values("v1").contains { hex in
    let code = stride(from: 0, to: min(hex.count, 64), by: 2).compactMap {
      UInt8(hex.dropFirst($0).prefix(2), radix: 16)
    }
    return HMAC<SHA256>.isValidAuthenticationCode(
      code, authenticating: Data("\(sent).".utf8) + body, using: key)
  }
}
