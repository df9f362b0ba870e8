import ScratchDatabases
import Testing

@Suite("Where scratch databases are")
struct ScratchPlaceTests {
  // swift-format-ignore
  @Test("the URI of another database of a server", arguments: [
    // server                                    the database `a` of it
    ("postgresql://u@h:1/postgres?x=/y",         "postgresql://u@h:1/a?x=/y"),
    ("postgresql:///postgres?host=/tmp&port=1",  "postgresql:///a?host=/tmp&port=1"),
    ("postgresql://h",                           "postgresql://h/a"),
    ("postgresql://h?x=1",                       "postgresql://h/a?x=1"),
  ])
  func uris(server: String, database: String) {
    #expect(ScratchPlace.uri(server, database: "a") == database)
    #expect(ScratchPlace.database(of: database) == "a")
  }

  // swift-format-ignore
  @Test("what the environment asks for", arguments: [
    // environment                                                  server, distribution
    ([:],                                                            nil,    .none),
    (["TENURE_TEST_DATABASE_URL": ""],                               nil,    .none),
    (["TENURE_TEST_DATABASE_URL": "u"],                              "u",    .none),
    (["TENURE_TEST_DATABASE_URL": "u", "TENURE_TEST_DISTRIBUTED": "on"], "u", .citus),
    (["TENURE_TEST_DISTRIBUTED": "stand-in"],                        nil,    .standIn),
  ] as [([String: String], String?, ScratchPlace.Distribution)])
  func environments(
    environment: [String: String], server: String?, distribution: ScratchPlace.Distribution
  ) {
    let place = ScratchPlace(environment: environment)
    #expect(place.server == server)
    #expect(place.distribution == distribution)
  }
}
