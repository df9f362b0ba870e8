import Foundation
import Testing

/// A generator that gives the same numbers for the same seed (SplitMix64).
struct SeededGenerator: RandomNumberGenerator {
  private var state: UInt64

  init(seed: UInt64) { state = seed }

  mutating func next() -> UInt64 {
    state &+= 0x9E37_79B9_7F4A_7C15
    var z = state
    z = (z ^ (z >> 30)) &* 0xBF58_476D_1CE4_E5B9
    z = (z ^ (z >> 27)) &* 0x94D0_49BB_1331_11EB
    return z ^ (z >> 31)
  }

  /// One of the choices, each as likely as it is listed often.
  mutating func pick<Value>(_ choices: Value...) -> Value { pick(from: choices) }

  mutating func pick<Value>(from choices: [Value]) -> Value {
    choices[Int.random(in: choices.indices, using: &self)]
  }

  mutating func number(_ range: ClosedRange<Int>) -> Int { .random(in: range, using: &self) }

  /// True once in so many times.
  mutating func once(in times: Int) -> Bool { number(1...times) == 1 }
}

/// Checks a property for many random inputs, fresh ones in every run.
///
/// The seed is printed, and the environment's `TENURE_TEST_SEED` shows a failure again;
/// `TENURE_TEST_TIMES` asks for so many times as many.
///
/// - Parameters:
///   - name: The property.
///   - iterations: How many inputs.
///   - violation: Makes an input from the generator, and says how it violates the property.
func forAll(
  _ name: String, iterations: Int, _ violation: (inout SeededGenerator) -> String?
) {
  let environment = ProcessInfo.processInfo.environment
  let iterations = iterations * (environment["TENURE_TEST_TIMES"].flatMap(Int.init) ?? 1)
  var system = SystemRandomNumberGenerator()
  let first = environment["TENURE_TEST_SEED"].flatMap(UInt64.init) ?? system.next() >> 16
  print("\(name): \(iterations) times from TENURE_TEST_SEED=\(first)")
  for offset in 0..<UInt64(iterations) {
    var generator = SeededGenerator(seed: first &+ offset)
    if let violation = violation(&generator) {
      Issue.record("\(name): not so with TENURE_TEST_SEED=\(first &+ offset): \(violation)")
      return
    }
  }
}
