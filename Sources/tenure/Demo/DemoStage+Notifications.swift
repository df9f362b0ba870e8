import AppStore
import AppStoreSimulator
import Subscriptions

/// What Apple tells by itself: it is on its way until the story lets it arrive.
extension DemoStage {
  /// Chooses which version of notifications Apple sends from now on.
  func chooseNotifications(_ version: SimulatedNotification.Version) throws {
    try simulation.setNotificationTargets(
      [NotificationTarget(version, url: tenure.notificationURL)])
  }

  /// Lets the notifications arrive that are due, of everybody, and tells of those about the people
  /// on stage.
  ///
  /// - Throws: ``TenureClient/Failure`` if Tenure does not take one.
  func notify() async throws {
    var told: [String] = []
    for notification in try await sender.deliverDueNotifications() {
      guard let attempt = notification.attempts.last, attempt.result == .success else {
        throw TenureClient.Failure(
          description: "\(notification.name) was not taken: "
            + (notification.attempts.last?.httpStatus.map { "\($0)" } ?? "no answer"))
      }
      if let event = notification.event, cast.contains(event.appleID) {
        told.append(notification.name)
      }
    }
    if !told.isEmpty { tell("Apple notifies: \(told.joined(separator: ", ")).") }
  }

  /// Lets what is on its way get lost.
  func loseNotifications() {
    simulation.giveUpNotifications()
    tell("Apple's notifications of it get lost.")
  }

  /// The notifications about a charge that did not arrive, by Apple's own books.
  func lostNotifications(about charge: SimulatedCharge) async throws -> [SentNotification] {
    var query = NotificationHistoryQuery(
      startDate: charge.purchaseDate, endDate: now + .seconds(1))
    query.subject = .transaction(charge.transactionID)
    query.onlyFailures = true
    let pages = serverAPI.notificationHistoryPages(
      query, of: DemoCatalogue.app.bundleID, in: .production)
    var lost: [SentNotification] = []
    for try await page in pages { lost += page.content.notifications }
    return lost
  }
}

extension SimulatedNotification {
  /// Type and subtype, as the story tells them.
  fileprivate var name: String { subtype.map { "\(type) (\($0))" } ?? type }
}
