import AppStore
import Bootstrap
import Foundation
import Intake
import Logging
import Postgres
import Subscriptions
import Synchronization

/// The entries and bytes that a customer with a monthly subscription adds in a year, with a launch
/// and a poll every day.
struct CustomerYear: Sendable, Encodable {
  static let customers = 20
  static let days = 365
  private static let period = 30

  let customers: Int
  /// Ledger entries for each customer.
  let entries: Double
  /// Bytes of the database for each customer, with indexes, after a vacuum.
  let bytes: Double
  /// Bytes of the body of each launch, poll and notification that Apple signed.
  let bytesFromApple: Double

  enum CodingKeys: String, CodingKey {
    case customers, entries, bytes
    case bytesFromApple = "bytes_from_apple"
  }

  var table: String {
    let kilobytes = { (bytes: Double) in "\(Int((bytes / 1000).rounded())) kB" }
    let entries = self.entries.formatted(.number.precision(.fractionLength(1)))
    return """
      A customer-year, with a launch and a poll every day and a renewal every \(Self.period) days \
      (mean of \(customers)): \(entries) ledger entries, \(kilobytes(bytes)) of database; \
      Apple signed \(kilobytes(bytesFromApple)).
      """
  }

  /// Lives the year on a simulated clock that ends now.
  ///
  /// - Throws: ``BenchError/wrongAnswer(_:)``, or a database error.
  static func measure(
    of customers: Int, days: Int = days, in database: BenchDatabase, logger: Logger
  ) async throws -> CustomerYear {
    try await database.withPool { pool in
      let start = Timestamp.now - .days(days)
      let day = Mutex(0)
      let now = { @Sendable in start + .days(day.withLock { $0 }) }
      let shop = try await SampleShop(database: pool, boughtAt: start, now: now)
      let people = (1...customers).map(SampleCustomer.init)
      let before = try await size(of: pool)
      var received = 0
      for today in 0..<days {
        if today.isMultiple(of: period) {
          logger.notice("A year", metadata: ["day": "\(today) of \(days)"])
        }
        day.withLock { $0 = today }
        for customer in people {
          let number = today / period
          if today > 0, today.isMultiple(of: period) {
            let body = shop.appStore.notification(of: customer, period: number)
            received += body.count
            _ = try await shop.assembly.notifications.receive(body)
          }
          let request = customer.request(at: shop.appStore, period: number)
          received += shop.appStore.transaction(of: customer, period: number).utf8.count
          received += shop.appStore.renewalInfo(of: customer, period: number).utf8.count
          guard case .verified(_) = try await shop.assembly.intake.submit(request) else {
            throw BenchError.wrongAnswer("a launch of \(customer.number)")
          }
          let asked = shop.appStore.bytesSent
          guard case .polled(_) = try await shop.assembly.poll.pollNow(customer.line) else {
            throw BenchError.wrongAnswer("a poll of \(customer.number)")
          }
          received += shop.appStore.bytesSent - asked
        }
      }
      let entries = try await pool.query("SELECT count(*) FROM tenure.ledger_entry")
        .decodeOnly(Int.self)
      return CustomerYear(
        customers: customers, entries: Double(entries) / Double(customers),
        bytes: Double(try await size(of: pool) - before) / Double(customers),
        bytesFromApple: Double(received) / Double(customers))
    }
  }

  private static func size(of pool: ConnectionPool) async throws -> Int {
    try await pool.runScript("VACUUM")
    return try await pool.query("SELECT pg_database_size(current_database())")
      .decodeOnly(Int.self)
  }
}
