import AppStore
import AppStoreSimulator
import Foundation
import JSONText
import Logging
import Subscriptions

/// The JSON reader and payload decoders; parsed values must survive a round trip.
struct JSONFuzz: FuzzSubject {
  let samples: FuzzSamples

  func input(_ random: inout SplitMix64) -> FuzzInput {
    let all = samples.all
    let value = random.mutated(random.element(all), donors: all)
    return FuzzInput(bytes: random.chance(0.3) ? value.bytes : random.mutated(value.bytes))
  }

  func accepts(_ bytes: [UInt8]) throws -> Bool {
    guard let json = try? JSONValue(parsing: bytes) else { return false }
    guard let again = try? JSONValue(parsing: json.bytes), again == json else {
      throw FuzzFinding("A JSON value changes when it is written and read again.")
    }
    try check(JWSTransactionDecodedPayload.self, json)
    try check(JWSRenewalInfoDecodedPayload.self, json)
    try check(JWSAppTransactionDecodedPayload.self, json)
    try check(ResponseBodyV2DecodedPayload.self, json)
    return true
  }

  private func check<Fields>(_ type: JSONPayload<Fields>.Type, _ json: JSONValue) throws {
    guard let payload = try? type.init(json: json) else { return }
    guard let again = try? type.init(json: payload.json), again == payload else {
      throw FuzzFinding("A \(type) changes when it is written and read again.")
    }
    guard Set(payload.json.keys) == Set(json.keys) else {
      throw FuzzFinding("A \(type) lost or invented a field.")
    }
  }
}

/// Submitted receipts: PKCS#7 in DER and BER, iOS 6 property lists, and Unity's wrapper.
struct ReceiptFuzz: FuzzSubject {
  private let signer: SimulatedSigner
  private let verifier: LocalReceiptVerifier
  let context: String
  /// The signed contents of a device's receipt.
  private let contents: [UInt8]
  /// The same receipt in DER and BER.
  private let receipts: [[UInt8]]
  /// Receipts in forms that can't be verified locally.
  private let others: [[UInt8]]

  /// Buys products in a simulation to make receipts.
  ///
  /// With a `context`, the root certificate of an earlier run is trusted.
  init(context: String?) throws {
    signer = try SimulatedSigner()
    self.context = context ?? signer.rootCertificatePEM
    verifier = LocalReceiptVerifier(
      roots: try TrustedRoots(pem: self.context),
      apps: try AppStoreApps([AppStoreApp(bundleID: FuzzSamples.bundleID)]))

    var configuration = AppStoreSimulation.Configuration(seed: 1)
    configuration.signer = signer
    let simulation = try AppStoreSimulation(configuration: configuration)
    try simulation.addAppleID("anna")
    try simulation.addDevice("phone", appleID: "anna")
    for product: ProductID in ["yearly", "coins.100", "lifetime"] {
      try simulation.buy(product, on: "phone")
    }
    let text = try simulation.receipt(on: "phone")
    let receipt = Array(Data(base64Encoded: text) ?? Data())
    guard let contents = SimulatedSigner.contents(ofReceipt: receipt),
      let transaction = simulation.truth().first?.transactionID
    else { throw FuzzFinding("The simulated App Store makes no receipts.") }
    self.contents = contents
    receipts = [receipt, signer.signReceipt(contents, inPieces: true)]
    let old = try simulation.transactionReceipt(transaction, on: "phone")
    let wrapped: JSONValue = [
      "Store": "AppleAppStore", "TransactionID": "1", "Payload": .string(text),
    ]
    others = [Array(Data(base64Encoded: old) ?? Data()), wrapped.bytes]
  }

  func input(_ random: inout SplitMix64) -> FuzzInput {
    switch random.number(in: 0...9) {
    case 0:
      // Signed, with some digits changed.
      var changed = contents
      let digits = changed.indices.filter { (0x30...0x39).contains(changed[$0]) }
      for _ in 0..<random.number(in: 1...4) {
        changed[random.element(digits)] = UInt8(random.number(in: 0x30...0x39))
      }
      return FuzzInput(bytes: signer.signReceipt(changed, inPieces: random.chance(0.3)))
    case 1...3:
      // Signed after the change.
      let changed = random.mutated(contents)
      return FuzzInput(bytes: signer.signReceipt(changed, inPieces: random.chance(0.3)))
    case 4...7:
      // Changed after signing: the contents must be the same, or the receipt is forged.
      let changed = random.mutated(random.element(receipts))
      return FuzzInput(
        bytes: changed, isForged: Self.contents(of: changed) != Self.contents(of: receipts[0]))
    default:
      return FuzzInput(bytes: random.mutated(random.element(others)))
    }
  }

