import HTTPTypes
import HummingbirdCore
import Subscriptions

/// What a caller says of copies: the header field `Cache-Control` of a request.
enum CacheControl {
  /// Whether a value asks for an answer that is no copy's (RFC 9111, section 5.2.1.4).
  static func asksForCurrent(_ value: String) -> Bool {
    value.isASCII
      && value.lowercased().split(separator: ",").contains {
        $0.trimmingPrefix(while: \.isWhitespace).hasPrefix("no-cache")
      }
  }
}

extension Request {
  /// Whether a replica may answer.
  var mayLag: Bool { !headers[values: .cacheControl].contains(where: CacheControl.asksForCurrent) }
}
