import Foundation
import Subscriptions
import Testing

@testable import LedgerStorage

@Suite("Answers in few bytes")
struct AnswerStoreTests {
  private static let always = Timestamp(milliseconds: .min)..<Timestamp(milliseconds: .max)

  private static func insert(_ answer: String, of account: String, in store: inout AnswerStore) {
    store.insert(Array(answer.utf8)[...], of: account, validFor: always)
  }

  private static func answer(of account: String, in store: inout AnswerStore) -> String? {
    var bytes = Array("[".utf8)
    guard store.append(answerOf: account, at: start, to: &bytes) else { return nil }
    return String(decoding: bytes.dropFirst(), as: UTF8.self)
  }

  /// One of several answers that differ in bytes and accounts.
  private static func answer(_ number: Int) -> String {
    let name = ["pro", "プロ", "é", "e\u{301}", "x9", ""][number % 6]
    let dates = (0..<number % 4).map { "\(2026 + $0)-01-0\(1 + number % 9)T00:00:00.000Z" }
    return #"[{"entitlement":"\#(name)","id":"\#(number * 7919)","at":\#(dates)}]"#
  }

  @Test("what is kept is given back byte by byte, until something else takes its place")
  func model() {
    let seed =
      ProcessInfo.processInfo.environment["TENURE_TEST_SEED"].flatMap(UInt64.init)
      ?? UInt64.random(in: 0...999_999)
    print("Answers in few bytes: TENURE_TEST_SEED=\(seed)")
    var generator = SplitMix(seed)
    var store = AnswerStore(limit: 16 << 20)
    var model: [String: String] = [:]
    for _ in 0..<20_000 {
      let number = Int.random(in: 0..<3000, using: &generator)
      let account = number.isMultiple(of: 2) ? "\(number)" : "Zoë-\(number)"
      switch Int.random(in: 0..<10, using: &generator) {
      case 0..<4:
        let answer = Self.answer(Int.random(in: 0..<100_000, using: &generator))
        Self.insert(answer, of: account, in: &store)
        model[account] = answer
      case 4: #expect(store.remove(account) == (model.removeValue(forKey: account) != nil))
      default:
        #expect(Self.answer(of: account, in: &store) == model[account], "seed \(seed)")
        #expect(store.contains(account) == (model[account] != nil))
      }
    }
    #expect(store.count == model.count)
    #expect(store.evicted == 0)
    #expect(store.removeAll() == model.count)
    #expect(store.size == 0)
    #expect(Self.answer(of: "2", in: &store) == nil)
  }

  @Test("the oldest make room, and the limit holds")
  func eviction() {
    var store = AnswerStore(limit: AnswerStore.smallestLimit)
    for number in 0..<30_000 {
      Self.insert(Self.answer(number), of: "account-\(number)", in: &store)
      #expect(store.size <= AnswerStore.smallestLimit)
      #expect(Self.answer(of: "account-\(number)", in: &store) == Self.answer(number))
    }
    #expect(store.count + store.evicted == 30_000)
    #expect(store.evicted > 15_000)
    #expect(store.count > 3000)
    #expect(Self.answer(of: "account-0", in: &store) == nil)
    let kept = (0..<30_000).filter { store.contains("account-\($0)") }
    #expect(kept == Array((30_000 - store.count)..<30_000))
  }

  @Test("answers that share no text do not outgrow the limit either")
  func shapes() {
    var store = AnswerStore(limit: AnswerStore.smallestLimit)
    for number in 0..<5000 {
      let letters = String(
        String(number).unicodeScalars.map { Character(Unicode.Scalar(UInt8($0.value) + 49)) })
      Self.insert("[\"\(letters)\"]", of: "\(number)", in: &store)
      #expect(store.size <= AnswerStore.smallestLimit)
      #expect(Self.answer(of: "\(number)", in: &store) == "[\"\(letters)\"]")
    }
    Self.insert(String(repeating: "a", count: 1 << 16), of: "long", in: &store)
    #expect(!store.contains("long"))
  }

  @Test("an answer counts only while it is valid")
  func validity() {
    var store = AnswerStore(limit: AnswerStore.smallestLimit)
    store.insert(Array("[1]".utf8)[...], of: "anna", validFor: day(1)..<day(2))
    func answer(at moment: Timestamp) -> Bool {
      var bytes: [UInt8] = []
      return store.append(answerOf: "anna", at: moment, to: &bytes)
    }
    #expect(answer(at: day(1)))
    #expect(answer(at: day(2) - .milliseconds(1)))
    #expect(!answer(at: day(2)))
    #expect(!store.contains("anna"), "the next read is to replace it")
    store.insert(Array("[1]".utf8)[...], of: "anna", validFor: day(1)..<day(2))
    #expect(!answer(at: day(1) - .milliseconds(1)))
  }
}
