import Crypto
import Subscriptions
import Synchronization

/// A chain that has led to a trusted root, and what is needed of it from then on.
struct VerifiedChain: Sendable {
  /// The leaf's.
  let key: P256.Signing.PublicKey
  let validity: Validity
  /// Begun with the header and its dot, which are the same in all that the chain has signed.
  let hash: SHA256
}

/// The chains that have been verified; few exist at a time.
///
/// Verifying a chain costs eighteen times what verifying a payload does: Apple's authorities sign
/// on P-384. Keyed by the header as it stands in the JWS. A header is covered by the signature, and
/// a chain enters only after a payload of its own was verified: nobody but Apple can fill this.
final class ChainCache: Sendable {
  /// How many are kept; Apple has been seen to use two at a time.
  static let capacity = 64

  private let chains = Mutex<[String: VerifiedChain]>([:])

  var count: Int { chains.withLock { $0.count } }

  /// The chain of a header; an expired one is forgotten.
  func chain(_ header: String, now: Timestamp) -> VerifiedChain? {
    chains.withLock { chains in
      guard let chain = chains[header] else { return nil }
      guard now <= chain.validity.end else {
        chains[header] = nil
        return nil
      }
      return chain
    }
  }

  /// Keeps a chain, unless it has expired; the one that expires first makes room.
  func remember(_ chain: VerifiedChain, _ header: String, now: Timestamp) {
    guard now <= chain.validity.end else { return }
    chains.withLock { chains in
      if chains.count >= Self.capacity, chains[header] == nil {
        chains = chains.filter { now <= $0.value.validity.end }
      }
      if chains.count >= Self.capacity, chains[header] == nil,
        let first = chains.min(by: { $0.value.validity.end < $1.value.validity.end })
      {
        chains[first.key] = nil
      }
      chains[header] = chain
    }
  }
}
