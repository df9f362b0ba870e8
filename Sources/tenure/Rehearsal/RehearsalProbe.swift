import AppStoreSimulator
import Subscriptions

/// Asks all the time whether those have access who always have, and those have none who never do.
actor RehearsalProbe {
  private static let pause: Duration = .milliseconds(5)

  private let tenure: TenureClient
  private let owners: RehearsalOwners
  private var random: SplitMix64
  private(set) var answers = 0
  /// One sentence for each wrong answer.
  private(set) var faults: [String] = []
  private(set) var longestWait: Duration = .zero

  init(_ tenure: TenureClient, owners: RehearsalOwners, seed: UInt64) {
    self.tenure = tenure
    self.owners = owners
    random = SplitMix64(seed: seed)
  }

  /// Asks until the task is cancelled.
  func ask() async {
    while !Task.isCancelled {
      let isSteady = random.chance(0.7)
      guard let account = random.choice(of: isSteady ? owners.steady : owners.former) else {
        return
      }
      let begin = ContinuousClock.now
      do {
        let found = try await tenure.entitlements(of: account)
        longestWait = max(longestWait, ContinuousClock.now - begin)
        answers += 1
        if found.isEmpty == isSteady {
          faults.append("\(account) \(isSteady ? "lost" : "gained") access for a moment")
        }
      } catch {
        guard !Task.isCancelled else { return }
        faults.append("\(account) got no answer: \(error)")
      }
      try? await Task.sleep(for: Self.pause)
    }
  }
}
