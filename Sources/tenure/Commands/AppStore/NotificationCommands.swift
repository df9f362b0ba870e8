import AppStore
import ArgumentParser
import JSONText
import Subscriptions

/// `tenure app-store notifications`: what Apple sent, or tried to send.
struct NotificationsCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "notifications",
    abstract: "Lists the notifications that Apple sent to an app's server, or tried to send.",
    discussion: """
      Apple keeps them for 180 days, those of the sandbox for 30. Without --from, those of the \
      last seven days: longer than Apple retries. Without --environment, those of production.
      """)

  /// Without `--from`: Apple's last attempt comes six and a half days after the first.
  private static let span = Duration.days(7)

  @Option(help: "Sent then or later: a date or an RFC 3339 time.")
  var from: Moment?

  @Option(help: "Sent earlier: a date or an RFC 3339 time.")
  var to: Moment?

  @Flag(help: "Only those that did not arrive.")
  var failures = false

  @Option(help: "Only this notificationType, as in DID_RENEW.")
  var type: String?

  @Option(help: "Only this subtype; needs --type.")
  var subtype: String?

  @Option(help: "Only those about this transaction; not with --type.")
  var transaction: String?

  @OptionGroup var options: AppStoreOptions

  func validate() throws {
    guard type == nil || transaction == nil else {
      throw ValidationError("--type and --transaction exclude each other: Apple takes one of them.")
    }
    guard subtype == nil || type != nil else { throw ValidationError("--subtype needs --type.") }
  }

  private var query: NotificationHistoryQuery {
    let end = to?.timestamp ?? .now
    var query = NotificationHistoryQuery(
      startDate: from?.timestamp ?? end - Self.span, endDate: end)
    query.onlyFailures = failures
    if let type {
      query.subject = .type(
        NotificationTypeV2(rawValue: type),
        subtype: subtype.map { NotificationSubtype(rawValue: $0) })
    } else if let transaction {
      query.subject = .transaction(TransactionID(transaction))
    }
    return query
  }

  func run() async throws {
    try await options.report { desk in
      let environment = desk.environmentOrProduction
      let progress = Progress("notifications read")
      var report = AppStoreReport(environment)
      var notifications: [SentNotification] = []
      do {
        let pages = desk.api.notificationHistoryPages(
          query, of: desk.bundleID, in: environment)
        for try await page in pages {
          notifications += page.content.notifications
          progress.show(notifications.count)
        }
      } catch {
        guard !notifications.isEmpty else { throw error }
        report.failure = error
      }
      progress.finish()
      report.show(notifications)
      return report
    }
  }
}

/// `tenure app-store test-notification`: whether notifications arrive.
struct TestNotificationCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "test-notification",
    abstract: "Has Apple send a test notification to an app's server.",
    discussion: """
      To the URL of production, or that of the sandbox with --environment sandbox. With --wait it \
      is no success until the server has accepted the notification.
      """)

  /// How often the outcome is asked for, within what Apple allows an app in the sandbox.
  private static let pause = Duration.seconds(5)
  /// A minute: Apple sends at once, and what has not come then does not come soon.
  private static let tries = 12

  @Flag(help: "Wait up to a minute for the outcome, and show it.")
  var wait = false

  @Option(help: "Do not ask for another, but show what came of the one with this token.")
  var token: String?

  @OptionGroup var options: AppStoreOptions

  func run() async throws {
    try await options.report { desk in
      let environment = desk.environmentOrProduction
      var report = AppStoreReport(environment)
      var token = token ?? ""
      if token.isEmpty {
        token = try await desk.api.requestTestNotification(of: desk.bundleID, in: environment)
          .content
      }
      report.show("testNotificationToken", .string(token))
      guard wait || self.token != nil else { return report }
      let sent = try await outcome(token, desk, environment)
      report.show(sent)
      if !sent.attempts.contains(where: { $0.sendAttemptResult == .success }) {
        report.failure = NotDelivered()
      }
      return report
    }
  }

  private func outcome(
    _ token: String, _ desk: AppStoreDesk, _ environment: Environment
  ) async throws -> SentNotification {
    for _ in 1..<(wait ? Self.tries : 1) {
      do {
        let sent = try await desk.api.testNotificationStatus(
          token, of: desk.bundleID, in: environment
        ).content
        if !sent.attempts.isEmpty { return sent }
      } catch let error as AppStoreServerAPIError where error.code == .testNotificationNotFound {
        // Not sent yet.
      }
      try await Task.sleep(for: Self.pause)
    }
    return try await desk.api.testNotificationStatus(token, of: desk.bundleID, in: environment)
      .content
  }

  /// What the exit status is non-zero for.
  struct NotDelivered: Error, CustomStringConvertible {
    let description = "The test notification has not been accepted by the app's server"
  }
}
