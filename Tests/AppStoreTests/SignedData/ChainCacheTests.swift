import Crypto
import JSONText
import Subscriptions
import Synchronization
import Testing
import X509

@testable import AppStore

/// The checks that a verified chain saves, and those that are repeated.
struct ChainCacheTests {
  private func jws(
    _ changes: [String: JSONValue?] = [:], leaf: TestLeaf = .apple
  ) throws -> String {
    try DraftJWS(Signed.transaction.with(changes)).with { $0.leaf = leaf }.text
  }

  @Test func `one chain is remembered once, whatever it signs`() async throws {
    let verifier = try Signed.verifier()
    #expect(await verifier.transaction(try jws()).reason == nil)
    #expect(await verifier.transaction(try jws(["transactionId": "12"])).reason == nil)
    let info = try DraftJWS(Signed.renewalInfo).text
    #expect(await verifier.renewalInfo(info).reason == nil)
    #expect(verifier.verifiedHeaders.count == 1)
  }

  @Test func `a known chain vouches for its own time only`() async throws {
    let now = try Timestamp("2025-06-14T12:00:00Z")
    let verifier = try Signed.verifier(now: { now })
    let leaf = TestAuthority.apple.leaf(until: "2025-06-15T00:00:00Z")
    let dates =
      [
        ("2025-06-15T00:00:00.999Z", nil), ("2025-06-15T00:00:01Z", .certificateExpired),
        ("2023-09-12T19:51:53Z", nil), ("2023-09-12T19:51:52.999Z", .certificateNotYetValid),
      ] as [(String, SignedDataError.Reason?)]
    for (date, reason) in dates {
      let date = JSONValue.integer(try Timestamp(date).milliseconds)
      #expect(
        await verifier.transaction(try jws(["signedDate": date], leaf: leaf)).reason == reason)
    }
  }

  @Test func `a chain goes when its leaf has expired, and what it has signed stays verifiable`()
    async throws
  {
    let clock = TestClock()
    let verifier = try Signed.verifier(now: { clock.time })
    let signed = try jws()
    #expect(await verifier.transaction(signed).reason == nil)
    #expect(verifier.verifiedHeaders.count == 1)
    clock.time = try Timestamp("2025-10-11T19:51:53Z")
    #expect(await verifier.transaction(signed).reason == nil)
    #expect(verifier.verifiedHeaders.count == 0)
  }

  @Test func `the cache is bounded, and what expires first makes room`() async throws {
    let cache = ChainCache()
    let hash = SHA256()
    let leaves = ["2026-01-01", "2025-07-01", "2025-05-01"].map {
      TestAuthority.apple.leaf(until: $0 + "T00:00:00Z")
    }
    func remember(_ leaf: TestLeaf, _ prefix: String) throws {
      let validity = try Validity(leaf.certificates)
      let chain = VerifiedChain(
        prefix: prefix, key: leaf.key.publicKey, validity: validity, hash: hash)
      cache.remember(chain, now: Signed.now)
    }
    let (long, short, expired) = (leaves[0], leaves[1], leaves[2])
    try remember(expired, "expired.")
    #expect(cache.headers.count == 0)
    try remember(short, "short.")
    for number in 0..<ChainCache.capacity + 10 {
      try remember(long, "\(number).")
      try remember(long, "\(number).")
      #expect(cache.headers.count <= ChainCache.capacity)
    }
    #expect(cache.headers.count == ChainCache.capacity)
    #expect(cache.chain(of: "short.a.b", now: Signed.now) == nil)
    #expect(cache.chain(of: "\(ChainCache.capacity + 9).a.b", now: Signed.now) != nil)
    // One that expires in between is found no longer, and all of them make room at once.
    let later = try Timestamp("2026-01-01T00:00:01Z")
    #expect(cache.chain(of: "\(ChainCache.capacity + 9).a.b", now: later) == nil)
    #expect(cache.headers.count == ChainCache.capacity - 1)
  }
}

/// A clock that a test sets.
private final class TestClock: Sendable {
  private let moment = Mutex(Signed.now)

  var time: Timestamp {
    get { moment.withLock { $0 } }
    set { moment.withLock { $0 = newValue } }
  }
}
