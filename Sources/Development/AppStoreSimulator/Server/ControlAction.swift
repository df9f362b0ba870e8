import AppStore
import Foundation
import struct Foundation.UUID
import HTTPTypes
import Hummingbird
import JSONText
import NIOCore
import Subscriptions

/// An action at `/simulator/NAME`.
///
/// The table below defines and documents the control interface; `GET /simulator` prints it. Actions
/// are `POST` requests with a JSON object, queries are `GET` requests. For example:
/// ```sh
/// curl localhost:8081/simulator/add-apple-id -d '{"apple_id": "ada"}'
/// curl localhost:8081/simulator/add-device -d '{"device": "phone", "apple_id": "ada"}'
/// curl localhost:8081/simulator/buy -d '{"device": "phone", "product_id": "monthly"}'
/// curl localhost:8081/simulator/advance -d '{"by": "P1M"}'
/// curl 'localhost:8081/simulator/receipt?device=phone'
/// ```
/// Invalid input returns 400 with `{"error": CODE, "detail": SENTENCE}`.
struct ControlAction: Sendable {
  let name: String
  /// Field names; optional ones end in a question mark.
  let parameters: [String]
  let summary: String
  var isQuestion = false
  let perform: @Sendable (AppStoreSimulation, ControlRequest) throws -> JSONValue

  var fieldNames: [String] {
    parameters.map { $0.hasSuffix("?") ? String($0.dropLast()) : $0 }
  }

  static let help: String = {
    let width = all.map(\.name.count).max() ?? 0
    let lines = all.map { action in
      let method = action.isQuestion ? "GET " : "POST"
      let name = action.name + String(repeating: " ", count: width - action.name.count)
      let fields =
        action.parameters.isEmpty ? "" : " {\(action.parameters.joined(separator: ", "))}"
      return "\(method) /simulator/\(name)  \(action.summary)\(fields)"
    }
    let app = SimulatedApp.sample
    let products = app.products.map(\.id.rawValue).joined(separator: ", ")
    return """
      A simulated App Store. Its app is \(app.bundleID), with the shared secret
      \(app.sharedSecret), and sells \(products).

      Apple's interfaces: POST /verifyReceipt and POST /sandbox/verifyReceipt; the App Store Server
      API at /inApps/… and /sandbox/inApps/…; notifications, see notify.
      The control interface, with JSON objects (POST) or queries (GET); fields with ? are optional:

      \(lines.joined(separator: "\n"))

      Faults: timeout, reset, cut_off, unavailable, html, truncated, 429:SECONDS, 21002, 21005,
      21009, 21100:retryable, 21100:final, 21100:1, 21100:0, slow:MILLISECONDS, large:BYTES; for
      the API also 4040002, 4040004, 4040006, 5000000, 5000001.
      Notification faults: late:SECONDS, doubled, out_of_order, lost, answer_lost, dropped.
      Quirks: \(Quirk.allCases.map(\.rawValue).joined(separator: ", ")).

      """
  }()

  static let all =
    questions + signedData + stage + purchases + consequences + lineChanges + apple
    + notifications + serverAPI

  private static let questions = [
    ControlAction(
      name: "clock", parameters: [], summary: "the simulated time", isQuestion: true
    ) { simulation, _ in
      ["now": .string(simulation.now.description), "speed": .number(simulation.clock.speed)]
    },
    ControlAction(
      name: "receipt", parameters: ["device", "bundle_id?", "transaction_id?"],
      summary: "a device's receipt; with a transaction ID in iOS 6 style",
      isQuestion: true
    ) { simulation, request in
      let device: DeviceID = try request.id("device")
      if let transaction: TransactionID = try request.optionalID("transaction_id") {
        return [
          "receipt_data": .string(try simulation.transactionReceipt(transaction, on: device))
        ]
      }
      let bundleID = try request.optionalText("bundle_id")
      return ["receipt_data": .string(try simulation.receipt(on: device, bundleID: bundleID))]
    },
    ControlAction(
      name: "truth", parameters: ["transaction_id?"],
      summary: "the true payer and account of each charge", isQuestion: true
    ) { simulation, request in
      if let id: TransactionID = try request.optionalID("transaction_id") {
        return try simulation.truth(of: id).json
      }
      return ["charges": .array(simulation.truth().map(\.json))]
    },
    ControlAction(
      name: "events", parameters: ["after?"], summary: "the events after a number",
      isQuestion: true
    ) { simulation, request in
      let after = try request.optionalInteger("after") ?? 0
      return ["events": .array(simulation.events(after: after).map(\.json))]
    },
  ]

