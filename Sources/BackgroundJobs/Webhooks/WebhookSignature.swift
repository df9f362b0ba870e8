import Crypto
import Foundation
import Secrets
import Subscriptions

/// How a receiver knows that an event is ours, and new.
///
/// `t=UNIX,v1=HEX`: the second in which it was sent, and the HMAC-SHA-256 of that second, a full
/// stop and the body. With two secrets there are two of the latter.
enum WebhookSignature {
  static let field = "Tenure-Signature"

  static func value(of body: [UInt8], secrets: [Secret<String>], at now: Timestamp) -> String {
    let second = "\(now.milliseconds / 1000)"
    let signatures = secrets.map { secret in
      var code = HMAC<SHA256>(key: SymmetricKey(data: Data(secret.revealed.utf8)))
      code.update(data: Data((second + ".").utf8))
      code.update(data: body)
      return "v1="
        + code.finalize().map { byte in
          (byte < 16 ? "0" : "") + String(byte, radix: 16)
        }.joined()
    }
    return (["t=" + second] + signatures).joined(separator: ",")
  }
}
