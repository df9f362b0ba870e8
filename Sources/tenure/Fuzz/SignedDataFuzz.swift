import AppStore
import AppStoreSimulator
import Foundation
import JSONText
import Subscriptions

/// Signs what is to be verified, and verifies it.
struct FuzzSigning: Sendable {
  let signer: SimulatedSigner
  let rootCertificatePEM: String
  let verifier: SignedDataVerifier

  /// - Parameter context: The root of an earlier run, whose inputs are tried again; nil: a new one.
  /// - Throws: What keeps it from being made.
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

  /// A payload that is signed though it isn't as it should be, or a JWS that isn't.
  func input(_ payload: JSONValue, _ random: inout SplitMix64, donors: [JSONValue]) -> FuzzInput {
    switch random.number(in: 0...9) {
    case 0...4:
      // Signed as it is.
      let changed = random.mutated(payload, donors: donors).bytes
      return signed(random.chance(0.9) ? changed : random.mutated(changed))
    case 5, 6:
      // Somebody in between.
      let text = Array(signer.sign(payload).utf8)
      let changed = random.mutated(text)
      return FuzzInput(bytes: changed, isForged: changed != text)
    case 7:
      // Another header, and a signature for it that fits.
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

  /// Whether a header brings the genuine leaf and intermediate.
  private func vouches(_ header: [UInt8]) -> Bool {
    guard let chain = (try? JSONValue(parsing: header))?["x5c"]?.array?.prefix(2) else {
      return false
    }
    return chain == signer.header["x5c"]?.array?.prefix(2)
  }

  /// The genuine header with a certificate in it changed byte by byte.
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
        throw FuzzFinding("A transaction speaks of another line.")
      }
      return true
    }
    if case .success(let renewalInfo) = await signing.verifier.renewalInfo(text) {
      guard renewalInfo.status(latest: nil).asOf <= FuzzSamples.signedAt + .days(2) else {
        throw FuzzFinding("A renewal info of the far future was accepted.")
      }
      return true
    }
    if case .success = await signing.verifier.appTransaction(text) { return true }
    return false
  }
}

/// Notifications whose parts are signed, too.
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
    // What is changed outside may take a forged part away.
    return signing.input(whole, &random, donors: all)
  }

  func accepts(_ bytes: [UInt8]) async throws -> Bool {
    let text = String(decoding: bytes, as: UTF8.self)
    let result = await signing.verifier.notification(text, receivedAt: FuzzSamples.signedAt)
    guard case .success(let notification) = result else { return false }
    let lines = Set(notification.evidence.map(\.line))
    guard lines.count <= 1, lines.allSatisfy({ $0.environment == notification.environment }) else {
      throw FuzzFinding("A notification speaks of several lines.")
    }
    return true
  }
}
