import Foundation
import PrivatePostgres
import Testing

@testable import Postgres

/// A server that stops, freezes or comes back, one fault after the other, on a server that no other
/// test uses.
@Suite(.serialized) struct FaultTests {
  private static let processID: SQL = "SELECT pg_backend_pid()"
  private static let server = Task {
    try await TestServer.start(settings: ["fsync": "on"])
  }

  private func withServer(
    _ body: (PrivatePostgres, _ uri: String) async throws -> Void
  ) async throws {
    let server = try await Self.server.value
    try await body(server, await server.uri())
  }

  @Test func aTerminatedBackendIsReplaced() async throws {
    try await TestServer.withPool {
      $0.connectionLimit = 1
    } _: { pool in
      let process = try await pool.query(Self.processID).decodeOnly(Int32.self)
      let victim = Task { await postgresError { _ = try await pool.query("SELECT pg_sleep(600)") } }
      let isSent = try await eventually { await pool.driver.requestsSent == 2 }
      #expect(isSent)
      try await TestServer.withPool {
        _ = try await $0.query("SELECT pg_terminate_backend(\(process))")
      }
      let error = await victim.value
      #expect(error?.sqlState == .adminShutdown)
      #expect(error?.isTransient == true)
      let next = try await pool.query(Self.processID).decodeOnly(Int32.self)
      #expect(next != process)
    }
  }

  @Test(arguments: [false, true])
  func aTransactionThatLosesItsConnectionIsRunAgain(beforeItsCommit: Bool) async throws {
    try await TestServer.withPool { pool in
      let attempts = Counter()
      let value = try await pool.withTransaction { transaction in
        let process = try await transaction.query(Self.processID).decodeOnly(Int32.self)
        if await attempts.next() == 1 {
          _ = try await pool.query("SELECT pg_terminate_backend(\(process))")
          // It arrives while the body computes: the commit is never sent.
          let isReceived = try await eventually {
            if case .ended = await transaction.session.state { true } else { !beforeItsCommit }
          }
          #expect(isReceived)
        }
        return beforeItsCommit
          ? try await transaction.commit(with: ["SELECT 4"])[0].decodeOnly(Int.self)
          : try await transaction.query("SELECT 4").decodeOnly(Int.self)
      }
      #expect(value == 4)
      #expect(await attempts.count == 2)
    }
  }

  @Test func aRestartedServerIsFoundAgain() async throws {
    try await withServer { server, uri in
      try await TestServer.withPool(uri: uri) { pool in
        _ = try await pool.query("SELECT 1")
        try await server.restart()
        #expect(try await pool.query("SELECT 2").decodeOnly(Int.self) == 2)

        try await server.kill()
        // Requests before the pool notices lose a statement; later ones wait.
        let isReceived = try await eventually {
          let limit = Duration.milliseconds(200)
          let error = await postgresError { _ = try await pool.query("SELECT 1", deadline: limit) }
          return error?.code == .poolTimeout || error?.code == .connectionFailed
        }
        #expect(isReceived)
        let waiting = Task { try await pool.query("SELECT 3").decodeOnly(Int.self) }
        try await Task.sleep(for: .milliseconds(200))
        try await server.startAgain()
        #expect(try await waiting.value == 3)
      }
    }
  }

  @Test func aFrozenServerIsGivenUp() async throws {
    try await withServer { server, uri in
      try await TestServer.withPool(uri: uri) {
        $0.statementDeadline = .milliseconds(300)
      } _: { pool in
        let patience = TestServer.patience
        let backend = try await pool.query(Self.processID, deadline: patience).decodeOnly(
          Int32.self)
        let postmaster = try #require(await server.processID)
        kill(postmaster, SIGSTOP)
        kill(backend, SIGSTOP)
        let begin = ContinuousClock.now
        let error = await postgresError { _ = try await pool.query("SELECT 1") }
        #expect(error?.code == .timedOut)
        #expect(ContinuousClock.now - begin < .seconds(60))
        // The connection is given up as well, once it has not reacted to being cancelled.
        try await Task.sleep(for: Backend.cancellationGrace + .milliseconds(300))
        kill(postmaster, SIGCONT)
        let next = try await pool.query(Self.processID, deadline: patience).decodeOnly(
          Int32.self)
        #expect(next != backend)
        kill(backend, SIGCONT)
      }
    }
  }

