import JSONText
import LedgerStorage
import Subscriptions

/// What the decision on a charge looked at.
struct DecisionEvidence: JSONWritable {
  private let charge: Charge
  private let finding: RenewalFinding
  private let renewingAccountID: String?
  private let isProvisional: Bool

  init(on report: ChargeReport, in family: RecordedFamily) {
    charge = report.charge
    finding = report.recorded.decision.finding
    renewingAccountID = finding.account.map { family.names[$0] ?? "erased" }
    isProvisional = report.recorded.decision.isProvisional
  }

  func write(to json: inout JSONWriter) {
    json.object { json in
      json.member("kind", charge.kind)
      json.member("charged_at", charge.date)
      json.member("ground", finding.ground)
      json.member("renewing_account_id", renewingAccountID)
      json.member("previous_transaction_id", finding.previous?.transactionID)
      json.member("status_as_of", finding.statusAsOf)
      json.member("switched_off_at", finding.switchedOffAt)
      json.member("provisional", isProvisional)
      json.member("in_words", sentences)
    }
  }

  /// All of it in words.
  var sentences: String {
    var sentences = ["The charge is dated \(charge.date), and \(kind)."]
    sentences.append(
      finding.previous.map {
        "Before it the line's latest charge was transaction \($0.transactionID)."
      }
        ?? "No charge of the line before it counted.")
    if let statusAsOf = finding.statusAsOf {
      sentences.append("What Apple had said of renewal on \(statusAsOf) settled it.")
    }
    if let switchedOffAt = finding.switchedOffAt {
      sentences.append("Until then auto-renew had been off since \(switchedOffAt).")
    }
    if isProvisional { sentences.append("A first claim can still change the owner.") }
    return sentences.joined(separator: " ")
  }

  private var kind: String {
    switch charge.kind {
    case .renewal: "Apple calls it a renewal"
    case .purchase: "Apple calls it a purchase"
    case .unknown: "Apple does not say whether it is a purchase or a renewal"
    }
  }
}
