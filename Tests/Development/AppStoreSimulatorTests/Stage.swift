import AppStore
import AppStoreSimulator
import struct Foundation.UUID
import JSONText
import Subscriptions
import Testing

/// A simulation with the sample app, one Apple ID and one phone, and short ways to ask it.
struct Stage {
  static let start = Timestamp(CalendarDate(year: 2026, month: 1, day: 1))

  let simulation: AppStoreSimulation
  let environment: Environment

  /// Apple charges exactly `lead` before a period's end.
  init(
    seed: UInt64 = 1, start: Timestamp = Stage.start, lead: Duration = .hours(20),
    app: SimulatedApp = .sample, environment: Environment = .production,
    sandboxRates: Bool = false, quirks: Set<Quirk> = []
  ) throws {
    simulation = try AppStoreSimulation(
      configuration: AppStoreSimulation.Configuration(
        seed: seed, start: start, apps: [app], renewalLead: lead...lead,
        sandboxRates: sandboxRates, quirks: quirks))
    self.environment = environment
    try simulation.addAppleID("ada", environment: environment)
    try simulation.addDevice("phone", appleID: "ada", account: "A")
  }

  func advance(to text: String) throws {
    simulation.advance(to: try #require(Timestamp(rfc3339: text)))
  }

  // MARK: Asking Apple

  func answer(
    to receipt: String, password: String? = SimulatedApp.sample.sharedSecret,
    excludesOldTransactions: Bool = false, at endpoint: Environment? = nil
  ) throws -> JSONValue {
    let body = Self.body(receipt, password, excludesOldTransactions: excludesOldTransactions)
    let answer = simulation.verifyReceipt(body, at: endpoint ?? environment)
    #expect(answer.httpStatus == 200)
    return try JSONValue(parsing: answer.body)
  }

  /// Apple's response for the receipt now on a device.
  func answer(on device: DeviceID = "phone") throws -> JSONValue {
    try answer(to: try simulation.receipt(on: device))
  }

  static func body(
    _ receipt: String, _ password: String? = SimulatedApp.sample.sharedSecret,
    excludesOldTransactions: Bool = false
  ) -> [UInt8] {
    var members = [JSONValue.Member(key: "receipt-data", value: .string(receipt))]
    if let password {
      members.append(JSONValue.Member(key: "password", value: .string(password)))
    }
    if excludesOldTransactions {
      members.append(JSONValue.Member(key: "exclude-old-transactions", value: true))
    }
    return JSONValue.object(members).bytes
  }
}

extension JSONValue {
  var status: Int64? { self["status"]?.integer }
  var inApp: [JSONValue] { self["receipt"]?["in_app"]?.array ?? [] }
  /// By purchase date.
  var latest: [JSONValue] {
    (self["latest_receipt_info"]?.array ?? []).sorted { $0.date("purchase") < $1.date("purchase") }
  }
  var pending: [JSONValue] { self["pending_renewal_info"]?.array ?? [] }

  func text(_ key: String) -> String? { self[key]?.string }

  /// A date by its milliseconds; the distant past if there is none.
  func date(_ name: String) -> Timestamp {
    let text = self["\(name)_date_ms"]?.string
    return Timestamp(milliseconds: text.flatMap { Int64($0) } ?? .min)
  }

  /// A date as RFC 3339 to the minute, or nil.
  func minute(_ name: String) -> String? {
    self["\(name)_date_ms"] == nil ? nil : String(date(name).description.prefix(16))
  }
}
