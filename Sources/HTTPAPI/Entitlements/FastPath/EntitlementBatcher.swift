import Foundation
import JSONText
import LedgerStorage
import NIOCore
import Subscriptions
import Synchronization

/// Batches the reads of all connections of an event loop, to share the cost of changing threads.
final class EntitlementBatcher {
  private let eventLoop: any EventLoop
  private let reader: EntitlementReader
  private let now: @Sendable () -> Timestamp
  private typealias Question = (handler: EntitlementHandler, accountID: String, mayLag: Bool)

  private var waiting: [Question] = []
  private var date = (second: Int64.min, text: "")
  /// The body of one answer, in memory that the next one reuses.
  private var json = JSONWriter(capacity: 1024)

  init(
    eventLoop: any EventLoop, reader: EntitlementReader, now: @escaping @Sendable () -> Timestamp
  ) {
    (self.eventLoop, self.reader, self.now) = (eventLoop, reader, now)
  }

  /// Reads an account and calls ``EntitlementHandler/answer(_:)`` with the result or the error.
  func ask(_ accountID: String, mayLag: Bool, for handler: EntitlementHandler) {
    waiting.append((handler, accountID, mayLag))
    if waiting.count == EntitlementReader.maximumBatch {
      submit()
    } else if waiting.count == 1 {
      // After everything that has arrived already is read.
      eventLoop.assumeIsolated().execute { self.submit() }
    }
  }

  private func submit() {
    guard !waiting.isEmpty else { return }
    let questions = waiting
    waiting.removeAll(keepingCapacity: true)
    guard let replica = reader.replica else { return submit(questions) }
    let answers = zip(questions, replica.mayAnswer(for: questions.map(\.accountID)))
    submit(answers.filter { $0.mayLag && $1 }.map(\.0), at: replica)
    submit(answers.filter { !$0.mayLag || !$1 }.map(\.0))
  }

  private func submit(_ questions: [Question], at replica: ReadReplica? = nil, anew: Bool = false) {
    guard !questions.isEmpty else { return }
    let asked = NIOLoopBound((self, questions), eventLoop: eventLoop)
    let asOf = now()
    reader.read(questions.map(\.accountID), at: replica, anew: anew) { [eventLoop] result in
      eventLoop.execute {
        let (batcher, questions) = asked.value
        batcher.answer(questions, from: result, asOf: asOf)
      }
    }
  }

  private func answer(
    _ questions: [Question], from result: Result<ReadEntitlements, any Error>, asOf: Timestamp
  ) {
    var changed: [Question] = []
    for question in questions {
      do {
        if try write(question.accountID, from: result.get(), asOf: asOf) {
          question.handler.answer(.success(json.bytes))
        } else {
          changed.append(question)
        }
      } catch {
        question.handler.answer(.failure(error))
      }
    }
    submit(changed, anew: true)
  }

  private func write(
    _ accountID: String, from read: ReadEntitlements, asOf: Timestamp
  ) throws -> Bool {
    json.removeAll()
    var isKnown = false
    try json.object { json in
      AccountEntitlements.writeSubject(accountID, asOf: asOf, to: &json)
      json.key(AccountEntitlements.list)
      isKnown = try read.write(accountID, at: asOf, to: &json)
    }
    return isKnown
  }

  /// The value of the header field `Date`, made once a second.
  var dateText: String {
    let second = Int64(Date.now.timeIntervalSince1970)
    if second != date.second {
      date = (second, Timestamp(milliseconds: second * 1000).httpDate)
    }
    return date.text
  }
}

final class EntitlementBatchers: Sendable {
  private let reader: EntitlementReader
  private let now: @Sendable () -> Timestamp
  private let batchers = Mutex<[ObjectIdentifier: NIOLoopBound<EntitlementBatcher>]>([:])

  init(reader: EntitlementReader, now: @escaping @Sendable () -> Timestamp) {
    self.reader = reader
    self.now = now
  }

  func batcher(of eventLoop: any EventLoop) -> EntitlementBatcher {
    batchers.withLock { batchers in
      if let batcher = batchers[ObjectIdentifier(eventLoop)] { return batcher }
      let batcher = NIOLoopBound(
        EntitlementBatcher(eventLoop: eventLoop, reader: reader, now: now), eventLoop: eventLoop)
      batchers[ObjectIdentifier(eventLoop)] = batcher
      return batcher
    }.value
  }
}

/// The failures of reads that an ``EntitlementHandler`` hands to the router, one per connection.
final class FailedReads: Sendable {
  private let failures = Mutex<[ObjectIdentifier: any Error]>([:])

  func put(_ failure: any Error, on channel: any Channel) {
    failures.withLock { $0[ObjectIdentifier(channel)] = failure }
  }

  /// Takes the failure of a read on the connection; nil where the read has yet to be tried.
  func take(from channel: any Channel) -> (any Error)? {
    failures.withLock {
      $0.isEmpty ? nil : $0.removeValue(forKey: ObjectIdentifier(channel))
    }
  }
}

extension Timestamp {
  /// The form of RFC 9110, section 5.6.7: `Sun, 06 Nov 1994 08:49:37 GMT`.
  var httpDate: String {
    let weekdays = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"]
    let (date, millisecond) = dayAndTime
    let second = Int(millisecond / 1000)
    func two(_ value: Int) -> String { value < 10 ? "0\(value)" : "\(value)" }
    let time = [second / 3600, second / 60 % 60, second % 60].map(two).joined(separator: ":")
    // The first of January 1970 was a Thursday.
    let day = "\(two(date.day)) \(date.monthName) \(date.year)"
    return "\(weekdays[date.daysSince1970 % 7]), \(day) \(time) GMT"
  }
}
