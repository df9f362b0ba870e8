import AppStoreSimulator
import Foundation
import JSONText
import LedgerStorage
import Subscriptions

/// The differences between Tenure's answers at the end of the year and the truth.
struct YearComparison: Sendable {
  let customers: Int
  let accounts: Int
  let charges: Int
  let refunds: Int
  let orders: Int
  let submissions: Int
  let notifications: Int
  /// Lost notifications, which were found in Apple's history.
  let lost: Int
  let events: Int
  let audit: LedgerAudit
  /// One sentence for each difference.
  let differences: [String]

  var isClean: Bool { differences.isEmpty && audit.isClean }
}

extension Year {
  /// The number of accounts queried concurrently.
  private static let askers = 4
  private static let reportedJobs = 10

  func compare(with ledger: Ledger) async throws -> YearComparison {
    let appleIDs = households.map(\.appleID) + residents.map(\.appleID)
    let truth = oracle.accounts(of: appleIDs, at: now)
    let accounts = Set(households.flatMap(\.accounts) + residents.map(\.account))
      .union(truth.keys).sorted()
    var differences = findings
    for appleID in appleIDs {
      for owned in oracle.charges(of: appleID) where owned.owner == nil {
        differences.append("\(appleID): no owner is recorded for \(owned.charge.transactionID)")
      }
    }
    let answers = try await ask(about: accounts)
    for account in accounts {
      guard let answer = answers[account] else { continue }
      let right = truth[account] ?? YearOracle.Account()
      let found = Self.differences(of: account, truth: right, tenure: answer)
      differences += found
      if !found.isEmpty {
        differences[differences.count - 1] += " (\(oracle.lastEvents(for: right)))"
      }
    }
    differences += try await wrongOrders()
    let lost = simulation.notifications().filter { !$0.hasArrived }
    let unreported = try await ledger.notifications.missingNotifications(
      among: lost.map { $0.uuid.text })
    differences += unreported.sorted().map { "the lost notification \($0) was never found" }
    for job in try await ledger.jobs.discardedJobs(limit: Self.reportedJobs) {
      differences.append("\(job.kind) of \(job.subject) failed: \(job.lastError ?? "")")
    }
    let follower = try await follow(towards: truth, of: accounts, &differences)
    let charges = appleIDs.flatMap { oracle.charges(of: $0) }
    return YearComparison(
      customers: appleIDs.count, accounts: accounts.count, charges: charges.count,
      refunds: charges.count { $0.charge.revokedAt != nil }, orders: oracle.orders.count,
      submissions: submissions, notifications: simulation.notifications().count, lost: lost.count,
      events: follower.events,
      audit: try await ledger.auditor.audit(), differences: differences)
  }

  /// Reads the event feed from its beginning and compares the resulting entitlements.
  private func follow(
    towards truth: [String: YearOracle.Account], of accounts: [String],
    _ differences: inout [String]
  ) async throws -> YearFollower {
    var follower = YearFollower()
    try await follower.follow(tenure)
    differences += follower.findings
    for account in accounts {
      let (right, published) = (truth[account]?.access ?? [:], follower.access[account] ?? [:])
      for name in Set(right.keys).union(published.keys).sorted()
      where right[name] != published[name] {
        differences.append(
          "\(account) \(Self.words(for: right[name])) \(name), the feed: "
            + "\(Self.words(for: published[name]))")
      }
    }
    return follower
  }

  private func ask(about accounts: [String]) async throws -> [String: YearOracle.Account] {
    let tenure = tenure
    return try await withThrowingTaskGroup(of: [(String, YearOracle.Account)].self) { group in
      for asker in 0..<Self.askers {
        group.addTask {
          var answers: [(String, YearOracle.Account)] = []
          for index in stride(from: asker, to: accounts.count, by: Self.askers) {
            answers.append((accounts[index], try await tenure.everything(about: accounts[index])))
          }
          return answers
        }
      }
      return try await group.reduce(into: [:]) { all, answers in
        for (account, answer) in answers { all[account] = answer }
      }
    }
  }

  private static func differences(
    of account: String, truth: YearOracle.Account, tenure: YearOracle.Account
  ) -> [String] {
    var differences: [String] = []
    for name in Set(truth.access.keys).union(tenure.access.keys).sorted()
    where truth.access[name] != tenure.access[name] {
      differences.append(
        "\(account) \(words(for: truth.access[name])) \(name), "
          + "Tenure: \(words(for: tenure.access[name]))")
    }
    for charge in Set(truth.charges.keys).union(tenure.charges.keys).sorted() {
      switch (truth.charges[charge], tenure.charges[charge]) {
      case (let right?, let found?) where right != found:
        differences.append(
          "\(charge) of \(account) is \(right.map { "refunded at \($0)" } ?? "not refunded"), "
            + "Tenure: \(found?.description ?? "not refunded")")
      case (.some, nil): differences.append("\(charge) belongs to \(account), Tenure: it doesn't")
      case (nil, .some): differences.append("\(charge) isn't \(account)'s, Tenure: it is")
      default: break
      }
    }
    return differences
  }

  private static func words(for access: Timestamp??) -> String {
    switch access {
    case nil: "has no access to"
    case .some(nil): "has unlimited access to"
    case .some(let end?): "has access until \(end) to"
    }
  }

  /// Compares orders: each is fulfilled by the purchase made for it, even if refunded later, and no
  /// order stays open.
  private func wrongOrders() async throws -> [String] {
    var differences: [String] = []
    for id in oracle.openedOrders where oracle.orders[id] == nil {
      // Another purchase may have fulfilled it as the latest open order.
      guard try await tenure.order(id).status == .open else { continue }
      differences.append("order \(id) is still open")
    }
    for (id, transaction) in oracle.orders.sorted(by: { $0.key < $1.key }) {
      let order = try await tenure.order(id)
      let refundedAt = try simulation.truth(of: transaction).revokedAt
      let status: PurchaseOrder.Status = refundedAt == nil ? .fulfilled : .refunded
      guard order.status != status || order.transactionID != transaction else { continue }
      differences.append(
        "order \(id) is \(status.rawValue) by \(transaction), Tenure: "
          + "\(order.status.rawValue) by \(order.transactionID?.rawValue ?? "nothing")")
    }
    return differences
  }
}

extension TenureClient {
  fileprivate func everything(about account: String) async throws -> YearOracle.Account {
    var answer = YearOracle.Account()
    for entitlement in try await entitlements(of: account) {
      answer.access[entitlement.name] = .some(try entitlement.accessEnd)
    }
    for transaction in try await transactions(of: account) {
      answer.charges[transaction.id] = .some(try Self.moment(transaction.revokedAt))
    }
    return answer
  }

  fileprivate static func moment(_ text: String?) throws -> Timestamp? {
    guard let text else { return nil }
    guard let moment = Timestamp(rfc3339: text) else {
      throw Failure(description: "\(text) is not a time.")
    }
    return moment
  }
}

extension TenureClient.Entitlement {
  /// The end of access; nil: forever.
  var accessEnd: Timestamp? {
    get throws { try TenureClient.moment(accessEndsAt) }
  }
}
