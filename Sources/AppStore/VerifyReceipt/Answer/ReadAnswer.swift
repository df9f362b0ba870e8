import Foundation
import Subscriptions

/// Apple's answer as far as it can be read, or the verdict where it can't.
enum ReadAnswer {
  case answer(ReceiptAnswer)
  case verdict(ReceiptVerdict)
}

extension ReadAnswer {
  /// Reads what came back over HTTP.
  ///
  /// The content type decides nothing: an answer that is one is believed under any, and the type is
  /// named where none could be read.
  init(_ response: AppStoreResponse, url: String, answeredAt: Timestamp) {
    switch response.status {
    case 200: self.init(body: response)
    case 300..<400, 401, 403, 404, 405, 407, 410:
      self = .verdict(
        .misconfigured(
          ReceiptMisconfiguration(
            reason: "\(url) answers HTTP \(response.status), as no verifyReceipt does: check the "
              + "URL, and what stands between.")))
    default:
      let notBefore = RetryAfter.moment(response.header("Retry-After"), now: answeredAt)
      let meaning = response.status == 429 ? " (too many requests)" : ""
      self = .verdict(
        .retry(
          ReceiptRetry(
            reason: "Apple answered HTTP \(response.status)\(meaning) with \(response.contents).",
            notBefore: notBefore)))
    }
  }

  private init(body response: AppStoreResponse) {
    do {
      self = .answer(try JSONDecoder().decode(ReceiptAnswer.self, from: Data(response.body)))
    } catch {
      self = .verdict(.retry(ReceiptRetry(reason: Self.fault(of: response, error))))
    }
  }

  private static func fault(of response: AppStoreResponse, _ error: any Error) -> String {
    let first = response.body.first { ![0x20, 0x09, 0x0a, 0x0d].contains($0) }
    return switch error {
    case let fault as UnreadableField:
      "Apple's answer is JSON of another shape: \(fault)."
    case _ where first == nil:
      "Apple's answer is empty."
    case _ where first != UInt8(ascii: "{"):
      "Apple answered \(response.contents) instead of a JSON object."
    default:
      "Apple's answer is broken or incomplete JSON: \(response.contents)."
    }
  }
}

extension AppStoreResponse {
  /// What the answer is made of, for people.
  fileprivate var contents: String {
    let type = header("Content-Type")?.prefix { $0 != ";" }.prefix(60)
    return "\(body.count) bytes of \(type.map(String.init) ?? "unnamed type")"
  }
}
