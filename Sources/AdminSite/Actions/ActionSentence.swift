import JSONText
import LedgerStorage
import Reports
import Subscriptions

extension ReportRow {
  /// For example `admin granted pro to` and `petra`, with a link, and `through 23 Dec 2026`.
  var actionInWords: [TextPiece] {
    [("\(self["administrator"]?.text ?? "") ", nil)]
      + ActionSentence(
        action: self["action"]?.text ?? "", subject: self["subject"]?.text ?? "",
        accountID: self["account_id"]?.text, previousAccountID: self["previous_account_id"]?.text,
        data: self["data"]?.text
      ).pieces
  }
}

extension AdministratorAction {
  /// For example `Granted pro to` and `petra`, with a link.
  var inWords: [TextPiece] {
    var pieces = ActionSentence(
      action: action, subject: subject, accountID: accountID, previousAccountID: previousAccountID,
      data: data
    ).pieces
    pieces[0].text = pieces[0].text.prefix(1).uppercased() + pieces[0].text.dropFirst()
    return pieces + [(".", nil)]
  }
}

/// An administrator action as a sentence without its subject.
private struct ActionSentence {
  let action: String
  /// What the action is about: the account's key and the grant's ID are no names.
  let subject: String
  let accountID: String?
  let previousAccountID: String?
  let data: String?

  var pieces: [TextPiece] {
    let data = data.flatMap { try? JSONValue(parsing: $0.utf8) }
    func plain(_ text: String) -> [TextPiece] { [(text, nil)] }
    func account(_ id: String?) -> TextPiece? { id.map { ($0, AdminURL.account($0)) } }
    let (owner, previous) = (account(accountID), account(previousAccountID))
    let named = owner ?? (subject, nil)
    let entitlement = data?["entitlement"]?.string
    func count(_ name: String, _ one: String) -> String {
      data?[name]?.integer.map { Count.text(Int($0), one) } ?? "\(one)s"
    }
    func rate(_ name: String, _ unit: String = "") -> [TextPiece] {
      let verb = data?["value"] == .null ? "removed" : "set"
      let value = data?["value"]?.string.map { " to \($0)\(unit)" } ?? ""
      let day = data?["valid_from"]?.string.map { " from \(CalendarDate.name($0))" } ?? ""
      return plain("\(verb) \(name) ") + [(subject, AdminURL.rates)] + plain(value + day)
    }
    return
      switch AdministratorAction.Action(rawValue: action)
    {
    // An administrator who confirms the owner overrides the rule, too.
    case .transfer where accountID != nil && accountID == previousAccountID:
      plain("kept ") + charge(data) + plain(" with ") + [named]
    case .transfer, .release:
      plain(
        action == "release" ? "released " : previous == nil ? "assigned " : "transferred ")
        + charge(data) + (previous.map { plain(" from ") + [$0] } ?? [])
        + (owner.map { plain(" to ") + [$0] } ?? [])
    case .grant:
      plain("granted \(entitlement ?? "an entitlement") to ") + [named]
        + plain(
          data?["expires_at"]?.string.flatMap { Timestamp(rfc3339: $0) }
            .map { " \($0.lastDayName)" } ?? ", without an end")
    case .revokeGrant: plain("revoked \(entitlement ?? "a grant") of ") + [named]
    case .mergeAccount:
      plain("merged ") + [previous ?? ("an account", nil)] + plain(" into ") + [named]
    case .eraseAccount: plain("erased the data of ") + [named]
    case .exportAccount: plain("exported the data of ") + [named]
    case .redeliverEvent:
      plain("redelivered event \(subject)") + (owner.map { plain(" of ") + [$0] } ?? [])
    case .redeliverParkedEvents: plain("redelivered \(count("events", "failed event"))")
    case .retryJobs: plain("retried \(count("jobs", "failed job"))")
    case .verifySubmissions: plain("had \(count("submissions", "receipt")) verified again")
    case .setExchangeRate: rate("the exchange rate of")
    case .setCommission: rate("Apple's commission on", "%")
    case .setProduct:
      plain("saved the product ") + [(subject, AdminURL.product(subject))]
        + plain(data?["changes"]?.string.map { ": \($0)" } ?? "")
    case nil: plain("\(action.replacing("_", with: " ")) ") + [named]
    }
  }

  /// The charge of a transfer or a release, for example `monthly (430001021762312)`.
  private func charge(_ data: JSONValue?) -> [TextPiece] {
    guard let line = data?["original_transaction_id"]?.string,
      let environment = data?["environment"]?.string,
      let transaction = data?["transaction_id"]?.string
    else { return [("a charge", nil)] }
    let product = data?["product_id"]?.string.map { "\($0) " } ?? ""
    return [
      (product, nil),
      (transaction, AdminURL.originalTransaction(line, environment: environment)),
    ]
  }
}

extension DataTable {
  /// The latest actions, with the number of all.
  init(latest actions: ReportCellItems) {
    let all = Count.text(Int(actions.count), "action")
    self.init(
      actions: actions.items,
      caption: actions.items.isCutShort
        ? "Latest \(actions.items.rows.count) of \(all)" : all)
  }

  /// Administrator actions, latest first.
  init(actions: ReportTable, caption: String) {
    self.init(
      caption: caption, columns: ["Time", "Action", "Reason"].map { DataColumn(label: $0) },
      rows: actions.records.map { row in
        DataRow(cells: [
          DataCell(text: row["at"]?.time.map { Moment($0).text } ?? "", isHeading: true),
          DataCell(text: "", pieces: row.actionInWords),
          DataCell(text: row["reason"]?.text ?? ""),
        ])
      }, emptyText: "No actions.")
  }
}
