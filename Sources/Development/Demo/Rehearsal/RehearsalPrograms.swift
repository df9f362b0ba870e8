import AppStoreSimulator
import Foundation
import Logging
import PrivatePostgres
import Subscriptions

/// Tenure as deployed: a server and two workers, each its own process.
actor RehearsalPrograms {
  private static let workers = 2

  /// The server's address, which stays the same after a restart.
  let url: String
  /// The secret of the server's API key with role `admin`.
  let secret: String
  private let executable: URL
  private let environment: [String: String]
  private let directory: URL
  private var server: ServeProcess
  private var running: [ChildProcess] = []

  init(_ executable: URL, environment: [String: String], in directory: URL) async throws {
    self.executable = executable
    self.environment = environment
    self.directory = directory
    server = try await Self.start(executable, environment, nil, UUID().uuidString, directory)
    url = server.url
    secret = server.secret
  }

  /// Starts the workers, whose catalogue then is the present one.
  ///
  /// A catalogue changed later counts within seconds of real time, and a second reconciliation waits
  /// for that by the programs' clock, which a rehearsal advances faster.
  func startWorkers() throws {
    for _ in 0..<Self.workers { running.append(try startWorker()) }
  }

  private static func start(
    _ executable: URL, _ environment: [String: String], _ port: Int?, _ secret: String,
    _ directory: URL
  ) async throws -> ServeProcess {
    try await ServeProcess.start(
      executable, databaseURL: environment["DATABASE_URL"] ?? "", environment: environment,
      port: port, secret: secret, in: directory)
  }

  private func startWorker() throws -> ChildProcess {
    try ChildProcess(executable, ["work"], environment: environment, in: directory)
  }

  /// Kills a worker with SIGKILL and starts another.
  func killWorker() async throws {
    await running[0].kill()
    running[0] = try startWorker()
  }

  /// Restarts the workers and then the server one by one, as for a new version.
  func replaceAll() async throws {
    for number in running.indices {
      await running[number].stop()
      running[number] = try startWorker()
    }
    await server.stop()
    server = try await Self.start(
      executable, environment, URL(string: url)?.port, secret, directory)
  }

  func run(_ arguments: [String]) async throws -> ChildProcess.Outcome {
    try await ChildProcess.run(executable, arguments, environment: environment, in: directory)
  }

  func stop() async {
    await server.stop()
    for worker in running { await worker.stop() }
  }
}

/// A primary database server and a standby that has every acknowledged commit.
struct RehearsalServers: Sendable {
  let primary: PrivatePostgres
  let standby: PrivatePostgres
  /// Leads to the server that accepts writes.
  let url: String

  static func start(in directory: URL, logger: Logger) async throws -> RehearsalServers {
    var options = PrivatePostgres.Options.temporary
    // Commits wait for the standby, so they survive the loss of the primary, not of the machine.
    options.settings["synchronous_commit"] = "on"
    let standbyOptions = options
    options.settings["synchronous_standby_names"] = "*"
    let primary = try await PrivatePostgres.start(
      in: directory.appending(path: "primary"), options: options, logger: logger)
    do {
      let standby = try await primary.startStandby(
        in: directory.appending(path: "standby"), options: standbyOptions, logger: logger)
      return RehearsalServers(
        primary: primary, standby: standby, url: await primary.uri(orOf: standby))
    } catch {
      await primary.stop()
      throw error
    }
  }

  /// Kills the primary and promotes the standby.
  func failOver() async throws {
    try await primary.kill()
    try await standby.promote()
  }

  func stop() async {
    await standby.stop()
    await primary.stop()
  }
}

/// The customers of the old backend, each with an account and one purchase.
///
/// Writes the files that a team would export from it: owners for `tenure import`, and entitlements
/// for `tenure compare`.
struct RehearsalOwners {
  private enum Life {
    /// Renewed by Apple.
    case renews
    /// Active, with auto-renew off.
    case ends
    /// Expired.
    case over
  }

  /// A group of customers: purchases made `days` ago, with a weight in percent.
  private struct Kind {
    let life: Life
    let product: ProductID
    let days: ClosedRange<Int>
    let weight: Int
  }

