import Foundation
import Postgres
import Subscriptions
import Testing

@testable import LedgerStorage

@Suite("The queue")
struct QueueTests {
  private static func order(_ number: Int) -> Job.Key {
    .processNotification("n\(number)")
  }

  private static func poll(_ number: Int) -> Job.Key {
    .pollStatus(OriginalTransactionKey(.production, OriginalTransactionID(rawValue: "\(number)")))
  }

  private func schedule(
    _ task: Job.Key, after delay: Duration = .zero, priority: Int = 0, in ledger: Ledger
  ) async throws {
    try await ledger.database.execute(
      Job.schedule(task, runAt: start + delay, priority: priority, at: start))
  }

  private func holders(_ ledger: Ledger) async throws -> [String?] {
    try await ledger.database.query("SELECT locked_by FROM tenure.job ORDER BY job_id")
      .decode(String?.self)
  }

  @Test("a lane gives no more than it is asked for, and none takes the place of another")
  func lanes() async throws {
    try await withLedger { ledger in
      for number in 1...20 { try await schedule(Self.poll(number), in: ledger) }
      try await schedule(Self.order(1), after: .seconds(1), in: ledger)
      try await schedule(.reconcile, after: .seconds(2), in: ledger)
      let jobs = try await ledger.jobs.claimJobs(
        limits: [.polls: 3, .notifications: 3, .clock: 3], worker: "a", at: start + .seconds(2),
        lease: .seconds(20))
      #expect(jobs.count { $0.queue == .polls } == 3)
      #expect(jobs.map(\.key).contains(Self.order(1)))
      #expect(jobs.count == 4)
      let none = try await ledger.jobs.claimJobs(
        limits: [:], worker: "a", at: start + .seconds(2), lease: .seconds(20))
      #expect(none.isEmpty)
    }
  }

  @Test("the most urgent comes first, and then what is due for longest")
  func urgency() async throws {
    try await withLedger { ledger in
      try await schedule(Self.poll(1), after: .seconds(1), priority: 2, in: ledger)
      try await schedule(Self.poll(2), after: .seconds(3), priority: 0, in: ledger)
      try await schedule(Self.poll(3), after: .seconds(2), priority: 0, in: ledger)
      try await schedule(Self.poll(4), after: .seconds(1), priority: 1, in: ledger)
      try await schedule(Self.poll(5), after: .seconds(99), priority: 0, in: ledger)
      func claim(_ limit: Int) async throws -> [Job.Key] {
        try await ledger.jobs.claimJobs(
          limits: [.polls: limit], worker: "a", at: start + .seconds(9), lease: .seconds(20)
        ).map(\.key)
      }
      #expect(try await claim(3) == [Self.poll(3), Self.poll(2), Self.poll(4)])
      #expect(try await claim(3) == [Self.poll(1)])
    }
  }

  @Test("many workers at once share the jobs, and none is done twice")
  func sharing() async throws {
    try await withLedger { ledger in
      let tasks = (1...300).map(Self.order)
      try await ledger.database.batch(tasks.map { Job.schedule($0, runAt: start, at: start) })
      let claimed: [Job.Key] = try await withThrowingTaskGroup(of: [Job.Key].self) { group in
        for worker in 1...8 {
          group.addTask {
            var claimed: [Job.Key] = []
            while true {
              let jobs = try await ledger.jobs.claimJobs(
                limits: [.notifications: 7], worker: "w\(worker)", at: start, lease: .seconds(20))
              // Jobs that another worker is claiming are skipped.
              let left = try await ledger.jobs.nextJobs()
              claimed += jobs.map(\.key)
              for job in jobs { try await ledger.jobs.complete(job) }
              if jobs.isEmpty, left.isEmpty { return claimed }
            }
          }
        }
        var all: [Job.Key] = []
        for try await some in group { all += some }
        return all
      }
      #expect(claimed.count == tasks.count)
      #expect(Set(claimed) == Set(tasks))
    }
  }

