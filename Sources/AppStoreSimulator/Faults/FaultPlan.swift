package import Subscriptions

/// Which requests to the simulated App Store fail, and how.
///
/// Three plans in this order: an outage until a moment, faults for the next requests one by one,
/// and a share of all requests by chance from a seed.
package struct FaultPlan: Sendable {
  /// Answered until `outageEnd` by `outage`.
  package var outageEnd: Timestamp?
  /// What every request meets during the outage.
  package var outage = SimulatedFault.unavailable
  /// What the next requests meet, one each.
  package var next: [SimulatedFault] = []
  /// The share of requests that fail by chance; from 0 to 1.
  package var rate = 0.0
  /// What a request that fails by chance meets, each as likely as it is often here.
  package var kinds: [SimulatedFault] = FaultPlan.usualKinds

  private var random: SplitMix64

  /// A plan without faults, whose chance comes from the seed.
  package init(seed: UInt64) {
    random = SplitMix64(seed: seed)
  }

  /// What clients of verifyReceipt have reported, except for what takes a client's whole timeout.
  package static let usualKinds: [SimulatedFault] = [
    .reset, .cutOff, .unavailable, .html, .truncated, .tooManyRequests(retryAfterSeconds: 1),
    .status(21002), .status(21005), .status(21009),
    .internalError(21100, isRetryable: true, asNumber: true),
    .internalError(21199, isRetryable: true, asNumber: false), .slow(milliseconds: 50),
  ]

  /// The same of clients of the App Store Server API.
  package static let usualServerKinds: [SimulatedFault] = [
    .reset, .cutOff, .unavailable, .html, .truncated, .tooManyRequests(retryAfterSeconds: 1),
    .serverError(5_000_000), .serverError(5_000_001), .serverError(4_040_002),
    .slow(milliseconds: 50),
  ]

  /// The fault that a request at `moment` meets; nil: it is answered well.
  package mutating func takeFault(at moment: Timestamp) -> SimulatedFault? {
    if let outageEnd {
      if moment < outageEnd { return outage }
      self.outageEnd = nil
    }
    if !next.isEmpty { return next.removeFirst() }
    guard rate > 0, random.chance(rate) else { return nil }
    return random.choice(of: kinds)
  }
}
