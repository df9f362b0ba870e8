import LedgerStorage
import Subscriptions

extension FactRow {
  /// What Apple was told, in words.
  ///
  /// - Parameters:
  ///   - telling: What was told.
  ///   - name: The name behind an account's key.
  init(_ telling: AppleTelling, name: (AccountKey) -> String) {
    self.init(
      anchor: nil, at: Moment(telling.toldAt), sentence: telling.sentence(name), source: "To Apple",
      sourceClass: TimelineSketch.Symbol.poll.rawValue, sourceDetail: telling.outcome.name,
      sourceID: telling.request?.transactionID.rawValue, sourceHref: nil, recordedAt: nil)
  }
}

extension AppleTelling {
  fileprivate func sentence(_ name: (AccountKey) -> String) -> String {
    let content =
      switch kind {
      case .ownership: account.map { "that it belongs to \(name($0))" } ?? "to whom it belongs"
      case .consumption:
        deliveryStatus.map { "that the purchase was \($0)" } ?? "what became of the purchase"
      }
    switch outcome {
    case .accepted: return "Apple was told \(content)."
    case .refused(let status, let code):
      let number = code ?? status.map(Int64.init)
      return "Apple refuses to be told \(content)" + (number.map { ", with \($0)" } ?? "") + "."
    case .skipped(let reason): return "Apple was not told \(content): \(reason.words)."
    }
  }
}

extension AppleTelling.Reason {
  fileprivate var words: String {
    switch self {
    case .turnedOff: "the setting was turned off"
    case .unowned: "nobody owns it"
    case .accountErased: "the account was erased"
    case .accountMerged: "the account was merged into another"
    case .familyShared: "it is shared in a family"
    case .consumable: "it is a consumable"
    case .unknownApp: "its app is not known, or not served"
    case .noConsent: "the customer has not agreed"
    case .tooLate: "Apple no longer waited for it"
    }
  }
}