  @Test("a lease that is over is another's; one that is renewed is not")
  func leases() async throws {
    try await withLedger { ledger in
      try await schedule(Self.order(1), in: ledger)
      try await schedule(Self.order(2), in: ledger)
      func claim(_ worker: String, after delay: Duration) async throws -> [Job] {
        try await ledger.jobs.claimJobs(
          limits: [.notifications: 9], worker: worker, at: start + delay, lease: .seconds(20))
      }
      let jobs = try await claim("a", after: .zero)
      #expect(jobs.count == 2)
      let kept = try await ledger.jobs.extendLeases(of: [jobs[0]], until: start + .seconds(40))
      #expect(kept == [jobs[0].id])
      // A lease is never shortened.
      try await ledger.jobs.extendLeases(of: [jobs[0]], until: start + .seconds(30))
      #expect(try await claim("b", after: .seconds(19)).isEmpty)
      #expect(try await claim("b", after: .seconds(20)).map(\.key) == [jobs[1].key])
      #expect(try await claim("b", after: .seconds(39)).isEmpty)
      #expect(try await ledger.jobs.extendLeases(of: jobs, until: start + .days(1)) == [jobs[0].id])
    }
  }

  @Test("who has begun a job often and come to no end keeps others from it for longer")
  func deadlyJob() async throws {
    try await withLedger { ledger in
      try await schedule(Self.order(1), in: ledger)
      var now = start
      var leases: [Duration] = []
      for _ in 1...15 {
        _ = try await ledger.jobs.claimJobs(
          limits: [.notifications: 1], worker: "a", at: now, lease: .seconds(20))
        let end = try await ledger.database.query("SELECT locked_until FROM tenure.job")
          .decodeOnly(Timestamp.self)
        leases.append(end - now)
        now = end
      }
      #expect(leases.prefix(6) == Array(repeating: .seconds(20), count: 6)[...])
      #expect(leases[6] == .seconds(40))
      #expect(leases.last == .seconds(20 * 128))
    }
  }

  @Test("a job that was not begun is given back as if it had not been claimed")
  func givingBack() async throws {
    try await withLedger { ledger in
      for number in 1...3 { try await schedule(Self.order(number), in: ledger) }
      let jobs = try await ledger.jobs.claimJobs(
        limits: [.notifications: 2], worker: "a", at: start, lease: .seconds(20))
      _ = try await ledger.jobs.claimJobs(
        limits: [.notifications: 2], worker: "b", at: start, lease: .seconds(20))
      try await ledger.jobs.giveBack(jobs)
      #expect(try await holders(ledger) == [nil, nil, "b"])
      let again = try await ledger.jobs.claimJobs(
        limits: [.notifications: 9], worker: "b", at: start, lease: .seconds(20))
      #expect(again.map(\.attempts) == [1, 1])
      // Returning jobs late does not release another worker's claim.
      try await ledger.jobs.giveBack(jobs)
      #expect(try await holders(ledger) == ["b", "b", "b"])
    }
  }