  @Test func aServerThatAnswersNothingIsNotWaitedFor() async throws {
    try await withServer { server, uri in
      try await TestServer.withPool(uri: uri + "&connect_timeout=2") {
        $0.connectionLimit = 1
        $0.outageTimeout = .milliseconds(500)
      } _: { pool in
        let postmaster = try #require(await server.processID)
        let ended = await postgresError {
          _ = try await pool.query("SELECT pg_terminate_backend(pg_backend_pid())")
        }
        #expect(ended != nil)
        // It takes connections, and says nothing on them.
        kill(postmaster, SIGSTOP)
        for statement: SQL in ["SELECT 1", "SELECT 2"] {
          let error = await postgresError { _ = try await pool.query(statement) }
          #expect(error?.code == .connectionFailed)
          #expect(error?.isTransient == true)
        }
        let lease = await postgresError {
          try await pool.withTransaction(maxAttempts: 1) { _ = try await $0.query("SELECT 3") }
        }
        #expect(lease?.code == .connectionFailed)
        kill(postmaster, SIGCONT)
        let isBack = try await eventually { (try? await pool.query("SELECT 4")) != nil }
        #expect(isBack)
      }
    }
  }

  @Test func aStatementOverItsDeadlineIsCancelled() async throws {
    try await TestServer.withPool {
      $0.connectionLimit = 1
    } _: { pool in
      let process = try await pool.query(Self.processID).decodeOnly(Int32.self)
      let error = await postgresError {
        _ = try await pool.query("SELECT pg_sleep(600)", deadline: .milliseconds(200))
      }
      #expect(error?.code == .timedOut)
      // The server gave it up; the connection is as good as before.
      #expect(try await pool.query(Self.processID).decodeOnly(Int32.self) == process)
    }
  }

  @Test func deadHostsOfSeveralArePassedBy() async throws {
    try await withServer { server, uri in
      let socket = try #require(uri.firstMatch(of: /host=([^&]*)/)?.output.1)
      let several =
        "postgresql:///postgres?user=postgres&target_session_attrs=read-write"
        + "&host=/nowhere,127.0.0.1,\(socket)&port=1,1,5432"
      try await TestServer.withPool(uri: several) { pool in
        let alive = try await pool.query("SELECT 1").count
        #expect(alive == 1)
      }
    }
  }

  @Test func aFrozenPrimaryIsLeftForTheOneThatTookItsPlace() async throws {
    try await withServer { frozen, frozenURI in
      // The two have nothing in common but that both take writes: that is all a client sees.
      let sockets = try [frozenURI, await TestServer.uri()].map {
        try #require($0.firstMatch(of: /host=([^&]*)/)?.output.1)
      }
      let either =
        "postgresql:///postgres?user=postgres&target_session_attrs=read-write&connect_timeout=2"
        + "&host=\(sockets[0]),\(sockets[1])&port=5432,5432"
      try await TestServer.withPool(uri: either) {
        $0.suspicionAfter = .milliseconds(200)
      } _: { pool in
        var events = pool.listen(to: ["moved"]).makeAsyncIterator()
        #expect(await events.next() == .listening)
        let processes = try await pool.query(
          "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend'"
        ).decode(Int32.self)
        let postmaster = try #require(await frozen.processID)
        let all = [postmaster] + processes
        let directory: SQL = "SHOW data_directory"
        let first = try await pool.query(directory).decodeOnly(String.self)
        for process in all { kill(process, SIGSTOP) }
        defer { for process in all { kill(process, SIGCONT) } }
        let lost = await postgresError { _ = try await pool.query("SELECT pg_sleep(600)") }
        #expect(lost?.code == .connectionLost)
        #expect(lost?.isTransient == true)
        #expect(try await pool.query(directory).decodeOnly(String.self) != first)
        #expect(await events.next() == .reconnected)
      }
    }
  }

  @Test func aCommitThatStandbysMayLackIsNotConfirmed() async throws {
    let server = try await TestServer.start(settings: [
      "synchronous_commit": "on", "synchronous_standby_names": "absent",
    ])
    let uri = await server.uri()
    try await TestServer.withPool(uri: uri) {
      $0.connectionLimit = 1
    } _: { pool in
      try await pool.runScript(
        "BEGIN; SET LOCAL synchronous_commit = local; CREATE TABLE kept (id int); COMMIT")
      let process = try await pool.query(Self.processID).decodeOnly(Int32.self)
      let writes: [@Sendable () async throws -> Void] = [
        { try await pool.execute("INSERT INTO kept VALUES (1)") },
        {
          try await pool.withTransaction(maxAttempts: 1) {
            _ = try await $0.execute("INSERT INTO kept VALUES (1)")
          }
        },
        { try await pool.runScript("INSERT INTO kept VALUES (1)") },
      ]
      for write in writes {
        let victim = Task { await postgresError { try await write() } }
        try await TestServer.withPool(uri: uri) { other in
          let isCancelled = try await eventually {
            try await other.query(
              """
              SELECT pg_cancel_backend(pid) FROM pg_stat_activity
              WHERE pid = \(process) AND wait_event = 'SyncRep'
              """
            ).count == 1
          }
          #expect(isCancelled)
        }
        let error = await victim.value
        #expect(error?.code == .timedOut)
        #expect(error?.isTransient == true)
      }
      #expect(try await pool.query("TABLE kept").count == writes.count)
    }
    await server.stop()
  }

