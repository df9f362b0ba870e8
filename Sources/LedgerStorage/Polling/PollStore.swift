import Postgres
package import Subscriptions
import Synchronization

/// When Apple is asked about lines, and with what.
extension Ledger {
  // MARK: Planning

  /// The statements that plan when Apple is asked next about the lines on which something was
  /// recorded, for the commit of the recording.
  ///
  /// What says nothing new leaves the plan as it is.
  func appointments(of recording: Recording, at now: Timestamp) -> [SQL] {
    recording.distinctFamilies.filter { !$0.entries.isEmpty }.flatMap { family in
      let isNew = family.before.members.values.allSatisfy { $0.head.number == 0 }
      return planning(of: family, replacesOthers: true, mayExist: !isNew, at: now)
    }
  }

  /// The statements that give a family its appointment where it has none.
  ///
  /// For a look through all lines: an appointment that stands is left alone.
  func missingAppointments(of family: RecordedFamily, at now: Timestamp) -> [SQL] {
    planning(of: family, replacesOthers: false, mayExist: true, at: now)
  }

  private func planning(
    of family: RecordedFamily, replacesOthers: Bool, mayExist: Bool, at now: Timestamp
  ) -> [SQL] {
    // What was imported is asked about until Apple has told of it: of the line's whole life, and
    // not of its renewal alone, as a notification does.
    guard !family.awaitsApple, !family.before.awaitsApple else { return [] }
    let members = family.before.members.keys.sorted()
    let plan = RenewalPlan.Line(family.line, family.rule, notifications: notificationMemory)
    let next = plan.flatMap { plan in
      RenewalPlan.next(plan, after: now).map { (plan.id, $0) }
    }
    // One line of a family stands for all: Apple tells of the whole customer.
    let deletes =
      mayExist && replacesOthers
      ? members.filter { $0 != next?.0 }.map { Job.delete(.pollLine($0)) } : []
    guard let (line, appointment) = next else { return deletes }
    guard replacesOthers else {
      return [
        Job.insert(
          .pollLine(line), runAt: appointment.at, priority: appointment.priority,
          at: max(now, appointment.at))
      ]
    }
    return deletes + [
      Job.schedule(
        .pollLine(line), runAt: appointment.at, priority: appointment.priority, at: now)
    ]
  }

  // MARK: Asking

  /// A line about which Apple is to be asked, as it is known.
  package struct LineToPoll: Sendable {
    package let line: LineID
    /// Whether the latest charge is of an auto-renewable subscription: otherwise there is nothing
    /// to be heard of but a refund.
    package let isSubscription: Bool
    package let source: LineSource
    /// What an import named for asking about it.
    package let imported: ImportedSource?
    /// Whether nothing is known of it but what an import says.
    package let isUnheardOf: Bool
  }

  /// Finds what Apple can be asked about a line with; nil if nothing is recorded of it.
  package func lineToPoll(_ line: LineID) async throws -> LineToPoll? {
    try await database.withTransaction(isolation: .repeatableRead, readOnly: true) { transaction in
      var reader = FamilyReader(isLocking: false)
      try await reader.read([line], in: transaction)
      guard let family = reader.families.first else { return nil }
      let latest = family.rule.charges.latestCharge
      guard latest != nil || family.awaitsApple else { return nil }
      let members = [line] + family.members.keys.filter { $0 != line }.sorted()
      let results = try await transaction.batch(
        [Self.selectImportedSource(line)] + LineSource.select(members))
      return LineToPoll(
        line: line, isSubscription: latest?.isSubscription ?? true,
        source: try LineSource(from: Array(results.dropFirst())),
        imported: try Self.importedSource(from: results[0]), isUnheardOf: latest == nil)
    }
  }

  /// Whether Apple has ever sent a notification from an environment, as far as the last thousand
  /// notifications tell.
  package func hasNotifications(from environment: Environment) async throws -> Bool {
    if notificationMemory.contains(environment) { return true }
    let isKnown = try await database.query(
      """
      SELECT EXISTS (
        SELECT FROM (
          SELECT environment FROM tenure.notification ORDER BY received_at DESC LIMIT 1000
        ) AS latest
        WHERE environment = \(environment))
      """
    ).decodeOnly(Bool.self)
    if isKnown { notificationMemory.note(environment) }
    return isKnown
  }

  // MARK: After asking

  /// The line that Apple was asked about, for what was answered to be recorded with its plan.
  package struct AskedLine: Sendable {
    package var line: LineID
    /// The app that it belongs to, where Apple was asked about one.
    package var bundleID: String?
    /// What asked; nil: somebody did by hand.
    package var job: Job?

    package init(_ line: LineID, of bundleID: String?, job: Job? = nil) {
      self.line = line
      self.bundleID = bundleID
      self.job = job
    }
  }

  /// The statements that plan a line anew after Apple was asked about it, and end the job that did.
  ///
  /// They go behind those of the recording, and take the place of what it has planned: Apple has
  /// been heard just now, whatever it said.
  func replanning(
    _ asked: AskedLine, after recording: Recording, at now: Timestamp, in transaction: Transaction
  ) async throws -> [SQL] {
    guard let family = recording.families[asked.line] else {
      // It was not locked: whatever another recording plans meanwhile holds.
      guard let job = asked.job else { return [] }
      return try await ending(job, of: asked.line, at: now, in: transaction) { _ in }
    }
    let plan = RenewalPlan.Line(
      family.line, family.rule, heardAt: now, notifications: notificationMemory)
    guard let plan, let next = RenewalPlan.next(plan, after: now) else {
      if let job = asked.job, family.awaitsApple {
        return job.discarding(because: Self.nothingTold, at: now)
      }
      return [Job.delete(.pollLine(asked.line))]
    }
    let isSame = plan.id == asked.line
    return (isSame ? [] : [Job.delete(.pollLine(asked.line))]) + [
      Job.schedule(
        .pollLine(plan.id), runAt: next.at, priority: next.priority, at: now,
        endingClaimOf: isSame ? asked.job?.worker : nil)
    ]
  }

