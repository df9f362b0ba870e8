import AppStore
import AppStoreSimulator
import LedgerStorage
import Subscriptions
import Synchronization
import Testing

@testable import HTTPAPI

struct SourceAgreementTests {
  @Test func `explore`() async throws {
    let accounts = try await Self.accounts()
    let clock = ContinuousClock()
    var mark = clock.now
    func lap(_ what: String) { print("LAP", what, clock.now - mark); mark = clock.now }
    for withTokens in [true, false] {
      let tokens = withTokens ? Dictionary(uniqueKeysWithValues: accounts.map { ($0.id, $0.appAccountToken) }) : [:]
      let life = try await Life.lived(with: tokens)
      lap("lived")
      for s in Life.Source.allCases { print(s, life.items(of: [s]).count) }
      for c in life.truth { print("TRUTH", Life.name(of: c), c.account?.rawValue ?? "-", c.kind, c.expiresDate?.description ?? "-", c.madeAt) }
      let reference = try await LifeReplay.findings(feeding: life.items(of: [.signedTransactions]), of: life, accounts: accounts)
      lap("signed")
      for (f, v) in reference.facts.sorted(by: { $0.key < $1.key }) { print("REF", withTokens, f, "=", v) }
      print("AUDIT", reference.audit)
      for s in Life.Source.allCases where s != .signedTransactions {
        let found = try await LifeReplay.findings(feeding: life.items(of: [s]), of: life, accounts: accounts)
        lap(s.rawValue)
        print("AUDIT", found.audit)
        for d in found.differences(from: reference) { print("DIFF", withTokens, s, d.fact, "|", d.here, "|", d.there) }
      }
    }
  }

  static func accounts() async throws -> [Account] {
    let issued = Mutex<[Account]>([])
    try await TestAPI.run { api in
      for name in Life.accounts {
        let answer = try await api.call(.put, "/v1/accounts/\(name)")
        try #require(answer.status == 200)
        if let account = try await api.ledger.account(name) { issued.withLock { $0.append(account) } }
      }
    }
    return issued.withLock { $0 }
  }
}
