import JSONText
import LedgerStorage
import Reports
import Subscriptions

/// Administrator actions as sentences, from the rows of the report of them.
extension ReportRow {
  /// For example `admin granted pro to` and `petra`, with a link, and `through 23 Dec 2026`.
  var actionInWords: [TextPiece] {
    let data = self["data"]?.text.flatMap { try? JSONValue(parsing: $0.utf8) }
    let action = self["action"]?.text ?? ""
    func plain(_ text: String) -> [TextPiece] { [(text, nil)] }
    func account(_ column: String) -> TextPiece? {
      self[column]?.text.map { ($0, AdminURL.account($0)) }
    }
    // The account's key and the grant's ID are no names.
    let subject = account("account_id") ?? (self["subject"]?.text ?? "", nil)
    let entitlement = data?["entitlement"]?.string
    func count(_ name: String, _ one: String) -> String {
      data?[name]?.integer.map { Count.text(Int($0), one) } ?? "\(one)s"
    }
    func rate(_ verb: String, _ unit: String = "") -> [TextPiece] {
      let value = data?["value"]?.string.map { " to \($0)\(unit)" } ?? ""
      let day = data?["valid_from"]?.string.map { " from \(CalendarDate.name($0))" } ?? ""
      return plain(verb) + [(self["subject"]?.text ?? "", AdminURL.rates)] + plain(value + day)
    }
    let sentence: [TextPiece] =
      switch AdministratorAction.Action(rawValue: action) {
      case .transfer, .release:
        plain(action == "transfer" ? "transferred " : "released ") + charge(data)
          + (account("previous_account_id").map { plain(" from ") + [$0] } ?? [])
          + (account("account_id").map { plain(" to ") + [$0] } ?? [])
      case .grant:
        plain("granted \(entitlement ?? "an entitlement") to ") + [subject]
          + plain(
            data?["expires_at"]?.string.flatMap { Timestamp(rfc3339: $0) }
              .map { " \($0.lastDayName)" } ?? ", without an end")
      case .revokeGrant: plain("revoked \(entitlement ?? "a grant") of ") + [subject]
      case .mergeAccount:
        plain("merged ") + [account("previous_account_id") ?? ("an account", nil)]
          + plain(" into ") + [subject]
      case .eraseAccount: plain("erased the data of ") + [subject]
      case .exportAccount: plain("exported the data of ") + [subject]
      case .redeliverEvent:
        plain("redelivered event \(self["subject"]?.text ?? "")")
          + (account("account_id").map { plain(" of ") + [$0] } ?? [])
      case .redeliverParkedEvents: plain("redelivered \(count("events", "failed event"))")
      case .retryJobs: plain("retried \(count("jobs", "failed job"))")
      case .verifySubmissions: plain("had \(count("submissions", "receipt")) verified again")
      case .setExchangeRate: rate("set the exchange rate of ")
      case .setCommission: rate("set Apple's commission on ", "%")
      case .setProduct:
        plain("saved the product ") + [(subject.text, AdminURL.product(subject.text))]
      case nil: plain("\(action.replacing("_", with: " ")) ") + [subject]
      }
    return plain("\(self["administrator"]?.text ?? "") ") + sentence
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
