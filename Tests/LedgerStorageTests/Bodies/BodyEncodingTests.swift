import Foundation
import Subscriptions
import Testing

@testable import LedgerStorage

/// Bodies without what another row has, given back byte by byte.
struct BodyEncodingTests {
  private static let apple = ChainHeader(header(of: "apple"))
  private static let other = ChainHeader(header(of: "other"))

  private static func base64(url bytes: some Sequence<UInt8>) -> String {
    Data(bytes).base64EncodedString().replacing("+", with: "-").replacing("/", with: "_")
      .replacing("=", with: "")
  }

  /// A header as long as one with three certificates.
  private static func header(of signer: String) -> String {
    let certificate = String(repeating: Data(signer.utf8).base64EncodedString(), count: 150)
    return base64(
      url: #"{"alg":"ES256","x5c":["\#(certificate)","\#(certificate)","\#(certificate)"]}"#.utf8)
  }

  private static func jws(_ payload: String, by header: ChainHeader) -> String {
    "\(String(decoding: header.bytes, as: UTF8.self)).\(base64(url: payload.utf8))."
      + base64(url: (0..<64).map { UInt8($0) &* 37 })
  }

  private static func isExact(_ body: [UInt8], knowing headers: [ChainHeader]) -> Bool {
    let (content, missing) = BodyEncoding.split(body, leavingOut: headers)
    return BodyEncoding.join(content, with: missing) == body
      && Set(BodyEncoding.missingHeaders(of: content)) == Set(missing.map(\.digest))
      && (missing.isEmpty || BodyEncoding.join(content, with: []) == nil)
  }

  @Test func `a notification lacks all its certificates`() {
    let transaction = Self.jws(#"{"transactionId":"1"}"#, by: Self.apple)
    let renewal = Self.jws(#"{ "autoRenewStatus" : 1 }"#, by: Self.apple)
    let body = Self.jws(
      #"{"data": {"signedTransactionInfo": "\#(transaction)","signedRenewalInfo":"\#(renewal)"}}"#,
      by: Self.apple)
    let (content, missing) = BodyEncoding.split(
      Array(body.utf8), leavingOut: [Self.other, Self.apple])
    #expect(missing == [Self.apple])
    #expect(content.count < 500)
    #expect(BodyEncoding.join(content, with: [Self.other, Self.apple]) == Array(body.utf8))
    #expect(BodyEncoding.join(content, with: [Self.other]) == nil)
  }

  /// Bodies with the number of headers that their encodings lack.
  private static let odd: [(body: String, headers: Int)] = {
    let (known, unknown) = (jws("{}", by: apple), jws("{}", by: other))
    let header = String(decoding: apple.bytes, as: UTF8.self)
    let base64 = String(repeating: "MII+", count: 40)
    let inner = Data("{\(known)}".utf8).base64EncodedString()
    let nested = jws(#"{"a": "\#(unknown)"}"#, by: apple)
    let whole = [
      "", "a.b.c", #"{"status":21007}"#, "MIIB+w", "MIIB\n+w==", "====", unknown, header,
      "\(header).", known.replacing(".", with: ". "), String(known.dropLast(90)),
      // Surplus bits.
      "MIIB+x==", "\(header).e30.e31", base64 + "=", base64 + "==", base64 + "MIIB+x==",
      base64 + "MIIB\n", "\(base64).\(base64)", "MIIB+w==", "MII=",
    ]
    let signed = [
      known, jws("", by: apple), "\(known)\n\(unknown)", nested, "{\(known)", "\(known)=",
      "\(known).x", "\(header)..", known.replacing(".", with: ".a"),
      known.replacing(".", with: ".."), inner, #"{"receipt": "\#(inner)"}"#,
    ]
    return whole.map { ($0, 0) } + signed.map { ($0, 1) }
  }()

  @Test(arguments: odd)
  func `odd bodies are as they were`(body: String, headers: Int) {
    let bytes = Array(body.utf8)
    #expect(BodyEncoding.split(bytes, leavingOut: [Self.apple]).headers.count == headers)
    #expect(Self.isExact(bytes, knowing: [Self.apple]))
    #expect(Self.isExact(bytes, knowing: []))
  }

  @Test func `whatever was sent is given back byte by byte`() {
    let seed = UInt64.random(in: .min ... .max)
    var random = SplitMix(seed)
    for round in 0..<150 {
      var body = Self.text(depth: 3, &random)
      // Damage, mostly none.
      for _ in 0..<max(0, Int.random(in: -3...3, using: &random)) where !body.isEmpty {
        let place = Int.random(in: 0..<body.count, using: &random)
        if Bool.random(using: &random) {
          body[place] = UInt8.random(in: .min ... .max, using: &random)
        } else {
          body.remove(at: place)
        }
      }
      let headers =
        [[], [Self.apple], [Self.apple, Self.other]].randomElement(using: &random) ?? []
      #expect(Self.isExact(body, knowing: headers), "seed \(seed), round \(round)")
    }
  }

  /// Text with JWS in it.
  private static func text(depth: Int, _ random: inout SplitMix) -> [UInt8] {
    let separators = ["", " ", "\"", ".", "\n", "{\"a\" : \"", "eyJ", "e"]
    return (0..<Int.random(in: 0...3, using: &random)).flatMap { _ -> [UInt8] in
      let separator = Array((separators.randomElement(using: &random) ?? "").utf8)
      switch Int.random(in: 0...3, using: &random) {
      case 0:
        let bytes = (0..<Int.random(in: 0...99, using: &random)).map { _ in
          UInt8.random(in: .min ... .max, using: &random)
        }
        return separator + (Bool.random(using: &random) ? bytes : Array(base64(url: bytes).utf8))
      case 1: return separator + Array(Data(separator + separator).base64EncodedString().utf8)
      default:
        guard depth > 0 else { return separator }
        let payload = text(depth: depth - 1, &random)
        let header = Bool.random(using: &random) ? apple : other
        return separator + header.bytes + Array(".\(base64(url: payload)).".utf8)
          + Array(base64(url: payload.prefix(64)).utf8)
      }
    }
  }

  @Test func `damaged contents give nothing, and no crash`() {
    let seed = UInt64.random(in: .min ... .max)
    var random = SplitMix(seed)
    let body = Array((Self.jws("{}", by: Self.apple) + Self.jws("[]", by: Self.other)).utf8)
    let (content, headers) = BodyEncoding.split(body, leavingOut: [Self.apple, Self.other])
    for _ in 0..<1000 {
      var damaged = content
      damaged[Int.random(in: 0..<damaged.count, using: &random)] = UInt8.random(
        in: .min ... .max, using: &random)
      damaged.removeLast(Int.random(in: 0..<4, using: &random))
      _ = BodyEncoding.missingHeaders(of: damaged)
      _ = BodyEncoding.join(damaged, with: headers)
    }
    for end in content.indices {
      #expect(BodyEncoding.join(Array(content[..<end]), with: headers) == nil)
    }
    #expect(BodyEncoding.join([9], with: headers) == nil)
  }

  @Test func `a receipt and Apple's answer with it take a fraction of their bytes`() throws {
    // What no one can guess: a signature, and the keys of certificates.
    let signature = (0..<256).map { UInt8(truncatingIfNeeded: $0 &* $0 &* 31 >> 3) }
    let receipt = Data(
      Array("0\u{2}*H\u{1}purchase_date 2026-01-01T00:00:00Z".utf8) + signature
    ).base64EncodedString()
    let answer = #"{"receipt":{"in_app":[]},"latest_receipt":"\#(receipt)","status":0}"#
    for body in [receipt, answer] {
      let bytes = Array(body.utf8)
      let (content, _) = BodyEncoding.split(bytes)
      #expect(content.count < 340)
      #expect(BodyEncoding.join(content, with: []) == bytes)
    }
  }

  @Test(
    arguments: [
      (Deflate.bodies, [0xF2, 0xAC, 0x16, 0xB5]), (Deflate.entries, [0x8D, 0xBA, 0x9B, 0xE9]),
    ] as [(Deflate, [UInt8])])
  func `what was compressed with another dictionary is not read`(
    deflate: Deflate, checksum: [UInt8]
  ) throws {
    for bytes in ["", "[]", #"{"transactionId":"430000000000001"}"#].map({ Array($0.utf8) }) {
      let compressed = deflate.compress(bytes)
      #expect(deflate.decompress(compressed[...]) == bytes)
      // The checksum of the dictionary follows the first two bytes, and never changes: what is
      // stored names it.
      #expect(Array(compressed[2..<6]) == checksum)
      let other = Deflate(dictionary: deflate.dictionary + [0])
      #expect(other.decompress(compressed[...]) == nil)
      #expect(deflate.decompress(other.compress(bytes)[...]) == nil)
      #expect(deflate.decompress((compressed + [0])[...]) == nil)
      for end in compressed.indices { #expect(deflate.decompress(compressed[..<end]) == nil) }
    }
    // Whatever the ratio.
    let long = [UInt8](repeating: 7, count: 3_000_000) + (0..<70_000).map { UInt8($0 % 251) }
    let compressed = deflate.compress(long)
    #expect(compressed.count < 20_000)
    #expect(deflate.decompress(compressed[...]) == long)
  }

  @Test func `a compressed text is known by its first byte`() throws {
    #expect(CompressedText(rawValue: Array(#"{"a":1}"#.utf8))?.text == #"{"a":1}"#)
    for length in [0, 1, 100, 10_000, 20_000, 100_000] {
      let text = "[" + String(repeating: "ä", count: length) + "]"
      let compressed = Deflate.entries.compress(Array(text.utf8))
      #expect(CompressedText(rawValue: compressed)?.text == text)
      #expect(![UInt8(ascii: "["), UInt8(ascii: "{")].contains(compressed[0]))
    }
    #expect(CompressedText(rawValue: []) == nil)
    #expect(CompressedText(rawValue: Array("x".utf8)) == nil)
    #expect(CompressedText(rawValue: [UInt8(ascii: "{"), 0xFF]) == nil)
    #expect(CompressedText(rawValue: Deflate.bodies.compress(Array("[]".utf8))) == nil)
  }

  // MARK: Dates of requests

  // swift-format-ignore
  private static func answer(
    _ date: String = "2026-03-01 12:00:01", _ milliseconds: String = "1772366401234",
    _ pacific: String = "2026-03-01 04:00:01", rest: String = ""
  ) -> [UInt8] {
    Array(
      (#"{"status":0,"receipt":{"request_date":"\#(date) Etc/GMT","request_date_ms":"\#(milliseconds)", "#
        + #""request_date_pst" : "\#(pacific) America/Los_Angeles"\#(rest)}}"#).utf8)
  }

  @Test func `answers that differ in the date of the request are one body`() throws {
    let winter = try #require(RequestDates.split(Self.answer()))
    let later = Self.answer("2026-03-02 00:59:59", "1772413199000", "2026-03-01 16:59:59")
    let other = try #require(RequestDates.split(later))
    #expect(winter.template == other.template)
    #expect(winter.template.count == Self.answer().count)
    #expect(RequestDates.join(winter.template, at: winter.at) == Self.answer())
    #expect(RequestDates.join(other.template, at: other.at) == later)
    // In summer the difference is another one.
    let summer = Self.answer("2026-07-01 00:00:00", "1782864000999", "2026-06-30 17:00:00")
    let dated = try #require(RequestDates.split(summer))
    #expect(dated.template != winter.template)
    #expect(RequestDates.join(dated.template, at: dated.at) == summer)
  }

  // swift-format-ignore
  @Test(arguments: [
    Array("{}".utf8), [], Array("{\"status\":21007}".utf8),
    answer("2026-03-01 12:00:02"), answer("2026-03-01T12:00:01"),
    answer("2026-03-01 12:00:01", "1772366401"), answer("2026-03-01 12:00:01", "x772366401234"),
    answer("2026-03-01 12:00:01", "1772366401234", "2026-03-01 12:00:01"),
    answer(rest: #","request_date":"2026-03-01 12:00:01 Etc/GMT""#),
    answer("", "", ""), Array(answer().dropLast(30)), Array(answer().prefix(40)),
  ])
  func `an answer with other dates is stored as it is`(answer: [UInt8]) {
    #expect(RequestDates.split(answer) == nil)
  }
}
