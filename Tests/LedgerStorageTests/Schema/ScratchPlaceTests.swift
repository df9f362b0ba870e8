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
    // environment                                              server, distributed
    ([:],                                                        nil,    false),
    (["TENURE_TEST_DATABASE_URL": ""],                           nil,    false),
    (["TENURE_TEST_DATABASE_URL": "u"],                          "u",    false),
    (["TENURE_TEST_DATABASE_URL": "u", "TENURE_TEST_CITUS_URL": "c"], "c", true),
    (["TENURE_TEST_CITUS_URL": "c"],                             "c",    true),
  ] as [([String: String], String?, Bool)])
  func environments(environment: [String: String], server: String?, isDistributed: Bool) {
    let place = ScratchPlace(environment: environment)
    #expect(place.server == server)
    #expect(place.isDistributed == isDistributed)
  }
}