  @Test func idleConnectionsAreAskedWhetherTheyWork() async throws {
    try await withServer { server, uri in
      try await TestServer.withPool(uri: uri) {
        $0.idleHealthCheckInterval = .milliseconds(100)
        $0.connectTimeout = .milliseconds(200)
      } _: { pool in
        let backend = try await pool.query(Self.processID).decodeOnly(Int32.self)
        kill(backend, SIGSTOP)
        let isReplaced = try await eventually {
          let now = try? await pool.query(Self.processID, deadline: .seconds(1))
          return try now?.decodeOnly(Int32.self) != backend
        }
        kill(backend, SIGCONT)
        #expect(isReplaced)
      }
    }
  }

  @Test func whoWaitsWhileAConnectionIsLostGetsTheNext() async throws {
    try await TestServer.withPool {
      $0.connectionLimit = 1
    } _: { pool in
      let process = try await pool.query(Self.processID).decodeOnly(Int32.self)
      let victim = Task { await postgresError { _ = try await pool.query("SELECT pg_sleep(600)") } }
      let isSent = try await eventually { await pool.driver.requestsSent == 2 }
      #expect(isSent)
      // It is known to be slow by now, so no request is queued behind it.
      try await Task.sleep(for: .milliseconds(50))
      let session = Session()
      let waiting = await Answers(
        of: [nil, nil, session].map {
          Request(["SELECT 1"], session: $0, timeout: TestServer.patience)
        }, from: pool)
      try await TestServer.withPool {
        _ = try await $0.query("SELECT pg_terminate_backend(\(process))")
      }
      #expect(await victim.value?.sqlState == .adminShutdown)
      for index in 0..<3 { #expect(try await waiting.rows(of: index)?.count == 1) }
      await pool.driver.end(session)
    }
  }

  @Test func aConnectionThatEndsBeforeTheAnswerDoesIsLost() async throws {
    try await TestServer.withPool { pool in
      try await pool.runScript(
        """
        CREATE TABLE fatal_late (id int);
        CREATE FUNCTION end_connection() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END $$;
        CREATE CONSTRAINT TRIGGER fatal AFTER INSERT ON fatal_late
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION end_connection();
        """)
      let error = await postgresError {
        try await pool.execute("INSERT INTO fatal_late VALUES (1)")
      }
      #expect(error?.code == .connectionLost)
      #expect(error?.sqlState == .adminShutdown)
      #expect(error?.isTransient == true)
      #expect(try await pool.query("TABLE fatal_late").isEmpty)
    }
  }

  @Test func aConfirmedCommitStandsThoughItsConnectionIsLost() async throws {
    try await withServer { server, uri in
      try await TestServer.withPool(uri: uri) {
        $0.connectionLimit = 1
      } _: { pool in
        try await pool.execute("CREATE TABLE confirmed (id int)")
        // While COMMIT writes the log, its backend can't be terminated: it is as soon as it has
        // confirmed it.
        for setting in [
          "commit_delay = 100000", "commit_siblings = 0", "synchronous_commit = on",
        ] {
          try await pool.execute("SET \(unescaped: setting)")
        }
        let process = try await pool.query(Self.processID).decodeOnly(Int32.self)
        let terminator = Task {
          try await TestServer.withPool(uri: uri) {
            try await $0.execute(
              """
              DO $$ BEGIN
                WHILE NOT EXISTS (SELECT FROM pg_stat_activity
                  WHERE pid = \(unescaped: "\(process)") AND state = 'active' AND query = 'COMMIT')
                LOOP PERFORM pg_sleep(0.001), pg_stat_clear_snapshot(); END LOOP;
                PERFORM pg_sleep(0.02), pg_terminate_backend(\(unescaped: "\(process)"));
              END $$
              """)
          }
        }
        let isWatched = try await eventually {
          try await pool.query(
            "SELECT FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'DO %'"
          ).count == 1
        }
        #expect(isWatched)
        // On a busy machine one commit may pass unseen.
        var commits = 0
        while commits < 100,
          (try? await pool.query(Self.processID).decodeOnly(Int32.self)) == process
        {
          try await pool.withTransaction(maxAttempts: 1) {
            try await $0.execute("INSERT INTO confirmed VALUES (1)")
          }
          commits += 1
        }
        _ = try await terminator.value
        #expect(try await pool.query("TABLE confirmed").count == commits)
        #expect(try await pool.query(Self.processID).decodeOnly(Int32.self) != process)
      }
    }
  }
}