  private static let stage = [
    ControlAction(
      name: "advance", parameters: ["by?", "seconds?", "to?"],
      summary: "advances the clock by a period such as P1M, by seconds, or to a time"
    ) { simulation, request in
      var moment = try request.optionalMoment("to") ?? simulation.now
      if let period = try request.optionalPeriod("by") { moment = period.end(from: moment) }
      if let time = try request.optionalSeconds("seconds") { moment = moment + time }
      // A purchase at this time must end in a year that can be written.
      let last = Timestamp.writable.upperBound - .days(366_000)
      guard moment <= min(simulation.now + ControlRequest.longestTime, last) else {
        throw ControlRequest.Fault(
          detail: "The clock advances at most a hundred years at a time, and not beyond \(last).")
      }
      let events = simulation.advance(to: moment)
      return [
        "now": .string(simulation.now.description), "events": .array(events.map(\.json)),
      ]
    },
    ControlAction(
      name: "add-app",
      parameters: [
        "bundle_id", "shared_secret", "app_apple_id?", "version?", "grace_days?", "products",
      ],
      summary:
        "adds an app; products as {product_id, type, group?, level?, period?, price_milliunits?, "
        + "currency?, introductory_period?, introductory_price_milliunits?, family_shareable?}"
    ) { simulation, request in
      try simulation.add(try SimulatedApp(request))
      return [:]
    },
    ControlAction(
      name: "add-apple-id", parameters: ["apple_id", "environment?"],
      summary: "adds a customer; environment: production or sandbox"
    ) { simulation, request in
      try simulation.addAppleID(
        try request.id("apple_id"),
        environment: try request.optionalWord("environment") ?? .production)
      return [:]
    },
    ControlAction(
      name: "delete-apple-id", parameters: ["apple_id"], summary: "closes an Apple ID: status 21010"
    ) { simulation, request in
      try simulation.deleteAppleID(try request.id("apple_id"))
      return [:]
    },
    ControlAction(
      name: "add-device", parameters: ["device", "apple_id", "account?"],
      summary: "adds a device with an Apple ID signed in, optionally with an app account"
    ) { simulation, request in
      try simulation.addDevice(
        try request.id("device"), appleID: try request.id("apple_id"),
        account: try request.optionalID("account"))
      return [:]
    },
    ControlAction(
      name: "sign-in", parameters: ["device", "apple_id"],
      summary: "signs in another Apple ID on a device"
    ) { simulation, request in
      try simulation.signIn(try request.id("apple_id"), on: try request.id("device"))
      return [:]
    },
    ControlAction(
      name: "log-in", parameters: ["device", "account?"],
      summary: "logs in an app account on a device; without one, logs out"
    ) { simulation, request in
      try simulation.logIn(try request.optionalID("account"), on: try request.id("device"))
      return [:]
    },
  ]

  private static let purchases = [
    ControlAction(
      name: "buy",
      parameters: [
        "device", "product_id", "app_account_token?", "quantity?", "promotional_offer?",
        "offer_code?",
      ],
      summary: "buys, upgrades, changes the plan or resubscribes"
    ) { simulation, request in
      try simulation.buy(
        try request.id("product_id"), on: try request.id("device"),
        appAccountToken: try request.optionalUUID("app_account_token"),
        quantity: try request.optionalInteger("quantity") ?? 1, offer: try request.offer()
      ).json
    },
    ControlAction(
      name: "buy-in-settings", parameters: ["apple_id", "product_id", "offer_code?"],
      summary: "the same outside the app, without an account and a token"
    ) { simulation, request in
      try simulation.buyInSettings(
        try request.id("product_id"), appleID: try request.id("apple_id"),
        offer: try request.offer()
      ).json
    },
    ControlAction(
      name: "auto-renew", parameters: ["original_transaction_id", "on", "device?"],
      summary: "switches auto-renew on or off"
    ) { simulation, request in
      try simulation.setAutoRenew(
        try request.bool("on"), try request.id("original_transaction_id"),
        on: try request.optionalID("device")
      ).json
    },
    ControlAction(
      name: "restore", parameters: ["device", "bundle_id?"],
      summary: "restores purchases: the same charges with new transaction IDs"
    ) { simulation, request in
      let events = try simulation.restore(
        on: try request.id("device"), bundleID: try request.optionalText("bundle_id"))
      return ["events": .array(events.map(\.json))]
    },
    ControlAction(
      name: "finish", parameters: ["transaction_id"],
      summary: "finishes a consumable, which removes it from receipts"
    ) { simulation, request in
      try simulation.finish(try request.id("transaction_id")).json
    },
  ]

