import Foundation
import Intake
import LedgerStorage
import Subscriptions
import Testing

@testable import BackgroundJobs

@Suite("Retries")
struct RetryTests {
  private static let now = Timestamp(milliseconds: 1_800_000_000_000)

  // swift-format-ignore
  @Test("pauses double up to an hour, and half of each is left to chance", arguments: [
    // attempts  at least                    at most
    (0,          Duration.milliseconds(750), Duration.milliseconds(1500)),
    (1,          Duration.milliseconds(750), Duration.milliseconds(1500)),
    (2,          Duration.milliseconds(1500), Duration.seconds(3)),
    (5,          Duration.seconds(12),       Duration.seconds(24)),
    (12,         Duration.seconds(1536),     Duration.seconds(3072)),
    (13,         Duration.minutes(30),       Duration.hours(1)),
    (10_000,     Duration.minutes(30),       Duration.hours(1)),
  ])
  func delays(attempts: Int, least: Duration, most: Duration) {
    let schedule = RetrySchedule.apple
    #expect(schedule.delay(afterAttempts: attempts, random: 0) == least)
    #expect(schedule.delay(afterAttempts: attempts, random: 1) == most)
    #expect(schedule.delay(afterAttempts: attempts, random: -1) == least)
    #expect(schedule.delay(afterAttempts: attempts, random: 2) == most)
    let next = schedule.next(afterAttempts: attempts, at: Self.now)
    #expect(next >= Self.now + least)
    #expect(next <= Self.now + most)
  }

  @Test("what the other side wishes for holds, up to a day")
  func wishes() {
    func next(_ wish: Duration) -> Duration {
      RetrySchedule.apple.next(afterAttempts: 1, at: Self.now, notBefore: Self.now + wish)
        - Self.now
    }
    #expect(next(.hours(2)) == .hours(2))
    #expect(next(.days(9)) == .hours(24))
    #expect(next(.zero) >= .milliseconds(750))
  }

  // swift-format-ignore
  static let patiences: [(Job.Key, Duration?)] = [
    (.verifySubmission(UUID()),                   .days(30)),
    (.processNotification("n"),                   .days(30)),
    (.publishEntitlements(AccountKey(rawValue: UUID())),  nil),
    (.expireOrder(UUID()),                        nil),
    (.pollStatus(OriginalTransactionKey(.production, "1")),         .days(30)),
    (.deliverEvents(stream: "s"),                 nil),
    (.compareNotifications(bundleID: "b", .sandbox), nil),
    (.reconcile,                                     nil),
    (.pruneEvents,                                 nil),
    (.trimAccountChanges,                          nil),
    (.rollUpMovements,                              nil),
    (.prunePayloads,                                     nil),
    (.mergeAccount(AccountKey(rawValue: UUID())), nil),
    (.setAppAccountToken(OriginalTransactionKey(.production, "1")),   .days(30)),
    (.sendConsumption(.production, notificationID: "n"), nil),
  ]

  @Test("how long each kind is tried", arguments: patiences)
  func patience(task: Job.Key, patience: Duration?) {
    let schedule = task.kind.definition.retries
    #expect(schedule.patience == patience)
    let end = Self.now + (patience ?? .days(36_525))
    #expect(schedule.isOver(for: Self.now, at: end) == (patience != nil))
    #expect(!schedule.isOver(for: Self.now, at: end - .milliseconds(1)))
  }
}