  @Test("the next job of a lane is the next to be due, or the next whose lease is over")
  func nextJob() async throws {
    try await withLedger { ledger in
      #expect(try await ledger.jobs.nextJobs().isEmpty)
      try await schedule(Self.poll(1), after: .seconds(7), priority: 2, in: ledger)
      try await schedule(Self.poll(2), after: .seconds(9), priority: 0, in: ledger)
      try await schedule(Self.order(1), after: .seconds(3), in: ledger)
      try await schedule(Self.order(2), after: .seconds(50), in: ledger)
      try await schedule(.reconcile, in: ledger)
      #expect(
        try await ledger.jobs.nextJobs() == [
          .polls: start + .seconds(7), .notifications: start + .seconds(3), .maintenance: start,
        ])
      let jobs = try await ledger.jobs.claimJobs(
        limits: [.notifications: 1, .maintenance: 1], worker: "a", at: start + .seconds(4),
        lease: .seconds(20))
      let queue = Job.Queue.notifications
      #expect(try await ledger.jobs.nextJobs()[queue] == start + .seconds(24))
      #expect(try await ledger.jobs.discard(jobs[0], because: "why", at: start))
      #expect(try await ledger.jobs.nextJobs()[.maintenance] == nil)
    }
  }

  @Test("what changed while it was done is done again, and is not given up")
  func changedMeanwhile() async throws {
    try await withLedger { ledger in
      try await schedule(Self.poll(1), in: ledger)
      func claim() async throws -> Job {
        try #require(
          try await ledger.jobs.claimJobs(
            limits: [.polls: 1], worker: "a", at: start + .seconds(60), lease: .seconds(20)
          ).first)
      }
      let first = try await claim()
      try await schedule(Self.poll(1), after: .seconds(30), in: ledger)
      #expect(try await !ledger.jobs.discard(first, because: "late", at: start))
      try await ledger.jobs.repeat(first, at: start + .days(9), now: start)
      let second = try await claim()
      try await ledger.jobs.repeat(second, at: start + .days(9), now: start)
      #expect(try await ledger.jobs.nextJobs()[.polls] == start + .days(9))
    }
  }

  @Test("a failure does not put off what was given an earlier time meanwhile")
  func failedMeanwhile() async throws {
    try await withLedger { ledger in
      try await schedule(Self.poll(1), in: ledger)
      let job = try #require(
        try await ledger.jobs.claimJobs(
          limits: [.polls: 1], worker: "a", at: start, lease: .seconds(20)
        ).first)
      try await schedule(Self.poll(1), after: .seconds(30), in: ledger)
      try await ledger.jobs.release(job, until: start + .days(9), because: "a deadlock")
      #expect(try await ledger.jobs.nextJobs()[.polls] == start + .seconds(30))
    }
  }

  @Test("a kind of a later version is left to its workers")
  func unknownKind() async throws {
    try await withLedger { ledger in
      try await ledger.database.runScript(
        """
        INSERT INTO tenure.job (kind, subject, queue, run_at, created_at)
        VALUES ('tidy_up', 'all', 'maintenance', '2025-01-01', '2025-01-01'),
          ('reconcile', 'all', 'attic', '2025-01-01', '2025-01-01')
        """)
      #expect(
        try await ledger.jobs.claimJobs(
          limits: [.maintenance: 1], worker: "a", at: start, lease: .seconds(20)
        ).isEmpty)
      #expect(try await ledger.jobs.nextJobs().isEmpty)
      // Operators see and retry them all the same.
      #expect(try await ledger.jobs.jobCounts(at: start).map(\.queue) == ["attic", "maintenance"])
      #expect(try await ledger.jobs.restartJobs(.named(["all"]), at: start) == 2)
    }
  }

  @Test("a job is written three times from its commit to its end, and only where something changes")
  func rowWrites() async throws {
    try await withLedger { ledger in
      for statement in [
        "CREATE TABLE public.job_write (operation text NOT NULL)",
        """
        CREATE FUNCTION public.note_job_write() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN INSERT INTO public.job_write VALUES (TG_OP); RETURN NULL; END $$
        """,
        """
        CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON tenure.job
          FOR EACH ROW EXECUTE FUNCTION public.note_job_write()
        """,
      ] { try await ledger.database.runScript(statement) }
      func writes(_ body: () async throws -> Void) async throws -> [String] {
        try await ledger.database.execute("DELETE FROM public.job_write")
        try await body()
        return try await ledger.database.query("SELECT operation FROM public.job_write")
          .decode(String.self)
      }
      func claim(_ queue: Job.Queue) async throws -> Job {
        try #require(
          try await ledger.jobs.claimJobs(
            limits: [queue: 1], worker: "a", at: start + .days(1), lease: .seconds(20)
          ).first)
      }
      let once = try await writes {
        try await schedule(Self.order(1), in: ledger)
        try await ledger.jobs.complete(try await claim(.notifications))
      }
      #expect(once == ["INSERT", "UPDATE", "DELETE"])
      try await schedule(Self.poll(1), in: ledger)
      let again = try await writes {
        try await ledger.jobs.repeat(try await claim(.polls), at: start + .days(9), now: start)
      }
      #expect(again == ["UPDATE", "UPDATE"])
      let same = try await writes {
        try await schedule(Self.poll(1), after: .days(9), in: ledger)
      }
      #expect(same.isEmpty)
      let moved = try await writes {
        try await schedule(Self.poll(1), after: .days(1), in: ledger)
        // A claimed job is always written: its worker has to find that it runs again.
        let job = try await claim(.polls)
        try await schedule(Self.poll(1), after: .days(1), in: ledger)
        try await ledger.jobs.complete(job)
      }
      #expect(moved == ["UPDATE", "UPDATE", "UPDATE", "UPDATE"])
      #expect(try await ledger.jobs.nextJobs()[.polls] == start + .days(1))

      let extended = try await writes {
        let job = try await claim(.polls)
        let end = start + .days(1) + .seconds(25)
        try await ledger.jobs.extendLeases(
          of: [job], until: end, ifEndingBefore: end - .seconds(5))
        try await ledger.jobs.complete(job)
      }
      #expect(extended == ["UPDATE", "DELETE"])

      // A renewal that a poll finds: its recording and the poll itself plan the next one.
      let planned = try await writes {
        _ = try await ledger.polls.record(
          [charge("1", on: -30.5), status(true, on: -30)], polledAs: "o", at: day(-30),
          terms: .everything)
      }
      #expect(planned == ["INSERT"])
      let polled = try await writes {
        _ = try await ledger.polls.record(
          [charge("2", on: -0.5, asOf: 0.9), status(true, on: 0.9)], polledAs: "p",
          about: PollStore.PolledOriginalTransaction(
            originalKey, of: "a.b", job: try await claim(.polls)),
          at: start + .days(1), terms: .everything)
      }
      #expect(polled == ["UPDATE", "UPDATE"])

      let delivered = try await writes {
        let anna = try await ledger.accounts.findOrCreateAccount("anna", at: start).key
        #expect(try await ledger.webhooks.pushEvents(at: start) == 0)
        for _ in 1...3 {
          _ = try await ledger.insertEvent(of: anna)
          #expect(try await ledger.webhooks.pushEvents(at: start) == 1)
        }
        let job = try await claim(.webhooks)
        var made: WebhookDelivery?
        while let next = try await ledger.webhooks.nextDelivery(job, after: made, at: start) {
          made = next
        }
      }
      #expect(delivered == ["INSERT", "UPDATE", "DELETE"])
    }
  }

  @Test("what is seeded is there once")
  func seeding() async throws {
    try await withLedger { ledger in
      try await ledger.jobs.seed([.reconcile, .pruneEvents], at: start)
      try await ledger.jobs.seed([.pruneEvents], at: start + .days(1))
      try await ledger.jobs.seed([], at: start)
      #expect(try await holders(ledger).count == 2)
      #expect(try await ledger.jobs.nextJobs()[.maintenance] == start)
    }
  }

  @Test("the queue is counted, and what was given up is listed and started again")
  func operating() async throws {
    try await withLedger { ledger in
      for number in 1...6 {
        try await schedule(Self.order(number), after: .seconds(number), in: ledger)
      }
      try await schedule(.reconcile, in: ledger)
      let jobs = try await ledger.jobs.claimJobs(
        limits: [.notifications: 3, .maintenance: 1], worker: "a", at: start + .seconds(4),
        lease: .seconds(20))
      let (reconcile, first, second) = (jobs[0], jobs[1], jobs[2])
      #expect(try await ledger.jobs.discard(first, because: "first", at: start + .seconds(5)))
      #expect(
        try await ledger.jobs.discard(reconcile, because: "reconcile", at: start + .seconds(6)))
      try await ledger.jobs.release(second, until: start + .seconds(90), because: "second")

      let counts = try await ledger.jobs.jobCounts(at: start + .seconds(5))
      #expect(counts.map(\.kind) == ["process_notification", "reconcile"])
      let count = try #require(counts.first)
      #expect(count.queue == "notifications")
      // The fourth and the fifth are due, the sixth and the second wait, the third runs.
      #expect(count.due == 2)
      #expect(count.waiting == 2)
      #expect(count.running == 1)
      #expect(count.discarded == 1)
      #expect(count.failing == 1)
      #expect(count.dueSince == start + .seconds(4))

      let parked = try await ledger.jobs.discardedJobs(limit: 10)
      #expect(parked.map(\.lastError) == ["reconcile", "first"])
      #expect(parked.map(\.state) == [.discarded, .discarded])
      #expect(
        try await ledger.jobs.discardedJobs(kind: "reconcile", limit: 10).map(\.subject) == ["all"])
      #expect(try await ledger.jobs.discardedJobs(limit: 1).count == 1)

      let now = start + .seconds(100)
      func state(_ name: String) async throws -> StoredJob.State? {
        try await ledger.jobs.jobs(named: name, at: now).first?.state
      }
      #expect(try await state("n1") == .discarded)
      #expect(try await state("\(jobs[3].id)") == .running)
      #expect(try await state("n6") == .due)
      #expect(try await ledger.jobs.jobs(named: "n6", at: start).map(\.state) == [.waiting])
      #expect(try await state("n7") == nil)

      // A running job is not retried.
      #expect(
        try await ledger.jobs.restartJobs(.named(["n1", "n3", "\(second.id)"]), at: now) == 2)
      #expect(try await state("n3") == .running)
      #expect(try await state("n1") == .due)
      let again = try #require(try await ledger.jobs.jobs(named: "n2", at: now).first)
      #expect(again.runAt == now)
      #expect(again.createdAt == now)
      #expect(again.attempts == 0)
      #expect(try await ledger.jobs.restartJobs(.discarded(kind: "poll_status"), at: now) == 0)
      #expect(try await ledger.jobs.restartJobs(.allDiscarded, at: now) == 1)
      #expect(try await ledger.jobs.discardedJobs(limit: 10).isEmpty)
    }
  }

  @Test("every kind of job has its name, its lane and a way back from its row")
  func kinds() throws {
    let id = UUID()
    let tasks: [Job.Key] = [
      .verifySubmission(id), .processNotification("n"), Self.poll(1),
      .compareNotifications(bundleID: "com.example/app", .sandbox),
      .publishEntitlements(AccountKey(rawValue: id)), .expireOrder(id),
      .deliverEvents(stream: "line/production/1"), .reconcile, .pruneEvents,
      .rollUpMovements, .mergeAccount(AccountKey(rawValue: id)), .prunePayloads,
      .setAppAccountToken(OriginalTransactionKey(.sandbox, "1")),
      .sendConsumption(.production, notificationID: "a/b"), .trimAccountChanges,
      .makeCheckpoint,
    ]
    #expect(tasks.map(\.kind) == Job.Kind.allCases)
    #expect(Set(tasks.map(\.queue.rawValue)).isSubset(of: Job.Queue.allCases.map(\.rawValue)))
    func job(_ index: Int) -> Job {
      Job(
        id: 1, key: tasks[index], attempts: 1, worker: "w", generation: 0,
        createdAt: Timestamp(milliseconds: 0))
    }
    #expect(try job(0).subjectID == id)
    #expect(try job(4).subjectID == id)
    #expect(try job(2).originalTransaction == OriginalTransactionKey(.production, "1"))
    #expect(try job(3).scope.environment == .sandbox)
    #expect(try job(3).scope.name == "com.example/app")
    #expect(try job(13).scope.name == "a/b")
    #expect(throws: DecodingFault.self) { try job(1).subjectID }
    #expect(throws: DecodingFault.self) { try job(7).originalTransaction }
  }
}
