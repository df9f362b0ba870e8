import AppStore
import Crypto

import Foundation

/// Where an answer in pages goes on, and what was asked: nobody else's business.
///
/// Apple's `revision` and `paginationToken`: good only together with the query that they answer.
struct PageToken {
  /// In whatever counts the list.
  let position: Int64
  /// Breaks ties of the position.
  let second: Int64

  init(_ position: Int64, _ second: Int64 = 0) {
    self.position = position
    self.second = second
  }

  /// Nil for a token that was not made for this query.
  init?(_ text: String, of query: String) {
    guard let data = Base64URL.bytes(text) else { return nil }
    let parts = String(decoding: data, as: UTF8.self).split(
      separator: "_", omittingEmptySubsequences: false)
    guard parts.count == 3, let position = Int64(parts[0]), let second = Int64(parts[1]),
      parts[2] == Self.mark(query)
    else { return nil }
    self.init(position, second)
  }

  func text(of query: String) -> String {
    Base64URL.text("\(position)_\(second)_\(Self.mark(query))".utf8)
  }

  private static func mark(_ query: String) -> String {
    Base64URL.text(Array(SHA256.hash(data: Data(query.utf8)).prefix(9)))
      .replacing("_", with: "-")
  }
}