  private static let consequences = [
    ControlAction(
      name: "card", parameters: ["apple_id", "works"],
      summary: "makes an Apple ID's payments fail, or succeed again"
    ) { simulation, request in
      let appleID: AppleID = try request.id("apple_id")
      guard try request.bool("works") else {
        try simulation.failCard(of: appleID)
        return ["events": []]
      }
      return ["events": .array(try simulation.repairCard(of: appleID).map(\.json))]
    },
    ControlAction(
      name: "refund", parameters: ["transaction_id", "reason?"],
      summary: "refunds a charge; reason 1: a problem with the app, 0: other"
    ) { simulation, request in
      try simulation.refund(
        try request.id("transaction_id"), reason: try request.optionalText("reason") ?? "0"
      ).json
    },
    ControlAction(
      name: "reverse-refund", parameters: ["transaction_id"], summary: "reverses a refund"
    ) { simulation, request in
      try simulation.reverseRefund(try request.id("transaction_id")).json
    },
    ControlAction(
      name: "add-family-member", parameters: ["member", "organizer"],
      summary: "adds an Apple ID to another's family"
    ) { simulation, request in
      try simulation.addFamilyMember(
        try request.id("member"), of: try request.id("organizer"))
      return [:]
    },
    ControlAction(
      name: "revoke-family-access", parameters: ["member"],
      summary: "removes an Apple ID from its family"
    ) { simulation, request in
      let events = try simulation.revokeFamilyAccess(of: try request.id("member"))
      return ["events": .array(events.map(\.json))]
    },
    ControlAction(
      name: "raise-price", parameters: ["product_id", "price_milliunits", "needs_consent"],
      summary: "raises the price of future renewals"
    ) { simulation, request in
      try simulation.raisePrice(
        of: try request.id("product_id"), to: Int64(try request.integer("price_milliunits")),
        needsConsent: try request.bool("needs_consent"))
      return [:]
    },
    ControlAction(
      name: "accept-price", parameters: ["original_transaction_id"],
      summary: "accepts a higher price for a subscriber"
    ) { simulation, request in
      try simulation.acceptPrice(try request.id("original_transaction_id")).json
    },
    ControlAction(
      name: "withdraw", parameters: ["product_id"], summary: "removes a product from sale"
    ) { simulation, request in
      try simulation.withdraw(try request.id("product_id"))
      return [:]
    },
  ]

  private static let apple = [
    ControlAction(
      name: "faults", parameters: ["next?", "rate?", "kinds?", "down_until?", "down_fault?"],
      summary:
        "faults of the next verifyReceipt requests, of a share of all (0 to 1), and until a "
        + "simulated time; omitted ones are switched off"
    ) { simulation, request in
      let change = try request.faultPlan(usualKinds: FaultPlan.usualKinds)
      simulation.setFaults(change)
      return [:]
    },
    ControlAction(
      name: "quirks", parameters: ["quirks"], summary: "the quirks of responses, as a list"
    ) { simulation, request in
      let quirks = try request.optionalList("quirks", of: "quirks") {
        $0.string.flatMap(Quirk.init(rawValue:))
      }
      simulation.setQuirks(Set(try request.required("quirks", quirks)))
      return [:]
    },
    ControlAction(
      name: "answer-lag", parameters: ["seconds"],
      summary: "the time until a new charge appears in responses"
    ) { simulation, request in
      simulation.setAnswerLag(
        try request.required("seconds", try request.optionalSeconds("seconds")))
      return [:]
    },
  ]
}

struct ControlRoutes {
  let simulation: AppStoreSimulation

  private static let mostBodyBytes = 1 << 20

  var endpoints: RouteCollection<SimulatorContext> {
    let routes = RouteCollection(context: SimulatorContext.self)
    routes.get { _, _ in ControlAction.help }
    for action in ControlAction.all {
      let path = RouterPath(action.name)
      if action.isQuestion {
        routes.get(path) { request, _ in
          respond { try perform(action, ControlRequest(query: request.decodedQuery)) }
        }
      } else {
        routes.post(path) { request, _ in
          let body = try await request.body.collect(upTo: Self.mostBodyBytes)
          return respond {
            try perform(action, try ControlRequest(body: body.readableBytesView))
          }
        }
      }
    }
    return routes
  }

  private func perform(_ action: ControlAction, _ request: ControlRequest) throws -> JSONValue {
    try request.check(allowed: action.fieldNames)
    return try action.perform(simulation, request)
  }

  /// Maps errors to 400 with a reason.
  private func respond(_ work: () throws -> JSONValue) -> Response {
    do {
      return response(.ok, try work())
    } catch let error as SimulationError {
      return response(
        .badRequest,
        ["error": .string(error.code.rawValue), "detail": .string(error.description)])
    } catch let fault as ControlRequest.Fault {
      return response(
        .badRequest, ["error": "invalid_request", "detail": .string(fault.detail)])
    } catch {
      return response(
        .internalServerError,
        ["error": "internal_error", "detail": .string(String(describing: error))])
    }
  }

  private func response(_ status: HTTPResponse.Status, _ json: JSONValue) -> Response {
    Response(
      status: status, headers: [.contentType: "application/json"],
      body: ResponseBody(byteBuffer: ByteBuffer(bytes: json.bytes + [UInt8(ascii: "\n")])))
  }
}

