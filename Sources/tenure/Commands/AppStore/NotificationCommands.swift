import AppStore
import ArgumentParser
import Bootstrap
import JSONText
import Subscriptions

struct NotificationsCommand: AppStoreQuery {
  static let configuration = CommandConfiguration(
    commandName: "notifications",
    abstract: "Lists the notifications that Apple sent or tried to send to an app's server.",
    discussion: """
      Apple keeps notifications for 180 days, in the sandbox for 30. Without --from, lists the \
      last seven days, which is longer than Apple retries. Without --environment, queries \
      production.
      """)

  /// The default for `--from`: Apple's last attempt is six and a half days after the first.
  private static let span = Duration.days(7)

  @Option(help: "Sent at or after this date or RFC 3339 time.", transform: ArgumentText.moment)
  var from: Timestamp?

  @Option(help: "Sent before this date or RFC 3339 time.", transform: ArgumentText.moment)
  var to: Timestamp?

  @Flag(help: "Only undelivered notifications.")
  var failures = false

  @Option(help: "Only this notificationType, such as DID_RENEW.")
  var type: String?

  @Option(help: "Only this subtype; requires --type.")
  var subtype: String?

  @Option(help: "Only this transaction; cannot be combined with --type.")
  var transaction: String?

  @OptionGroup var options: AppStoreOptions

  func validate() throws {
    guard type == nil || transaction == nil else {
      throw ValidationError("--type and --transaction can't be combined.")
    }
    guard subtype == nil || type != nil else { throw ValidationError("--subtype requires --type.") }
  }

  private var query: NotificationHistoryQuery {
    let end = to ?? .now
    var query = NotificationHistoryQuery(startDate: from ?? end - Self.span, endDate: end)
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

  func report(_ clients: AppStoreClients) async throws -> AppStoreReport {
    let environment = clients.environmentOrProduction
    let progress = ProgressBar("notifications read")
    var failure: (any Error)?
    var notifications: [SentNotification] = []
    do {
      let pages = clients.api.notificationHistoryPages(query, of: clients.bundleID, in: environment)
      for try await page in pages {
        notifications += page.content.notifications
        progress.show(notifications.count)
      }
    } catch {
      guard !notifications.isEmpty else { throw error }
      failure = error
    }
    progress.finish()
    return AppStoreReport(
      environment, ["notifications": .array(notifications.map(\.json))], failure: failure)
  }
}

struct TestNotificationCommand: AppStoreQuery {
  static let configuration = CommandConfiguration(
    commandName: "test-notification", abstract: "Requests a test notification from Apple.",
    discussion: """
      Apple sends it to the production URL, or with --environment sandbox to the sandbox URL. With \
      --wait, the exit status is 0 only if the server has accepted it.
      """)

  /// The interval of status requests, within Apple's rate limit for the sandbox.
  private static let pause = Duration.seconds(5)
  /// A minute in all: Apple sends immediately and retries after an hour.
  private static let tries = 12

  @Flag(help: "Wait up to a minute for the result and show it.")
  var wait = false

  @Option(help: "Show the result of an earlier test notification instead of requesting one.")
  var token: String?

  @OptionGroup var options: AppStoreOptions

  func report(_ clients: AppStoreClients) async throws -> AppStoreReport {
    let environment = clients.environmentOrProduction
    var report = AppStoreReport(environment)
    var token = token ?? ""
    if token.isEmpty {
      token = try await clients.api.requestTestNotification(of: clients.bundleID, in: environment)
        .content
    }
    report.add("testNotificationToken", .string(token))
    guard wait || self.token != nil else { return report }
    let sent = try await outcome(token, clients, environment)
    report.add("notification", sent.notification?.json(\.payload.json))
    report.add("sendAttempts", .array(sent.attempts.map(\.json)))
    if !sent.attempts.contains(where: { $0.sendAttemptResult == SendAttemptItemFields.success }) {
      report.failure = CommandFailure(
        description: "The app's server has not accepted the test notification")
    }
    return report
  }

  private func outcome(
    _ token: String, _ clients: AppStoreClients, _ environment: Environment
  ) async throws -> SentNotification {
    var triesLeft = wait ? Self.tries : 1
    while true {
      triesLeft -= 1
      do {
        let sent = try await clients.api.testNotificationStatus(
          token, of: clients.bundleID, in: environment
        ).content
        if triesLeft == 0 || !sent.attempts.isEmpty { return sent }
      } catch let error as AppStoreServerAPIError
        where error.code == .testNotificationNotFound && triesLeft > 0
      {
        // Not sent yet.
      }
      try await Task.sleep(for: Self.pause)
    }
  }
}