  /// Ends a poll that came to nothing: Apple knows no such line, or there is nothing to ask with.
  ///
  /// The line is looked at again some time, as one about which nobody expects news.
  ///
  /// - Parameters:
  ///   - job: What asked, or would have.
  ///   - reason: Why it came to nothing.
  ///   - now: When.
  /// - Throws: What the database says.
  package func passOver(_ job: Job, because reason: String, at now: Timestamp) async throws {
    let line = try job.originalTransaction
    try await database.withTransaction { transaction in
      let ending = try await ending(job, of: line, at: now, in: transaction) { plan in
        plan.phase = .expired
        plan.isRevoked = false
      }
      try await transaction.commit(
        with: ending + [
          """
          UPDATE tenure.job SET last_error = \(reason.storedSentence)
          WHERE job_id = \(job.id) AND locked_by IS NULL AND generation = \(job.generation)
          """
        ])
    }
  }

  /// Ends a job of a line that nobody has locked, and plans the next one.
  private func ending(
    _ job: Job, of line: LineID, at now: Timestamp, in transaction: Transaction,
    _ change: (inout RenewalPlan.Line) -> Void
  ) async throws -> [SQL] {
    var reader = FamilyReader(isLocking: false)
    try await reader.read([line], in: transaction)
    var plan = reader.families.first.flatMap {
      RenewalPlan.Line($0.line, $0.rule, heardAt: now, notifications: notificationMemory)
    }
    if var changed = plan {
      change(&changed)
      plan = changed
    }
    // A family has one appointment, that of the line with the latest charge.
    guard let plan, plan.id == line, let next = RenewalPlan.next(plan, after: now) else {
      // Somebody moved in with it, and Apple knows nothing of it: that has to be seen.
      if reader.families.first?.awaitsApple == true {
        return job.discarding(because: Self.nothingTold, at: now)
      }
      return job.completion
    }
    return job.repetition(at: next.at, priority: next.priority, now: now)
  }

  // MARK: Counting

  /// Counts due polls by queue.
  ///
  /// - Parameter limit: The most to count of each queue and priority; nil: no limit.
  package func dueJobs(in queues: [Job.Queue], limit: Int? = nil, at now: Timestamp) async throws
    -> [Job.Queue: Int]
  {
    // By queue and priority, like the index, so that jobs due later aren't read.
    let rows = try await database.query(
      """
      SELECT part.queue, count(*)
      FROM unnest(\(queues.map(\.rawValue))) AS part (queue)
      CROSS JOIN generate_series(0, 2) AS level (priority)
      CROSS JOIN LATERAL (
        SELECT FROM tenure.job
        WHERE job.queue = part.queue AND job.priority = level.priority AND discarded_at IS NULL
          AND run_at <= \(now) AND (locked_until IS NULL OR locked_until <= \(now))
        LIMIT \(limit)
      ) AS due
      GROUP BY part.queue
      """)
    var counts: [Job.Queue: Int] = [:]
    for (queue, count) in try rows.decode(Job.Queue.self, Int.self) { counts[queue] = count }
    return counts
  }
}

extension RecordedFamily {
  /// Whether Apple has told nothing of it, though an import says whose it is.
  fileprivate var awaitsApple: Bool {
    line.history.transactions.isEmpty && !line.history.linePlacements.isEmpty
  }
}

extension RenewalPlan.Line {
  /// What the plan looks at, of a line with all that Apple links to it.
  ///
  /// - Parameters:
  ///   - line: The line.
  ///   - rule: Its charges.
  ///   - heardAt: When Apple was asked, if it was just now.
  ///   - notifications: Whether a line's notifications come.
  fileprivate init?(
    _ line: Line, _ rule: OwnershipRule, heardAt: Timestamp? = nil,
    notifications: NotificationMemory
  ) {
    let summary = LineSummary(line: line, rule: rule)
    guard let latest = summary.latest else { return nil }
    self.init(
      id: latest.id.line, isSubscription: latest.isSubscription, periodStart: latest.date,
      periodEnd: latest.end, autoRenews: summary.autoRenews ?? false,
      phase: summary.phase ?? .undisturbed, isRevoked: latest.revocation != nil,
      isCommitment: latest.isCommitment,
      lastPolledAt: [heardAt, summary.statusAsOf].compactMap(\.self).max(),
      hasNotifications: notifications.contains(latest.id.line.environment))
  }
}

/// In which environments Apple sends notifications, as far as this process has heard.
///
/// Whoever plans must not ask the database; and that somebody forgets costs a poll that ends at
/// once.
final class NotificationMemory: Sendable {
  private let environments = Mutex<Set<Environment>>([])

  func note(_ environment: Environment) {
    environments.withLock { _ = $0.insert(environment) }
  }

  func contains(_ environment: Environment) -> Bool {
    environments.withLock { $0.contains(environment) }
  }
}
