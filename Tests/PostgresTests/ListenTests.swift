import Foundation
import Postgres
import Testing

@Suite struct ListenTests {
  @Test func notificationsArriveAndTheConnectionComesBack() async throws {
    try await TestServer.withPool { pool in
      let channel = "odd \"channel\""
      var events = pool.listen(to: [channel, "other"]).makeAsyncIterator()
      #expect(await events.next() == .listening)
      try await pool.execute("SELECT pg_notify(\(channel), \("hello"))")
      guard case .notification(let first) = await events.next() else {
        Issue.record("no notification")
        return
      }
      #expect(first.channel == channel)
      #expect(first.payload == "hello")

      let listeners: SQL = """
        SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE query LIKE 'LISTEN "odd%' OR query = 'LISTEN "other"'
        """
      #expect(try await pool.query(listeners).count == 1)
      #expect(await events.next() == .reconnected)
      try await pool.execute("NOTIFY other, 'again'")
      guard case .notification(let second) = await events.next() else {
        Issue.record("no notification after the break")
        return
      }
      #expect(second.payload == "again")
    }
  }

  @Test func listeningEndsWithThePool() async throws {
    let events = try await TestServer.withPool { pool in
      let events = pool.listen(to: ["ending"])
      for await event in events where event == .listening { break }
      return pool.listen(to: ["ending"])
    }
    for await _ in events {}
  }

  @Test func failuresToConnectAreLogged() async throws {
    let log = RecordedLog()
    let nowhere = "postgresql:///x?host=/nowhere"
    try await TestServer.withPool(uri: nowhere, logger: log.logger) { pool in
      let events = pool.listen(to: ["unheard"])
      let isLogged = try await eventually {
        log.lines.contains("warning Could not connect to PostgreSQL for LISTEN")
      }
      #expect(isLogged)
      withExtendedLifetime(events) {}
    }
  }

  @Test func aFrozenConnectionIsGivenUp() async throws {
    try await TestServer.withPool {
      $0.idleHealthCheckInterval = .milliseconds(500)
      $0.connectTimeout = .seconds(2)
    } _: { pool in
      var events = pool.listen(to: ["frozen"]).makeAsyncIterator()
      #expect(await events.next() == .listening)
      let listener: SQL =
        "SELECT pid FROM pg_stat_activity WHERE query = \("LISTEN \"frozen\"")"
      let process = try await pool.query(listener).decodeOnly(Int32.self)
      kill(process, SIGSTOP)
      #expect(await events.next() == .reconnected)
      kill(process, SIGCONT)
    }
  }
}
