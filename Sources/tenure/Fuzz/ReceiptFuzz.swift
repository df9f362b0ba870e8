import AppStore
import AppStoreSimulator
import Foundation
import JSONText
import Subscriptions

/// What is submitted as a receipt: PKCS#7 in DER and BER, iOS 6's property lists, Unity's wrapper.
struct ReceiptFuzz: FuzzSubject {
  private let signer: SimulatedSigner
  private let verifier: LocalReceiptVerifier
  let context: String
  /// What was signed of a device's receipt.
  private let contents: [UInt8]
  /// The same receipt in DER and in BER, and forms that nobody can verify here.
  private let receipts: [[UInt8]]
  private let others: [[UInt8]]

  /// Lets a customer of a simulation buy what makes a receipt.
  ///
  /// - Parameter context: The root of an earlier run, whose inputs are tried again; nil: a new one.
  /// - Throws: ``FuzzFinding`` where the simulation is no App Store.
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
      // Signed, and well formed but for some digits.
      var changed = contents
      let digits = changed.indices.filter { (0x30...0x39).contains(changed[$0]) }
      for _ in 0..<random.number(in: 1...4) {
        changed[random.element(digits)] = UInt8(random.number(in: 0x30...0x39))
      }
      return FuzzInput(bytes: signer.signReceipt(changed, inPieces: random.chance(0.3)))
    case 1...3:
      // Signed as it is.
      let changed = random.mutated(contents)
      return FuzzInput(bytes: signer.signReceipt(changed, inPieces: random.chance(0.3)))
    case 4...7:
      // Somebody in between: what it says then is either the same, or forged.
      let changed = random.mutated(random.element(receipts))
      return FuzzInput(
        bytes: changed, isForged: Self.contents(of: changed) != Self.contents(of: receipts[0]))
    default:
      return FuzzInput(bytes: random.mutated(random.element(others)))
    }
  }

  /// What a receipt says, unverified; nil for what is none.
  private static func contents(of bytes: [UInt8]) -> ReceiptForm? {
    try? ReceiptForm(Data(bytes).base64EncodedString())
  }

  func accepts(_ bytes: [UInt8]) throws -> Bool {
    // In base64 as it is submitted, and as the text itself.
    let texts = [Data(bytes).base64EncodedString(), String(decoding: bytes, as: UTF8.self)]
    var isAccepted = false
    for text in texts.map(UnityReceipt.unwrapping) {
      let form = try? ReceiptForm(text)
      if let ids = form?.transactionIDs, Set(ids).count != ids.count {
        throw FuzzFinding("A receipt names a line twice.")
      }
      guard case .success(let receipt) = verifier.verify(text) else {
        // What nobody signed can be asked about all the same.
        if case .transaction = form { isAccepted = true }
        continue
      }
      isAccepted = true
      guard case .app(receipt.contents) = form else {
        throw FuzzFinding("A receipt says something else when it is verified.")
      }
      guard Set(receipt.records.map(\.key)).count == receipt.records.count,
        receipt.records.allSatisfy({ $0.asOf == receipt.createdAt })
      else { throw FuzzFinding("A receipt has the same transaction twice, or of another date.") }
    }
    return isAccepted
  }
}
