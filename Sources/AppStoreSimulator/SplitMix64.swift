/// Sebastiano Vigna's SplitMix64: a small generator whose whole state is one number.
///
/// The simulation owns its generator, because the standard library promises no sequence: the same
/// seed has to give the same App Store on every machine and with every compiler.
/// https://prng.di.unimi.it/splitmix64.c
package struct SplitMix64: RandomNumberGenerator, Sendable {
  private var state: UInt64

  /// A generator at the beginning of the seed's sequence.
  package init(seed: UInt64) {
    state = seed
  }

  /// The next 64 random bits.
  package mutating func next() -> UInt64 {
    state &+= 0x9E37_79B9_7F4A_7C15
    var mixed = state
    mixed = (mixed ^ (mixed >> 30)) &* 0xBF58_476D_1CE4_E5B9
    mixed = (mixed ^ (mixed >> 27)) &* 0x94D0_49BB_1331_11EB
    return mixed ^ (mixed >> 31)
  }

  /// A number from `range`, with a bias too small to matter for ranges far below 2^64.
  package mutating func number(in range: ClosedRange<Int>) -> Int {
    range.lowerBound + Int(next() % UInt64(range.upperBound - range.lowerBound + 1))
  }

  /// Whether an event of the given probability happens; `probability` from 0 to 1.
  package mutating func chance(_ probability: Double) -> Bool {
    Double(next() >> 11) * 0x1p-53 < probability
  }

  /// One of `choices`; nil only where there are none.
  package mutating func choice<Choices: RandomAccessCollection>(of choices: Choices)
    -> Choices.Element?
  {
    guard !choices.isEmpty else { return nil }
    let distance = number(in: 0...(choices.count - 1))
    return choices[choices.index(choices.startIndex, offsetBy: distance)]
  }

  /// The elements in another order (Fisher-Yates, written out because the standard library's
  /// order of draws is not promised either).
  package mutating func shuffled<Element>(_ elements: [Element]) -> [Element] {
    var result = elements
    for index in result.indices.reversed().dropLast() {
      result.swapAt(index, number(in: 0...index))
    }
    return result
  }
}
