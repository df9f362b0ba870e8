/// An address of the Internet Protocol, version 4 or 6.
struct IPAddress: Hashable, Sendable {
  /// 4 or 16 of them.
  let bytes: [UInt8]

  /// Nil for what is no address in its usual form.
  ///
  /// Forms that only some libraries understand (`127.1`, `0x7f000001`, `017700000001`) are none: a
  /// resolver turns them into the usual one.
  init?(_ text: some StringProtocol) {
    // What follows is the interface over which a local address is reached.
    let text = text.prefix { $0 != "%" }
    guard let bytes = text.contains(":") ? Self.version6(text) : Self.version4(text) else {
      return nil
    }
    self.bytes = bytes
  }

  private init(bytes: some Sequence<UInt8>) {
    self.bytes = Array(bytes)
  }

  /// Whether it belongs to a host in the public Internet, and not to this machine, its networks or
  /// nobody.
  var isPublic: Bool {
    if bytes.count == 4 { return !Self.reserved4.contains { $0.contains(self) } }
    if let inner = embedded { return inner.isPublic }
    return Self.global6.contains(self) && !Self.reserved6.contains { $0.contains(self) }
  }

  /// The address of version 4 to which packets go in the end: mapped, or behind a translator.
  private var embedded: IPAddress? {
    guard [Self.mapped, Self.translated].contains(where: { $0.contains(self) }) else { return nil }
    return IPAddress(bytes: bytes.suffix(4))
  }

  // MARK: Networks

  /// The addresses that begin with the same bits.
  private struct Network: Sendable {
    let first: [UInt8]
    let bits: Int

    init(_ first: [UInt8], _ bits: Int) {
      self.first = first
      self.bits = bits
    }

    func contains(_ address: IPAddress) -> Bool {
      let (whole, rest) = bits.quotientAndRemainder(dividingBy: 8)
      guard zip(first.prefix(whole), address.bytes).allSatisfy({ $0 == $1 }) else { return false }
      return rest == 0 || (first[whole] ^ address.bytes[whole]) >> (8 - rest) == 0
    }
  }

  /// https://www.iana.org/assignments/iana-ipv4-special-registry, with multicast.
  private static let reserved4 = [
    Network([0], 8),
    Network([10], 8),
    // Behind the translators of carriers (RFC 6598).
    Network([100, 64], 10),
    Network([127], 8),
    // Link-local; clouds tell secrets at 169.254.169.254.
    Network([169, 254], 16),
    Network([172, 16], 12),
    Network([192, 0, 0], 24),
    Network([192, 0, 2], 24),
    Network([192, 88, 99], 24),
    Network([192, 168], 16),
    Network([198, 18], 15),
    Network([198, 51, 100], 24),
    Network([203, 0, 113], 24),
    // Multicast, and what is above it, up to broadcast.
    Network([224], 3),
  ]

  /// The only ones of version 6 that are given to hosts in the Internet (RFC 4291).
  private static let global6 = Network([0x20], 3)
  /// https://www.iana.org/assignments/iana-ipv6-special-registry, as far as it is in ``global6``.
  private static let reserved6 = [
    // Protocols of their own, among them Teredo.
    Network([0x20, 0x01, 0x00], 23),
    Network([0x20, 0x01, 0x0d, 0xb8], 32),
    // 6to4, which leads to any address of version 4.
    Network([0x20, 0x02], 16),
    Network([0x3f, 0xff, 0x00], 20),
  ]
  private static let mapped = Network([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff], 96)
  /// NAT64 (RFC 6052).
  private static let translated = Network([0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0], 96)

  // MARK: Reading

  private static func version4(_ text: some StringProtocol) -> [UInt8]? {
    let parts = text.split(separator: ".", omittingEmptySubsequences: false)
    let bytes = parts.compactMap { part in
      part.utf8.allSatisfy { (0x30...0x39).contains($0) } && (part == "0" || part.first != "0")
        ? UInt8(part) : nil
    }
    return parts.count == 4 && bytes.count == 4 ? bytes : nil
  }

  private static func version6(_ text: some StringProtocol) -> [UInt8]? {
    // At most one gap, of at least one group, stands for zeros.
    let halves = String(text).split(separator: "::", omittingEmptySubsequences: false)
    guard halves.count <= 2 else { return nil }
    let groups = halves.enumerated().map { index, half in
      bytes(of: half, mayEndInVersion4: index == halves.count - 1)
    }
    guard let head = groups[0], let tail = groups.last ?? nil else { return nil }
    guard halves.count == 2 else { return head.count == 16 ? head : nil }
    let gap = 16 - head.count - tail.count
    return gap >= 2 ? head + Array(repeating: 0, count: gap) + tail : nil
  }

  private static func bytes(of groups: Substring, mayEndInVersion4: Bool) -> [UInt8]? {
    guard !groups.isEmpty else { return [] }
    let parts = groups.split(separator: ":", omittingEmptySubsequences: false)
    var bytes: [UInt8] = []
    for (index, part) in parts.enumerated() {
      if mayEndInVersion4, index == parts.count - 1, part.contains(".") {
        guard let end = version4(part) else { return nil }
        bytes += end
      } else {
        guard (1...4).contains(part.utf8.count), part.allSatisfy(\.isHexDigit),
          let group = UInt16(part, radix: 16)
        else { return nil }
        bytes += [UInt8(group >> 8), UInt8(group & 0xff)]
      }
    }
    return bytes
  }
}