  private static let kinds = [
    Kind(life: .renews, product: "monthly", days: 1...95, weight: 56),
    Kind(life: .renews, product: "yearly", days: 20...90, weight: 20),
    Kind(life: .renews, product: "news.weekly", days: 1...60, weight: 6),
    Kind(life: .ends, product: "monthly", days: 1...25, weight: 10),
    Kind(life: .over, product: "monthly", days: 40...95, weight: 8),
  ]

  let residents: [YearResident]
  /// Accounts that have an entitlement throughout the week.
  let steady: [String]
  /// Accounts that have none throughout the week.
  let former: [String]
  /// Customers with monthly and weekly renewals, who may cancel or be refunded.
  private let restless: [YearResident]

  /// Makes the purchases, from the simulation's beginning until the day of the migration.
  init(_ plan: RehearsalPlan, in simulation: AppStoreSimulation) throws {
    var random = SplitMix64(seed: plan.seed)
    var purchases: [(at: Timestamp, number: Int, life: Life, product: ProductID)] = []
    for number in 0..<plan.owners {
      guard let kind = random.weightedChoice(of: Self.kinds.map { ($0, $0.weight) }) else {
        continue
      }
      let ago: Duration =
        .days(random.number(in: kind.days)) + .seconds(random.number(in: 0...86_399))
      purchases.append((plan.switchDay - ago, number, kind.life, kind.product))
    }
    purchases.sort { ($0.at, $0.number) < ($1.at, $1.number) }
    var (residents, steady, former): ([YearResident], [String], [String]) = ([], [], [])
    var restless: [YearResident] = []
    for purchase in purchases {
      simulation.advance(to: purchase.at)
      let appleID = AppleID("owner-\(purchase.number)")
      let device = DeviceID("owner-\(purchase.number)")
      let account = "owner-\(purchase.number)"
      try simulation.addAppleID(appleID)
      try simulation.addDevice(device, appleID: appleID, account: AppAccountID(account))
      let event = try simulation.buy(purchase.product, on: device)
      let resident = YearResident(
        appleID: appleID, account: account, bought: event.transactionID)
      residents.append(resident)
      switch purchase.life {
      case .renews where purchase.product == "yearly": steady.append(account)
      case .renews: restless.append(resident)
      case .ends, .over:
        try simulation.setAutoRenew(false, event.originalTransactionID, on: device)
        if purchase.life == .over { former.append(account) }
      }
    }
    simulation.advance(to: plan.switchDay)
    (self.residents, self.steady, self.former) = (residents, steady, former)
    self.restless = restless
  }

  // MARK: Export

  /// Writes each original transaction's owner.
  func writeOwners(of simulation: AppStoreSimulation, to file: URL) throws {
    var text = "environment,original_transaction_id,account_id\n"
    for resident in residents {
      let line = try simulation.truth(of: resident.bought).originalTransactionID
      text += "production,\(line),\(resident.account)\n"
    }
    try Data(text.utf8).write(to: file)
  }

  /// Writes the end of each account's entitlements.
  func writeAnswers(_ truth: [String: YearOracle.Account], to file: URL) throws {
    var text = "account_id,entitlement,until\n"
    for resident in residents {
      for (name, end) in truth[resident.account]?.access.sorted(by: { $0.key < $1.key }) ?? [] {
        text += "\(resident.account),\(name),\(end.map { "\($0)" } ?? "")\n"
      }
    }
    try Data(text.utf8).write(to: file)
  }

  // MARK: Changes

  /// Turns auto-renew off for, or refunds, a few renewing customers; returns how many.
  func act(in simulation: AppStoreSimulation, _ random: inout SplitMix64) -> Int {
    var steps = 0
    for _ in 0..<max(1, restless.count / 2000) {
      guard let resident = random.choice(of: restless) else { break }
      let refunds = random.chance(0.5)
      let charges = simulation.truth(of: resident.appleID)
      guard let last = charges.last, last.revokedAt == nil else { continue }
      // If the next renewal is already paid, its owner would be ambiguous.
      guard refunds, last.purchaseDate <= simulation.now - .hours(2) else {
        if (try? simulation.setAutoRenew(false, last.originalTransactionID)) != nil { steps += 1 }
        continue
      }
      if (try? simulation.refund(last.transactionID)) != nil { steps += 1 }
    }
    return steps
  }
}