  /// The receipt's unverified contents; nil if it can't be parsed.
  private static func contents(of bytes: [UInt8]) -> AppReceipt? {
    try? AppReceipt(unverified: Data(bytes).base64EncodedString())
  }

  func accepts(_ bytes: [UInt8]) throws -> Bool {
    // Base64-encoded as submitted, and as plain text.
    let texts = [Data(bytes).base64EncodedString(), String(decoding: bytes, as: UTF8.self)]
    var isAccepted = false
    for text in texts.map(UnityReceipt.unwrapping) {
      let receipt: LocalReceipt
      switch verifier.verify(text) {
      case .success(let verified): receipt = verified
      case .failure(let refusal):
        // Unsigned transactions can still be verified with Apple.
        if refusal.reason == .transactionReceipt { isAccepted = true }
        continue
      }
      isAccepted = true
      guard receipt.contents == (try? AppReceipt(unverified: text)) else {
        throw FuzzFinding("The contents of a receipt differ after verification.")
      }
      guard Set(receipt.records.map(\.key)).count == receipt.records.count,
        receipt.records.allSatisfy({ $0.asOf == receipt.createdAt })
      else { throw FuzzFinding("A receipt has the same transaction twice, or another date.") }
    }
    return isAccepted
  }
}

/// Signs data with a simulated root, and verifies it.
struct FuzzSigning: Sendable {
  let signer: SimulatedSigner
  let rootCertificatePEM: String
  let verifier: SignedDataVerifier

  /// With a `context`, the root certificate of an earlier run is trusted.
  init(context: String?) throws {
    signer = try SimulatedSigner()
    rootCertificatePEM = context ?? signer.rootCertificatePEM
    let apps = try AppStoreApps([
      AppStoreApp(bundleID: FuzzSamples.bundleID, appleID: 1_234_567_890),
      AppStoreApp(bundleID: "com.example"), AppStoreApp(bundleID: "com.example.other"),
    ])
    verifier = SignedDataVerifier(
      roots: try TrustedRoots(pem: rootCertificatePEM), apps: apps,
      now: { FuzzSamples.signedAt + .seconds(1) })
  }

  /// A signed payload that may be malformed, or a JWS changed after signing.
  func input(_ payload: JSONValue, _ random: inout SplitMix64, donors: [JSONValue]) -> FuzzInput {
    switch random.number(in: 0...9) {
    case 0...4:
      // Signed after the change.
      let changed = random.mutated(payload, donors: donors).bytes
      return signed(random.chance(0.9) ? changed : random.mutated(changed))
    case 5, 6:
      // Changed after signing.
      let text = Array(signer.sign(payload).utf8)
      let changed = random.mutated(text)
      return FuzzInput(bytes: changed, isForged: changed != text)
    case 7:
      // Another header with a valid signature.
      let header = random.mutated(signer.header, donors: donors).bytes
      return signed(payload.bytes, header: random.chance(0.5) ? header : random.mutated(header))
    default:
      return signed(payload.bytes, header: mutatedCertificates(&random).bytes)
    }
  }

  private func signed(_ payload: [UInt8], header: [UInt8]? = nil) -> FuzzInput {
    let text = signer.sign(payload, header: header ?? signer.header.bytes)
    return FuzzInput(bytes: Array(text.utf8), isForged: header.map { !vouches($0) } ?? false)
  }

  /// Whether a header has the genuine leaf and intermediate certificates.
  private func vouches(_ header: [UInt8]) -> Bool {
    guard let chain = (try? JSONValue(parsing: header))?["x5c"]?.array?.prefix(2) else {
      return false
    }
    return chain == signer.header["x5c"]?.array?.prefix(2)
  }

  /// The genuine header with changed bytes in one certificate.
  private func mutatedCertificates(_ random: inout SplitMix64) -> JSONValue {
    var chain = signer.header["x5c"]?.array ?? []
    let index = random.number(in: 0...chain.count - 1)
    let der = chain[index].string.flatMap { Data(base64Encoded: $0) } ?? Data()
    chain[index] = .string(Data(random.mutated(Array(der))).base64EncodedString())
    return signer.header.setting("x5c", .array(chain))
  }
}

/// Signed transactions, renewal infos and app transactions.
struct JWSFuzz: FuzzSubject {
  private let samples: FuzzSamples
  private let signing: FuzzSigning

