import HTTPTypes
import JSONText
import Postgres
import ScratchDatabases
import Testing

@testable import HTTPAPI

/// Reports as files: all of their rows, or none that looks like all.
struct ReportFileTests {
  /// More than a page has at the most.
  private static let actions = 10_500
  private static let month = "from=2026-01-01&to=2026-01-31&as_of=2026-02-01T00:00:00Z"
  private static let items = "/v1/reports/audit?format=csv&items=true&" + month

  /// Records what administrators did, ten megabytes of it: more than a connection holds that is not
  /// reads from.
  private static func recordActions(in database: ConnectionPool) async throws {
    try await database.execute(
      """
      INSERT INTO tenure.administrator_action
        (acted_at, administrator, action, subject, reason, data)
      SELECT '2026-01-05T00:00:00Z'::timestamptz + n * '1 second'::interval, 'ops', 'grant',
        n::text, repeat('x', 1000), '{}'
      FROM generate_series(1, \(actions)) AS n
      """)
  }

  @Test func `a file has all rows of a report`() async throws {
    try await TestAPI.run { api in
      let choices = "from=1990-01-01&to=2026-04-14&bucket=day&as_of=2026-04-15T12:00:00Z&format=csv"
      let days = 13_253
      var browser = try await AdminBrowser.loggedIn(api)
      let page = try await browser.get("/admin/reports/churn?" + choices)
      #expect(page.status == 200)
      #expect(
        page.headers[.contentDisposition]
          == "attachment; filename=\"churn-1990-01-01-to-2026-04-14.csv\"")
      let lines = page.text.split(separator: "\r\n")
      #expect(lines.count == 1 + days)
      #expect(lines.first?.hasPrefix("from_day,to_day,") == true)
      #expect(Set(lines.dropFirst().map { $0.prefix { $0 != "," } }).count == days)
      let file = try await api.get("/v1/reports/churn?" + choices, as: .admin)
      #expect(file.text == page.text)
      #expect(file.headers[.contentType] == "text/csv; charset=utf-8")
      #expect(file.headers[.contentDisposition] == nil)
      // A limit as large as that is respected.
      let few = try await api.get("/v1/reports/churn?limit=3&" + choices, as: .admin)
      #expect(few.text.split(separator: "\r\n") == Array(lines.prefix(4)))
    }
  }

  @Test func `a file has all that is counted in a number`() async throws {
    try await TestAPI.run { api in
      try await Self.recordActions(in: api.database)
      var browser = try await AdminBrowser.loggedIn(api)
      let path = "/admin/reports/audit/transactions?cell=number&row_action=grant&" + Self.month
      let file = try await browser.get(path + "&format=csv")
      #expect(file.status == 200)
      let subjects = file.text.split(separator: "\r\n").dropFirst().map { line in
        line.split(separator: ",", omittingEmptySubsequences: false)[4]
      }
      // The latest one first.
      #expect(subjects == (1...Self.actions).reversed().map { Substring("\($0)") })
      let list = try await api.get(Self.items, as: .admin)
      #expect(list.text == file.text)
    }
  }

  @Test func `what is wrong with the choices is said before a file begins`() async throws {
    try await TestAPI.run { api in
      var browser = try await AdminBrowser.loggedIn(api)
      let query = "/reports/churn?format=csv&time_zone=Mars/Phobos"
      let page = try await browser.get("/admin" + query)
      #expect(page.status == 400)
      #expect(page.contains("must be a name of the IANA database"))
      #expect(try await api.get("/v1" + query, as: .admin).field == "time_zone")
      #expect(
        try await browser.get(
          "/admin/reports/churn/transactions?cell=expired&format=csv&time_zone=Mars/Phobos"
        ).status == 400)
    }
  }

  @Test func `a client that goes away gives the connection back`() async throws {
    try await withScratchDatabase { database in
      try await Self.recordActions(in: database)
      try await LiveAPI.run(on: database) { live in
        try await RawConnection.to(live.port) { connection in
          try await Self.begin(connection)
          #expect(await database.reading().leased == 1)
        }
        try await Self.untilNothingIsLeased(of: database)
        // The answer to this one would never be read.
        try await RawConnection.to(live.port) { connection in
          try await connection.send(
            "HEAD \(Self.items) HTTP/1.1\r\nHost: localhost\r\n"
              + "Authorization: Bearer admin-secret-for-trying\r\n\r\n")
          let head = await connection.received(until: "\r\n\r\n")
          #expect(head.hasPrefix("HTTP/1.1 200"))
        }
        try await Self.untilNothingIsLeased(of: database)
        #expect(!live.log.text.contains("failed while it was sent"))
      }
    }
  }

  @Test func `a file that fails midway does not look complete`() async throws {
    try await withScratchDatabase { database in
      try await Self.recordActions(in: database)
      try await LiveAPI.run(on: database) { live in
        try await RawConnection.to(live.port) { connection in
          try await Self.begin(connection)
          try await Self.terminateReader(of: database)
          let rest = await connection.received(until: "\r\n0\r\n\r\n")
          #expect(!rest.hasSuffix("\r\n0\r\n\r\n"))
          #expect(live.log.text.contains("Reading a report failed while it was sent"))
        }
      }
    }
  }

  @Test func `no more files are read at a time than there are connections for`() async throws {
    try await withScratchDatabase { database in
      try await Self.recordActions(in: database)
      try await LiveAPI.run(on: database) { live in
        try await RawConnection.to(live.port) { first in
          try await Self.begin(first)
          try await RawConnection.to(live.port) { second in
            try await Self.begin(second)
            let third = try await live.exchange(
              RawConnection.get(Self.items, ["Authorization: Bearer admin-secret-for-trying"]))
            #expect(third?.status == 503)
          }
        }
        try await Self.untilNothingIsLeased(of: database)
        try await RawConnection.to(live.port) { again in try await Self.begin(again) }
      }
    }
  }

  /// Asks for a file, and reads no further than its first lines.
  private static func begin(_ connection: RawConnection) async throws {
    try await connection.get(items, ["Authorization: Bearer admin-secret-for-trying"])
    let begun = await connection.received(until: "\r\n\r\n")
    #expect(begun.hasPrefix("HTTP/1.1 200"))
  }

  /// Ends the connection that a file is read on, while no client takes its rows.
  private static func terminateReader(of database: ConnectionPool) async throws {
    for _ in 0..<5000 {
      let ended = try await database.query(
        """
        SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
        WHERE datname = current_database() AND state = 'idle in transaction'
        """
      ).decodeOnly(Int.self)
      if ended > 0 { return }
      try await Task.sleep(for: .milliseconds(10))
    }
    Issue.record("No file is read.")
  }

  private static func untilNothingIsLeased(of database: ConnectionPool) async throws {
    for _ in 0..<5000 {
      if await database.reading().leased == 0 { return }
      try await Task.sleep(for: .milliseconds(10))
    }
    Issue.record("A connection was not given back.")
  }
}
