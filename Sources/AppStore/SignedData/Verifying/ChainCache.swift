import Crypto
import Subscriptions
import Synchronization

/// A chain that has led to a trusted root, and what is needed of it from then on.
struct VerifiedChain: Sendable {
  /// With which all begins that the chain has signed: the header as it is encoded, and its dot.
  let prefix: String
  /// The leaf's.
  let key: P256.Signing.PublicKey
  let validity: Validity
  /// Begun with the prefix.
  let hash: SHA256
}

/// The chains that have been verified; few exist at a time.
///
/// Verifying a chain costs eighteen times what verifying a payload does: Apple's authorities sign
/// on P-384. A header is covered by the signature, and a chain enters only after a payload of its
/// own was verified: nobody but Apple can fill this.
final class ChainCache: Sendable {
  /// How many are kept; Apple has been seen to use two at a time.
  static let capacity = 64

  /// Compared one by one, for they differ in one of their first bytes.
  private let chains = Mutex<[VerifiedChain]>([])

  var count: Int { chains.withLock { $0.count } }

  /// The chain that a JWS begins with; an expired one is forgotten.
  func chain(of text: String, now: Timestamp) -> VerifiedChain? {
    chains.withLock { chains in
      guard let index = chains.firstIndex(where: { text.hasPrefix($0.prefix) }) else { return nil }
      guard now <= chains[index].validity.end else {
        chains.remove(at: index)
        return nil
      }
      return chains[index]
    }
  }

  /// Keeps a chain, unless it has expired; the one that expires first makes room.
  func remember(_ chain: VerifiedChain, now: Timestamp) {
    guard now <= chain.validity.end else { return }
    chains.withLock { chains in
      guard !chains.contains(where: { $0.prefix == chain.prefix }) else { return }
      if chains.count >= Self.capacity { chains.removeAll { $0.validity.end < now } }
      if chains.count >= Self.capacity,
        let first = chains.indices.min(by: { chains[$0].validity.end < chains[$1].validity.end })
      {
        chains.remove(at: first)
      }
      chains.append(chain)
    }
  }
}
