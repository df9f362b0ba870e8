package import AppStore
import Subscriptions

/// Carries notifications to apps' servers, with Apple's schedule on the simulated clock.
///
/// A delivery is done with the first answer from 200 to 206; anything else is tried again, in
/// production 1, 12, 24, 48 and 72 hours after the attempt before it (version 1: 6, 24 and 48), in
/// the sandbox never. Either ``run`` carries whatever the running clock makes due, or a test does,
/// step by step.
package struct NotificationSender: Sendable {
  private let simulation: AppStoreSimulation
  private let transport: any AppStoreTransport
  /// How long a server may take, in real time.
  private let timeout: Duration

  /// How often `run` looks at the clock: short beside what anybody waits for.
  private static let pollInterval = Duration.milliseconds(50)

  /// A sender; nothing is sent before `run` or `deliverDueNotifications`.
  package init(
    simulation: AppStoreSimulation, transport: any AppStoreTransport,
    timeout: Duration = .seconds(30)
  ) {
    self.simulation = simulation
    self.transport = transport
    self.timeout = timeout
  }

  /// Delivers until the task is cancelled.
  package func run() async throws {
    while true {
      try await deliverDueNotifications()
      try await Task.sleep(for: Self.pollInterval)
    }
  }

  /// Makes every attempt that is due by the simulated clock, one after the other in the order of
  /// their times, and returns what came of each.
  ///
  /// Where the clock has jumped, attempts count as made at the times at which they were due, so
  /// that one that failed can be followed by all its retries.
  ///
  /// - Returns: The notifications as they stand after each attempt, which is their last.
  /// - Throws: `CancellationError`.
  @discardableResult
  package func deliverDueNotifications() async throws -> [SimulatedNotification] {
    let moment = simulation.now
    var delivered: [SimulatedNotification] = []
    while let attempt = simulation.takeDueAttempt(until: moment) {
      do {
        delivered.append(simulation.note(try await make(attempt), of: attempt))
      } catch {
        simulation.putBack(attempt)
        throw error
      }
    }
    return delivered
  }

  private func make(_ attempt: AppStoreSimulation.DueAttempt) async throws -> SendAttempt {
    func outcome(_ result: SendAttempt.Result, _ status: Int? = nil) -> SendAttempt {
      SendAttempt(url: attempt.url, at: attempt.dueAt, result: result, httpStatus: status)
    }
    guard !attempt.isRequestLost else { return outcome(.noResponse) }
    do {
      let response = try await transport.send(
        AppStoreRequest(
          method: "POST", url: attempt.url,
          headers: [HTTPHeader("Content-Type", "application/json")],
          body: attempt.notification.body, timeout: timeout))
      guard !attempt.isAnswerLost else { return outcome(.timedOut) }
      let isSuccess = (200...206).contains(response.status)
      return outcome(isSuccess ? .success : .unsuccessfulStatus, response.status)
    } catch let error as AppStoreTransportError {
      return outcome(SendAttempt.Result(error.kind), error.partial?.status)
    }
  }
}

extension SendAttempt.Result {
  fileprivate init(_ kind: AppStoreTransportError.Kind) {
    self =
      switch kind {
      case .timedOut: .timedOut
      case .nameNotResolved, .connectionFailed: .socketIssue
      case .tlsFailed: .tlsIssue
      case .connectionLost: .prematureClose
      case .answerTooLarge: .invalidResponse
      case .invalidURL, .other: .other
      }
  }
}