extension Request {
  var decodedQuery: [(key: String, value: String)] {
    uri.queryParameters.map { key, value in
      (key: String(key), value: value.removingPercentEncoding ?? String(value))
    }
  }
}

/// The fields of a control request; errors name the field.
struct ControlRequest {
  /// The maximum by which the clock moves at once.
  static let longestTime: Duration = .days(36_525)

  let fields: JSONValue

  struct Fault: Error {
    let detail: String
  }

  /// Parses a JSON object; an empty body counts as an empty object.
  init(body: some Collection<UInt8>) throws {
    guard !body.isEmpty else {
      fields = [:]
      return
    }
    guard let json = try? JSONValue(parsing: body), case .object = json else {
      throw Fault(detail: "The body is not a JSON object.")
    }
    fields = json
  }

  init(query: [(key: String, value: String)]) {
    fields = .object(query.map { JSONValue.Member(key: $0.key, value: .string($0.value)) })
  }

  init(fields: JSONValue) {
    self.fields = fields
  }

  /// Rejects unknown fields, which are usually typing errors.
  func check(allowed: [String]) throws {
    for key in fields.keys where !allowed.contains(key) {
      let list = allowed.isEmpty ? "none" : allowed.joined(separator: ", ")
      throw Fault(detail: "Unknown field \(key); the fields are: \(list).")
    }
  }

  // MARK: Fields

  func optional<Value>(
    _ key: String, _ expectation: String, _ read: (JSONValue) throws -> Value?
  ) throws -> Value? {
    guard let value = fields[key], value != .null else { return nil }
    guard let result = try read(value) else {
      throw Fault(detail: "\(key) is not \(expectation).")
    }
    return result
  }

  func required<Value>(_ key: String, _ value: Value?) throws -> Value {
    guard let value else { throw Fault(detail: "\(key) is missing.") }
    return value
  }

  func optionalText(_ key: String) throws -> String? {
    try optional(key, "a text", \.string)
  }

  func text(_ key: String) throws -> String { try required(key, try optionalText(key)) }

  func optionalID<ID: TextIdentifier>(_ key: String) throws -> ID? {
    try optional(key, "a text that is not empty") { value in
      value.string.flatMap { $0.isEmpty ? nil : ID(rawValue: $0) }
    }
  }

  func id<ID: TextIdentifier>(_ key: String) throws -> ID {
    try required(key, try optionalID(key))
  }

  func optionalInteger(_ key: String) throws -> Int? {
    try optional(key, "a whole number") { value in
      value.integer.flatMap(Int.init(exactly:)) ?? value.string.flatMap(Int.init)
    }
  }

  func integer(_ key: String) throws -> Int { try required(key, try optionalInteger(key)) }

  /// At most a hundred years, which bounds the number of renewals.
  func optionalSeconds(_ key: String) throws -> Duration? {
    let longest = Int(Self.longestTime.components.seconds)
    return try optionalInteger(key).map { seconds in
      guard (0...longest).contains(seconds) else {
        throw Fault(detail: "\(key) is not a number from 0 to \(longest).")
      }
      return .seconds(seconds)
    }
  }

  func optionalBool(_ key: String) throws -> Bool? { try optional(key, "true or false", \.bool) }

  func bool(_ key: String) throws -> Bool { try required(key, try optionalBool(key)) }

  func optionalMoment(_ key: String) throws -> Timestamp? {
    try optional(key, "a time like 2026-01-31T12:00:00Z") {
      $0.string.flatMap(Timestamp.init(rfc3339:))
    }
  }

  func optionalPeriod(_ key: String) throws -> CalendarPeriod? {
    try optional(key, "a period like P1M, P1W or P3D") {
      $0.string.flatMap(CalendarPeriod.init(iso8601:))
    }
  }

  func optionalUUID(_ key: String) throws -> UUID? {
    try optional(key, "a UUID") { $0.string.flatMap(UUID.init(uuidString:)) }
  }

  func optionalWord<Word: RawRepresentable & CaseIterable>(_ key: String) throws -> Word?
  where Word.RawValue == String {
    let words = Word.allCases.map(\.rawValue).joined(separator: ", ")
    return try optional(key, "one of: \(words)") { $0.string.flatMap(Word.init(rawValue:)) }
  }

  /// A list whose elements must all be valid.
  func optionalList<Element>(
    _ key: String, of expectation: String, _ read: (JSONValue) throws -> Element?
  ) throws -> [Element]? {
    try optional(key, "a list of \(expectation)") { value in
      guard let array = value.array else { return nil }
      let elements = try array.compactMap(read)
      return elements.count == array.count ? elements : nil
    }
  }
}
