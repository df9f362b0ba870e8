import Testing

@testable import tenure

/// `tenure rehearse`, with few customers: everything that happens to many happens to them.
@Suite("The rehearsal of the Monday")
struct RehearsalTests {
  @Test("imports, upgrades, fails over and kills, and in the end everybody has what is right")
  func isWell() async throws {
    let outcome = try await TenureProgram.run("rehearse", "--owners", "150", "--newcomers", "5")
    #expect(outcome.status == 0, "\(outcome.output)\(outcome.errors)")
    for deed in [
      "took 150 owners over", "compare finds no difference", "schema got its next version",
      "database was killed", "worker was killed", "0 differences from what is true",
    ] {
      // The story is broken into lines.
      let text = outcome.output.split { $0.isWhitespace }.joined(separator: " ")
      #expect(text.contains(deed), "\(deed) is not told in: \(text)")
    }
  }
}