  init(samples: FuzzSamples, context: String?) throws {
    self.samples = samples
    signing = try FuzzSigning(context: context)
  }

  var context: String { signing.rootCertificatePEM }

  func input(_ random: inout SplitMix64) -> FuzzInput {
    let kinds = [samples.transactions, samples.renewalInfos, samples.appTransactions]
    return signing.input(
      random.element(random.element(kinds)), &random, donors: kinds.flatMap(\.self))
  }

  func accepts(_ bytes: [UInt8]) async throws -> Bool {
    let text = String(decoding: bytes, as: UTF8.self)
    if case .success(let transaction) = await signing.verifier.transaction(text) {
      guard transaction.evidence.allSatisfy({ $0.line == transaction.record.key.line }) else {
        throw FuzzFinding("The evidence of a transaction has another original transaction.")
      }
      return true
    }
    if case .success(let renewalInfo) = await signing.verifier.renewalInfo(text) {
      guard renewalInfo.status(latest: nil).asOf <= FuzzSamples.signedAt + .days(2) else {
        throw FuzzFinding("A renewal info from the far future was accepted.")
      }
      return true
    }
    if case .success = await signing.verifier.appTransaction(text) { return true }
    return false
  }
}

/// Notifications with signed parts.
struct NotificationFuzz: FuzzSubject {
  private let samples: FuzzSamples
  private let signing: FuzzSigning

  init(samples: FuzzSamples, context: String?) throws {
    self.samples = samples
    signing = try FuzzSigning(context: context)
  }

  var context: String { signing.rootCertificatePEM }

  func input(_ random: inout SplitMix64) -> FuzzInput {
    let all = samples.notifications + samples.transactions + samples.renewalInfos
    var isForged = false
    func part(_ kind: [JSONValue]) -> JSONValue {
      guard random.chance(0.5) else { return .string(signing.signer.sign(random.element(kind))) }
      let part = signing.input(random.element(kind), &random, donors: all)
      isForged = isForged || part.isForged
      return .string(String(decoding: part.bytes, as: UTF8.self))
    }
    let notification = random.element(samples.notifications)
    let data = (notification["data"] ?? .object([]))
      .setting("signedTransactionInfo", part(samples.transactions))
      .setting("signedRenewalInfo", part(samples.renewalInfos))
    let whole = notification.setting("data", data)
    if random.chance(0.5) {
      return FuzzInput(bytes: Array(signing.signer.sign(whole).utf8), isForged: isForged)
    }
    // A change of the whole may remove a forged part.
    return signing.input(whole, &random, donors: all)
  }

  func accepts(_ bytes: [UInt8]) async throws -> Bool {
    let text = String(decoding: bytes, as: UTF8.self)
    let result = await signing.verifier.notification(text, receivedAt: FuzzSamples.signedAt)
    guard case .success(let notification) = result else { return false }
    let lines = Set(notification.evidence.map(\.line))
    guard lines.count <= 1, lines.allSatisfy({ $0.environment == notification.environment }) else {
      throw FuzzFinding("A notification has several original transactions.")
    }
    return true
  }
}

/// verifyReceipt's responses over HTTP.
struct VerifyReceiptFuzz: FuzzSubject {
  let samples: FuzzSamples

  func input(_ random: inout SplitMix64) -> FuzzInput {
    let value = random.mutated(
      random.element(samples.receiptAnswers), donors: samples.receiptAnswers)
    return FuzzInput(bytes: random.chance(0.6) ? value.bytes : random.mutated(value.bytes))
  }

  func accepts(_ bytes: [UInt8]) async throws -> Bool {
    let apps = try AppStoreApps([AppStoreApp(bundleID: FuzzSamples.bundleID)])
    let verifier = ReceiptVerifier(
      transport: OneAnswer(body: bytes), apps: apps, timeout: .seconds(10),
      logger: Logger(label: "fuzz") { _ in SwiftLogNoOpLogHandler() },
      now: { FuzzSamples.signedAt })
    guard case .verified(let receipt) = await verifier.verify("cmVjZWlwdA==").verdict else {
      return false
    }
    guard Set(receipt.records.map(\.key)).count == receipt.records.count else {
      throw FuzzFinding("A receipt has the same transaction twice.")
    }
    return true
  }

  /// Returns the same response to every request.
  private struct OneAnswer: AppStoreTransport {
    let body: [UInt8]

    func send(_ request: AppStoreRequest) async throws -> AppStoreResponse {
      AppStoreResponse(
        status: 200, headers: [HTTPHeader("Content-Type", "application/json")], body: body)
    }
  }
}
