import HTTPAPI
import Hummingbird
import HummingbirdCore
import LedgerStorage
import Subscriptions

/// The page that compares the recorded owners with those of another policy.
struct WhatIfPageController: Controller {
  let api: API

  @Sendable
  func show(_ request: Request, context: APIContext) async throws -> Response {
    let fields = EncodedFields(request.uri.query ?? "", .html)
    guard fields[TextField.policy.name] != nil else {
      return try await page(fields, nil, context)
    }
    do {
      return try await page(fields, try await api.answer(to: WhatIfQuestion(fields)), context)
    } catch let problem as Problem where problem.status.code < 500 {
      return try await page(fields, nil, fault: problem, context)
    }
  }

  private func page(
    _ fields: EncodedFields, _ answer: WhatIfAnswer?, fault: Problem? = nil, _ context: APIContext
  ) async throws -> Response {
    let (usual, rare) = Self.formFields(fields, fault)
    return PageRenderer.response(
      (
        page: try await pages.frame("What if", at: AdminURL.whatIf, context),
        action: AdminURL.whatIf, fields: usual, rareFields: rare,
        isRareOpen: rare.contains(where: \.isUsed),
        fault: (usual + rare).contains { $0.fault != nil } ? nil : fault?.detail,
        policies: OwnershipPolicy.all.map {
          (name: $0.name, label: $0.label, summary: $0.summary)
        },
        answer: answer.map {
          (
            lead: $0.lead, months: DataTable(monthsOf: $0.comparison), list: DataTable(listOf: $0)
          )
        }
      ), "what-if", status: fault?.status ?? .ok)
  }

  /// The form's fields, and those that are folded.
  private static func formFields(_ sent: EncodedFields, _ fault: Problem?)
    -> (usual: [FormField], rare: [FormField])
  {
    func field(_ name: String, _ label: String) -> FormField {
      var field = FormField(id: name.replacing("_", with: "-"), name: name, label: label)
      field.value = sent[name]?.rawValue ?? ""
      if fault?.field == name { field.fault = fault?.detail }
      return field
    }
    func input(_ name: String, _ label: String) -> FormField {
      var input = field(name, label)
      input.isInput = true
      return input
    }
    func number(_ name: String, _ label: String, usually: Int) -> FormField {
      var number = input(name, label)
      (number.type, number.hint) = ("number", "Present rule only; \(usually) if empty.")
      return number
    }
    var policy = field(TextField.policy.name, "Policy")
    policy.isSelect = true
    // The present rule would be compared with itself.
    if policy.value.isEmpty { policy.value = OwnershipPolicy.all.dropFirst().first?.name ?? "" }
    policy.options = OwnershipPolicy.all.map {
      ($0.name, $0.label, policy.value == $0.name)
    }
    return (
      [policy, input(TextField.accountID.name, "Account")],
      [
        input(TextField.originalTransactionID.name, "Original transaction"),
        input(TextField.bundleID.name, "App (bundle ID)"),
        input(TextField.subscriptionGroup.name, "Subscription group"),
        number("billing_retry_days", "Days of billing retry", usually: 60),
        number("early_charge_hours", "Hours a renewal may be early", usually: 24),
        number("period_end_seconds", "Seconds a period may overrun", usually: 60),
      ]
    )
  }
}

extension OwnershipPolicy {
  /// As in `Latest submitter takes`.
  fileprivate var label: String { EnumText.sentence(name.replacing("-", with: "_")) }
}

extension WhatIfAnswer {
  fileprivate var lead: String {
    func words(_ count: Int, _ noun: String) -> String {
      "\(ChartUnit.count.text(Int64(count))) \(noun)" + (count == 1 ? "" : "s")
    }
    let examined =
      words(comparison.charges, "charge") + ", "
      + words(comparison.originalTransactions, "original transaction")
    let result =
      comparison.hasDifferences
      ? "\(words(comparison.total.charges, "charge")) would have other owners."
      : "No charge would have another owner."
    let rest =
      isCutShort
      ? " The scope has more original transactions: tenure what-if \(policy.name) compares all."
      : ""
    return "Compared: \(examined). \(result)\(rest)"
  }
}

extension DataTable {
  /// The totals by month.
  fileprivate init(monthsOf comparison: OwnershipComparison) {
    let figures = comparison.months + [("Total", comparison.total)]
    self.init(
      caption: "By month",
      columns: [
        DataColumn(label: "Month"), DataColumn(label: "Charges", isNumber: true),
        DataColumn(label: "Accounts", isNumber: true),
        DataColumn(label: "Days of access", isNumber: true), DataColumn(label: "Amount"),
      ],
      rows: figures.map { month, figures in
        let amounts = figures.amounts.map { Price.text($0.milliunits, currency: $0.currency) }
        let counts = [Int64(figures.charges), Int64(figures.accounts), figures.days]
        return DataRow(
          cells: [DataCell(text: month, isHeading: true)]
            + counts.map { DataCell(text: ChartUnit.count.text($0), isNumber: true) }
            + [DataCell(text: amounts.joined(separator: ", "))])
      },
      emptyText: "")
  }

  /// The charges with other owners.
  fileprivate init(listOf answer: WhatIfAnswer) {
    self.init(
      caption: "Gains and losses",
      columns: [
        "Transaction", "Product", "Charged", "Price", "Owner", "Loses", "Gains",
        "Reason for the owner", "Reason under the policy",
      ].map { DataColumn(label: $0) },
      rows: answer.differences.map { named in
        let (difference, charge) = (named.difference, named.difference.charge)
        let accounts = difference.gains.map(named.name).joined(separator: ", ")
        func account(_ key: AccountKey?) -> DataCell {
          let name = key.map(named.name)
          return DataCell(text: name ?? "", href: name.map { AdminURL.account($0) })
        }
        return DataRow(
          cells: [
            DataCell(
              text: charge.id.transactionID.rawValue, href: charge.id.href, isHeading: true,
              isCode: true),
            DataCell(text: charge.productID.rawValue, isCode: true),
            DataCell(text: Moment(charge.date).text),
            DataCell(
              text: difference.price.map {
                Price.text($0.amountMilliunits, currency: $0.currency)
              } ?? "price unknown"),
            account(difference.owner), account(difference.loses),
            difference.gains.count == 1 ? account(difference.gains[0]) : DataCell(text: accounts),
            DataCell(text: named.explanation.withTimesForPeople),
            DataCell(text: named.policyExplanation.withTimesForPeople),
          ])
      },
      emptyText: "No charge would have another owner.",
      note: answer.isListCutShort
        ? "Only the first \(answer.differences.count) charges are shown: tenure what-if --list "
          + "writes all." : nil)
  }
}
