import AppStore
import Subscriptions
import Testing

/// Each documented status with the expected reaction.
struct VerifyReceiptStatusTests {
  enum Outcome: Hashable {
    case verified
    case rejected
    case retry
    case limitedRetry
    case misconfigured

    init(_ verdict: ReceiptVerdict) {
      self =
        switch verdict {
        case .verified: .verified
        case .rejected: .rejected
        case .retry(let retry): retry.limit == nil ? .retry : .limitedRetry
        case .misconfigured: .misconfigured
        }
    }
  }

  // swift-format-ignore
  @Test(arguments: [
    (0,     nil,                   Outcome.verified),
    (21000, nil,                   .misconfigured),
    (21001, nil,                   .retry),
    (21002, nil,                   .limitedRetry),
    (21003, nil,                   .rejected),
    (21004, nil,                   .misconfigured),
    (21005, nil,                   .retry),
    (21006, nil,                   .verified),
    (21009, nil,                   .retry),
    (21010, nil,                   .rejected),
    (21011, nil,                   .retry),
    (21099, JSON.bool(false),      .retry),
    (21100, nil,                   .retry),
    (21100, .bool(true),           .retry),
    (21150, .number(1),            .retry),
    (21150, .text("1"),            .retry),
    (21150, .text("true"),         .retry),
    (21150, .bool(false),          .rejected),
    (21150, .number(0),            .rejected),
    (21150, .text("0"),            .rejected),
    (21199, .text("false"),        .rejected),
    (21200, .bool(false),          .retry),
    (-1,    nil,                   .retry),
    (1,     nil,                   .retry),
  ] as [(Int64, JSON?, Outcome)])
  func `what each status means`(
    status: Int64, isRetryable: JSON?, outcome: Outcome
  ) async throws {
    let body = answer(latest: [month], status: .number(status))
      .with(["is-retryable": isRetryable ?? .null])
    let verdict = try await verdict(on: body)
    #expect(Outcome(verdict) == outcome, "\(verdict)")
    switch verdict {
    case .verified(let receipt): #expect(receipt.status == Int(status))
    case .rejected(let rejection):
      #expect(rejection.appleStatus == Int(status))
      #expect(rejection.code == .receiptRejected)
      #expect(rejection.reason.contains("\(status)"))
    case .retry(let retry):
      #expect(retry.appleStatus == Int(status))
      #expect(retry.reason.contains("\(status)"))
    case .misconfigured(_, let appleStatus): #expect(appleStatus == Int(status))
    }
  }

  @Test func `a status as text is read as well`() async throws {
    #expect(try await verdict(on: answer(status: "21003")).rejection?.appleStatus == 21003)
  }

  @Test func `21002 says when to give up, and as what`() async throws {
    let retry = try #require(try await verdict(on: ["status": 21002]).retry)
    let limit = try #require(retry.limit)
    #expect(limit.rejection.code == .receiptRejected)
    #expect(limit.rejection.appleStatus == 21002)
  }

  /// How often Apple answered what, how many hours apart: many times 21002, for more than a day.
  // swift-format-ignore
  @Test(arguments: [
    (11, #"{"status":21002}"#,                 3, true),
    (11, #"{"status":"21002","exception":""}"#, 3, true),
    (10, #"{"status":21002}"#,                 3, false),
    (11, #"{"status":21002}"#,                 2, false),
    (50, #"{"status":21005}"#,                 3, false),
    (50, "<html>503</html>",                   3, false),
    (50, "",                                   3, false),
    (0,  "",                                   3, false),
  ] as [(Int, String, Int, Bool)])
  func `21002 is believed in the end, whatever else happened`(
    count: Int, answer: String, hours: Int, isReached: Bool
  ) async throws {
    let limit = try #require(try await verdict(on: ["status": 21002]).retry?.limit)
    let first = answeredAt - .hours(count * hours)
    let earlier = (0..<count).map { number in
      (askedAt: first + .hours(number * hours), answer: Array(answer.utf8))
    }
    let other = (askedAt: first - .days(9), answer: Array(#"{"status":21009}"#.utf8))
    #expect(limit.isReached(after: earlier + [other], now: answeredAt) == isReached)
  }

  /// 21006 with an expiry in the future is a known fault of Apple's: the dates decide.
  @Test func `21006 keeps its records, whatever their expiry`() async throws {
    let receipt = try await receipt(answer(latest: [month], status: 21006))
    #expect(receipt.records.map(\.expiresDate) == [Timestamp(milliseconds: 4000)])
  }

  @Test(arguments: [21003, 21004, 21005, 21007, 21010, 21100])
  func `a status that refuses makes the rest of the body meaningless`(status: Int64) async throws {
    let body: JSON = ["status": .number(status), "receipt": "nonsense"]
    let verdict = try await verdict(on: body)
    #expect(Outcome(verdict) != .verified)
    #expect(verdict.retry?.reason.contains("shape") != true)
  }
}
