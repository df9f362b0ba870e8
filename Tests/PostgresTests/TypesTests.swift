import Foundation
import Postgres
import Testing

/// A value, sent and read back, and what PostgreSQL says that it is.
struct RoundTrip: Sendable, CustomTestStringConvertible {
  let testDescription: String
  let run: @Sendable (ConnectionPool) async throws -> Void

  init<Value: PostgresCodable & Equatable>(_ value: Value, _ text: String?) {
    testDescription = "\(Value.self) \(text ?? "NULL")"
    run = { pool in
      let rows = try await pool.query("SELECT \(value), (\(value))::text")
      let (back, said) = try rows.decodeOnly(Value.self, String?.self)
      #expect(back == value)
      #expect(said == text)
    }
  }
}

enum Mood: String, PostgresCodable { case happy, sad }
enum Level: Int16, PostgresCodable { case low = 1, high = 2 }

struct Celsius: PostgresCodable, RawRepresentable, Equatable {
  let rawValue: Double
}

@Suite struct TypesTests {
  static let someUUID = UUID(uuidString: "6F9619FF-8B86-D011-B42D-00CF4FC964FF") ?? UUID()

  // swift-format-ignore
  static let table: [RoundTrip] = [
    RoundTrip(true,                                 "true"),
    RoundTrip(false,                                "false"),
    RoundTrip(Int16.min,                            "-32768"),
    RoundTrip(Int16.max,                            "32767"),
    RoundTrip(Int32.min,                            "-2147483648"),
    RoundTrip(Int32.max,                            "2147483647"),
    RoundTrip(Int64.min,                            "-9223372036854775808"),
    RoundTrip(Int64.max,                            "9223372036854775807"),
    RoundTrip(Int(0),                               "0"),
    RoundTrip(1.5,                                  "1.5"),
    RoundTrip(-Double.infinity,                     "-Infinity"),
    RoundTrip(Double.greatestFiniteMagnitude,       "1.7976931348623157e+308"),
    RoundTrip("",                                   ""),
    RoundTrip("Größe 漢字 👍🏽",                      "Größe 漢字 👍🏽"),
    RoundTrip("'; DROP TABLE account; -- $1 \\ \"", "'; DROP TABLE account; -- $1 \\ \""),
    RoundTrip(someUUID,                             "6f9619ff-8b86-d011-b42d-00cf4fc964ff"),
    RoundTrip([UInt8](),                            "\\x"),
    RoundTrip([0, 255, 92] as [UInt8],              "\\x00ff5c"),
    RoundTrip(PostgresTimestamp(microsecondsSince2000: 0),  "2000-01-01 00:00:00+00"),
    RoundTrip(PostgresTimestamp(microsecondsSince2000: -1), "1999-12-31 23:59:59.999999+00"),
    RoundTrip(PostgresTimestamp.infinity,           "infinity"),
    RoundTrip(PostgresTimestamp.negativeInfinity,   "-infinity"),
    RoundTrip(Mood.sad,                             "sad"),
    RoundTrip(Level.high,                           "2"),
    RoundTrip(Celsius(rawValue: 36.5),              "36.5"),
    RoundTrip(Int64?.none,                          nil),
    RoundTrip(Int64?.some(7),                       "7"),
    RoundTrip(String?.none,                         nil),
    RoundTrip([UInt8]?.none,                        nil),
    RoundTrip([Int64](),                            "{}"),
    RoundTrip([1, -2, 3] as [Int],                  "{1,-2,3}"),
    RoundTrip([1, nil, 3] as [Int32?],              "{1,NULL,3}"),
    RoundTrip([nil] as [String?],                   "{NULL}"),
    RoundTrip(["a,b", "\"", "NULL", ""],            "{\"a,b\",\"\\\"\",\"NULL\",\"\"}"),
    RoundTrip([true, false],                        "{t,f}"),
    RoundTrip([1.5, nil] as [Double?],              "{1.5,NULL}"),
    RoundTrip([someUUID],                           "{6f9619ff-8b86-d011-b42d-00cf4fc964ff}"),
    RoundTrip([[1], [2, 3]] as [[UInt8]],           "{\"\\\\x01\",\"\\\\x0203\"}"),
    RoundTrip([PostgresTimestamp.infinity, nil],    "{infinity,NULL}"),
    RoundTrip([Mood.happy, .sad],                   "{happy,sad}"),
    RoundTrip([Int64]?.none,                        nil),
  ]

  @Test(arguments: table)
  func travelsBothWays(_ value: RoundTrip) async throws {
    try await TestServer.withPool { try await value.run($0) }
  }

  @Test func integersOfOtherWidthsFitOrFail() async throws {
    try await TestServer.withPool { pool in
      let rows = try await pool.query("SELECT 7::int2, 8::int4, 9::int8, 2.5::float4")
      let values = try rows.decodeOnly(Int.self, Int64.self, Int16.self, Double.self)
      #expect(values == (7, 8, 9, 2.5))
      let large = try await pool.query("SELECT 40000 AS size")
      let error = await postgresError { _ = try large.decodeOnly(Int16.self) }
      #expect(error?.message == "column size of type int4 cannot be read as int2: outOfRange")
    }
  }

  @Test func arraysAreParametersOfAnyAndUnnest() async throws {
    try await TestServer.withPool { pool in
      let numbers: [Int64] = [3, 1]
      let names: [String?] = ["c", nil]
      let rows = try await pool.query(
        """
        SELECT number, name FROM unnest(\(numbers), \(names)) AS row (number, name)
        WHERE number = ANY(\(numbers)) ORDER BY number
        """)
      let pairs = try rows.decode(Int.self, String?.self)
      #expect(pairs.map(\.0) == [1, 3])
      #expect(pairs.map(\.1) == [nil, "c"])
    }
  }

  @Test func enumColumnsAreReadAsText() async throws {
    try await TestServer.withPool { pool in
      try await pool.withTransaction { transaction in
        try await transaction.execute("CREATE TYPE mood AS ENUM ('happy', 'sad', 'odd')")
        let rows = try await transaction.query("SELECT \(Mood.sad)::mood")
        let mood = try rows.decodeOnly(Mood.self)
        #expect(mood == Mood.sad)
        let odd = try await transaction.query("SELECT 'odd'::mood AS mood")
        let error = await postgresError { _ = try odd.decodeOnly(Mood.self) }
        #expect(error?.message.contains("column mood") == true)
        #expect(error?.message.contains("unknownValue") == true)
        await transaction.rollBack()
      }
    }
  }

  @Test func rowsSayWhatDoesNotFit() async throws {
    try await TestServer.withPool { pool in
      let rows = try await pool.query("SELECT 1 AS id, NULL::text AS name")
      let type = await postgresError { _ = try rows.decode(String.self, String?.self) }
      #expect(type?.message == "column id is of type int4, expected text for String")
      let null = await postgresError { _ = try rows.decode(Int.self, String.self) }
      #expect(null?.message == "column name of type text cannot be read as text: unexpectedNull")
      let count = await postgresError { _ = try rows.decode(Int.self) }
      #expect(count?.message == "expected 1 columns, found 2")
      let row = try #require(rows.first)
      #expect(try row.decode(Int.self, column: "id") == 1)
      #expect(await postgresError { _ = try row.decode(Int.self, column: "no") }?.code == .decoding)
      #expect(try rows.decodeFirst(Int.self, String?.self)?.0 == 1)
      #expect(rows.columnNames == ["id", "name"])
    }
  }
}
