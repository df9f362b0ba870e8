import AppStoreSimulator
import Subscriptions
import Testing

struct FaultPlanTests {
  private let noon = Stage.start + .hours(12)

  @Test func plansComeInTheirOrder() {
    var plan = FaultPlan(seed: 1)
    #expect(plan.takeFault(at: noon) == nil)
    plan.next = [.timeout, .status(21005)]
    plan.outageEnd = noon + .minutes(1)
    plan.rate = 1
    plan.kinds = [.html]
    #expect(plan.takeFault(at: noon) == .unavailable)
    #expect(plan.takeFault(at: noon + .minutes(1)) == .timeout)
    #expect(plan.takeFault(at: noon) == .status(21005))
    #expect(plan.takeFault(at: noon) == .html)
  }

  @Test func chanceIsTheSeeds() {
    func faults(_ seed: UInt64) -> [SimulatedFault?] {
      var plan = FaultPlan(seed: seed)
      plan.rate = 0.3
      return (0..<1000).map { _ in plan.takeFault(at: noon) }
    }
    #expect(faults(1) == faults(1))
    #expect(faults(1) != faults(2))
    #expect((250...350).contains(faults(1).compactMap(\.self).count))
    #expect(Set(faults(1).compactMap(\.self)) == Set(FaultPlan.usualKinds))
  }

  @Test(arguments: [
    ("timeout", SimulatedFault.timeout), ("reset", .reset), ("cut_off", .cutOff),
    ("unavailable", .unavailable), ("503", .unavailable), ("html", .html),
    ("truncated", .truncated), ("429", .tooManyRequests(retryAfterSeconds: 1)),
    ("429:30", .tooManyRequests(retryAfterSeconds: 30)), ("21005", .status(21005)),
    ("21100:retryable", .internalError(21100, isRetryable: true, asNumber: false)),
    ("21150:final", .internalError(21150, isRetryable: false, asNumber: false)),
    ("21199:1", .internalError(21199, isRetryable: true, asNumber: true)),
    ("21100:0", .internalError(21100, isRetryable: false, asNumber: true)),
    ("slow:250", .slow(milliseconds: 250)), ("large:1000", .large(bytes: 1000)),
  ])
  func names(_ name: String, _ fault: SimulatedFault) {
    #expect(SimulatedFault(name: name) == fault)
  }

  @Test(arguments: [
    "", "nonsense", "slow", "slow:x", "slow:-1", "20999", "21200", "21100:maybe", "timeout:1",
    "429:-1", "large:999999999999",
  ])
  func wrongNames(_ name: String) {
    #expect(SimulatedFault(name: name) == nil)
  }

  @Test func theSequenceIsVignas() {
    // For seed 1234567, from the reference implementation's published test vector.
    var random = SplitMix64(seed: 1_234_567)
    let expected: [UInt64] = [
      6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423,
    ]
    #expect((0..<3).map { _ in random.next() } == expected)
  }
}
