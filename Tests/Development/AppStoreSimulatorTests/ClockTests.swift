import AppStoreSimulator
import Subscriptions
import Testing

struct ClockTests {
  @Test func movesByHandAndNeverBack() {
    let clock = SimulatedClock(start: Stage.start)
    clock.advance(by: .hours(2))
    #expect(clock.now == Stage.start + .hours(2))
    clock.advance(to: Stage.start)
    clock.advance(by: .seconds(-5))
    #expect(clock.now == Stage.start + .hours(2))
    clock.advance(to: Stage.start + .days(1))
    #expect(clock.now == Stage.start + .days(1))
  }

  @Test func runsAtASpeed() async throws {
    let clock = SimulatedClock(start: Stage.start, speed: 86_400)
    let before = ContinuousClock.now
    try await Task.sleep(for: .milliseconds(50))
    let passed = clock.now - Stage.start
    #expect(passed >= .hours(1))
    #expect(passed <= (ContinuousClock.now - before) * 86_400 + .hours(1))
    clock.advance(by: .days(1000))
    #expect(clock.now >= Stage.start + .days(1000))
  }

  @Test func aRunningClockRenewsWithoutBeingMoved() async throws {
    let simulation = try AppStoreSimulation(
      configuration: AppStoreSimulation.Configuration(
        seed: 1, start: Stage.start, speed: 40_000_000))
    try simulation.addAppleID("ada")
    try simulation.addDevice("phone", appleID: "ada")
    try simulation.buy("monthly", on: "phone")
    try await Task.sleep(for: .milliseconds(200))
    #expect(simulation.truth().count >= 3)
  }
}
