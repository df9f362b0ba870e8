/// Changes bytes as accidents and forgers do, to see what a parser makes of them.
///
/// The same seed gives the same changes on every machine: what was found can be found again.
package struct ByteMutator {
  /// Bytes that mean something to one of the formats: ASN.1's tags and lengths, JSON's marks.
  private static let meaningful: [UInt8] =
    [0x00, 0x01, 0x04, 0x24, 0x30, 0x31, 0x7f, 0x80, 0x82, 0x84, 0xa0, 0xff]
    + Array("{}[]\":,\\.= e-09".utf8)
  /// The longest piece that is taken out, put in or moved, in bytes.
  private static let longestPiece = 64

  private var state: UInt64

  /// The changes that belong to the seed, from the first.
  package init(seed: UInt64) {
    state = seed
  }

  /// The bytes with one to eight changes.
  package mutating func mutated(_ bytes: [UInt8]) -> [UInt8] {
    var bytes = bytes
    for _ in 0...below(8) { change(&bytes) }
    return bytes
  }

  private mutating func change(_ bytes: inout [UInt8]) {
    guard !bytes.isEmpty else { return bytes.append(meaningfulByte()) }
    let position = below(bytes.count)
    let piece = position..<min(bytes.count, position + 1 + below(Self.longestPiece))
    switch below(8) {
    case 0: bytes[position] ^= 1 << UInt8(below(8))
    case 1: bytes[position] = UInt8(below(256))
    case 2, 3: bytes[position] = meaningfulByte()
    case 4: bytes.removeSubrange(piece)
    case 5: bytes.insert(contentsOf: bytes[piece], at: below(bytes.count))
    case 6:
      let repeated = [meaningfulByte(), meaningfulByte()]
      bytes.insert(
        contentsOf: (0...below(Self.longestPiece)).flatMap { _ in repeated }, at: position)
    default: if below(8) == 0 { bytes.removeSubrange(position...) }
    }
  }

  private mutating func meaningfulByte() -> UInt8 {
    Self.meaningful[below(Self.meaningful.count)]
  }

  private mutating func below(_ limit: Int) -> Int { Int(next() % UInt64(limit)) }

  /// Sebastiano Vigna's SplitMix64 (https://prng.di.unimi.it/splitmix64.c).
  private mutating func next() -> UInt64 {
    state &+= 0x9E37_79B9_7F4A_7C15
    var mixed = state
    mixed = (mixed ^ (mixed >> 30)) &* 0xBF58_476D_1CE4_E5B9
    mixed = (mixed ^ (mixed >> 27)) &* 0x94D0_49BB_1331_11EB
    return mixed ^ (mixed >> 31)
  }
}
