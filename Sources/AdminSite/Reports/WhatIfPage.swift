import HTTPAPI
import Hummingbird
import HummingbirdCore
import LedgerStorage
import Reports
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
    var (usual, rare) = Self.formFields(fields)
    if let fault {
      let all = usual + rare
      (usual, rare) = (
        usual.marked(with: [fault], naming: all), rare.marked(with: [fault], naming: all)
      )
      usual[0].fault = usual[0].fault?.namingPolicies
    }
    return PageRenderer.response(
      (
        page: try await pages.frame("What if", at: AdminURL.whatIf, context),
        action: AdminURL.whatIf, fields: usual, rareFields: rare,
        isRareOpen: rare.contains(where: \.isUsed),
        fault: (usual + rare).contains { $0.fault != nil } ? nil : fault?.detail(naming: []),
        policies: OwnershipPolicy.all.map {
          (name: $0.name, label: $0.label, summary: $0.summary)
        },
        answer: answer.map {
          (
            verdict: $0.inWords, tone: $0.comparison.hasDifferences ? Tone.warning : Tone.good,
            notes: $0.notes,
            tables: $0.comparison.hasDifferences
              ? DataTable.accounts(of: $0) + [
                DataTable(monthsOf: $0.comparison),
                DataTable(chargesOf: $0, productNames: catalogue.productNames),
              ] : []
          )
        }
      ), "what-if", status: fault?.status ?? .ok)
  }

  /// The form's fields, and those that are folded.
  private static func formFields(_ sent: EncodedFields)
    -> (usual: [FormField], rare: [FormField])
  {
    func field(_ name: String, _ label: String) -> FormField {
      var field = FormField(id: name.replacing("_", with: "-"), name: name, label: label)
      field.value = sent[name]?.rawValue ?? ""
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
    if policy.value.isEmpty { policy.value = OwnershipPolicy.firstOwnerKeeps.name }
    policy.options = OwnershipPolicy.all.map {
      ($0.name, $0.label, policy.value == $0.name)
    }
    var account = FormField.account(.accountID, "Account")
    (account.value, account.isRequired) = (sent[account.name]?.rawValue ?? "", false)
    return (
      [policy, account],
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

extension String {
  /// The text with the policies' labels instead of their names.
  fileprivate var namingPolicies: String {
    OwnershipPolicy.all.reduce(self) { $0.replacing($1.name, with: "“\($1.label)”") }
  }
}

extension WhatIfAnswer {
  /// What an account would gain and lose.
  fileprivate struct Balance: Sendable {
    let name: String
    /// Charges.
    var gained = 0
    var lost = 0
    /// Whole days of access gained less those lost.
    var days: Int64 = 0
    /// Amounts gained less those lost, by currency.
    var milliunits: [String: Int64] = [:]

    /// As in `+9.99 USD, −4.99 EUR`.
    var money: String {
      milliunits.sorted { $0.key < $1.key }.filter { $0.value != 0 }
        .map { ($0.value > 0 ? "+" : "") + Price.text($0.value, currency: $0.key) }
        .joined(separator: ", ")
    }

    fileprivate mutating func add(_ difference: OwnershipDifference, sign: Int) {
      if sign > 0 { gained += 1 } else { lost += 1 }
      days += Int64(sign) * difference.days
      if let price = difference.price {
        milliunits[price.currency, default: 0] += Int64(sign) * price.amountMilliunits
      }
    }
  }

  /// The accounts of the listed charges, most charges gained first.
  fileprivate var balances: [Balance] {
    var balances: [AccountKey: Balance] = [:]
    for named in differences {
      func add(_ account: AccountKey, _ sign: Int) {
        balances[account, default: Balance(name: named.name(account))]
          .add(named.difference, sign: sign)
      }
      for account in named.difference.gains { add(account, 1) }
      if let loser = named.difference.loses { add(loser, -1) }
    }
    return balances.values.sorted {
      ($1.gained - $1.lost, $0.name) < ($0.gained - $0.lost, $1.name)
    }
  }

  /// The answer: how much would move, and who would gain and lose most.
  fileprivate var inWords: String {
    let (total, balances) = (comparison.total, balances)
    guard comparison.hasDifferences else {
      let compared = Count.text(comparison.charges, "charge")
      return "No charge would have another owner (\(compared) compared)."
    }
    let count = ChartUnit.count.text(Int64(total.charges))
    let money = total.amounts.map { Price.text($0.milliunits, currency: $0.currency) }
    // Only what is listed is known one by one.
    let unclaimed = isListCutShort ? 0 : differences.count { $0.difference.verdict.owners.isEmpty }
    let rest = unclaimed == 0 ? "" : " \(unclaimed) of them would be unclaimed."
    let accounts = isListCutShort ? "" : " (\(Count.text(balances.count, "account")))"
    let verb = policy == .shared ? "more" : total.charges == 1 ? "another" : "other"
    let moved =
      "With “\(policy.label)”, \(count) of \(Count.text(comparison.charges, "charge")) would have "
      + "\(verb) \(total.charges == 1 && policy != .shared ? "owner" : "owners")"
      + (policy == .shared ? "" : " or none") + "\(accounts): "
      + ([Count.text(Int(total.days), "day") + " of access"] + money).joined(separator: ", ") + "."
      + rest
    func most(_ verb: String, _ balance: Balance?, _ count: (Balance) -> Int) -> String? {
      balance.flatMap { balance in
        count(balance) > 0
          ? "\(balance.name) would \(verb) most (\(Count.text(count(balance), "charge")))." : nil
      }
    }
    return [
      moved, most("gain", balances.max { $0.gained < $1.gained }) { $0.gained },
      most("lose", balances.max { $0.lost < $1.lost }) { $0.lost },
    ].compactMap(\.self).joined(separator: " ")
  }

  /// What the answer leaves out.
  fileprivate var notes: [String] {
    var notes: [String] = []
    if isCutShort {
      notes.append(
        "Only the first "
          + Count.text(
            comparison.originalTransactions, "original transaction was",
            "original transactions were")
          + " compared: tenure what-if \(policy.name) compares all.")
    }
    if isListCutShort {
      notes.append(
        "The accounts and charges below are those of the first "
          + "\(Count.text(differences.count, "charge")): tenure what-if --list writes all.")
    }
    return notes
  }
}

extension DataTable {
  /// Accounts shown at once: up to half who gain most, and up to half who lose most.
  private static let mostAccounts = 20

  /// What each account would gain and lose; the rest of a long list is folded.
  fileprivate static func accounts(of answer: WhatIfAnswer) -> [DataTable] {
    let balances = answer.balances
    guard balances.count > mostAccounts else { return [DataTable(balances, caption: "Accounts")] }
    // Both ends of the order.
    let half = mostAccounts / 2
    return [
      DataTable(
        balances.prefix(half).filter { $0.gained > $0.lost }
          + balances.suffix(half).filter { $0.gained < $0.lost },
        caption: "Accounts that would gain or lose most"),
      DataTable(
        balances, caption: "All \(Count.text(balances.count, "account"))", isFolded: true),
    ]
  }

  private init(
    _ balances: some Sequence<WhatIfAnswer.Balance>, caption: String, isFolded: Bool = false
  ) {
    self.init(
      caption: caption,
      columns: [
        DataColumn(label: "Account"), DataColumn(label: "Charges", isNumber: true),
        DataColumn(label: "Days of access", isNumber: true),
        DataColumn(label: "Amount", isNumber: true),
      ],
      rows: balances.map { balance in
        func number(_ value: Int64) -> String {
          (value > 0 ? "+" : "") + ChartUnit.count.text(value)
        }
        let charges = [Int64(balance.gained), -Int64(balance.lost)].filter { $0 != 0 }
        return DataRow(cells: [
          DataCell(text: balance.name, href: AdminURL.account(balance.name), isHeading: true),
          DataCell(text: charges.map(number).joined(separator: " "), isNumber: true),
          DataCell(text: number(balance.days), isNumber: true, isNil: balance.days == 0),
          DataCell(text: balance.money, isNumber: true),
        ])
      },
      emptyText: "No account would gain or lose a charge.", isFolded: isFolded)
  }

  /// The totals by month.
  fileprivate init(monthsOf comparison: OwnershipComparison) {
    let figures = comparison.months + [("Total", comparison.total)]
    self.init(
      caption: "By month of the charge",
      columns: [
        DataColumn(label: "Month"), DataColumn(label: "Charges", isNumber: true),
        DataColumn(label: "Accounts", isNumber: true),
        DataColumn(label: "Days of access", isNumber: true),
        DataColumn(label: "Amount", isNumber: true),
      ],
      rows: figures.map { month, figures in
        let name =
          CalendarDate(iso8601: "\(month)-01").map { "\($0.monthName) \($0.year)" } ?? month
        let amounts = figures.amounts.map { Price.text($0.milliunits, currency: $0.currency) }
        let counts = [Int64(figures.charges), Int64(figures.accounts), figures.days]
        return DataRow(
          cells: [DataCell(text: name, isHeading: true)]
            + counts.map { DataCell(text: ChartUnit.count.text($0), isNumber: true) }
            + [DataCell(text: amounts.joined(separator: ", "), isNumber: true)],
          rowClass: month == "Total" ? "total" : nil)
      },
      emptyText: "", isFolded: true)
  }

  /// The charges with other owners, with both reasons.
  fileprivate init(chargesOf answer: WhatIfAnswer, productNames: [String: String]) {
    self.init(
      caption: Count.text(answer.differences.count, "charge") + ", with the reasons",
      columns: [
        "Transaction", "Product", "Charged", "Price", "Owner", "Under the policy", "Reasons",
      ]
      .map { DataColumn(label: $0) },
      rows: answer.differences.map { named in
        let (difference, charge) = (named.difference, named.difference.charge)
        var product = DataCell(text: charge.productID.rawValue)
        product.takeName(from: productNames)
        func accounts(_ keys: [AccountKey]) -> DataCell {
          let names = keys.map(named.name)
          return DataCell(
            text: names.isEmpty ? "unclaimed" : names.joined(separator: ", "),
            href: names.count == 1 ? AdminURL.account(names[0]) : nil)
        }
        return DataRow(
          cells: [
            DataCell(
              text: charge.id.transactionID.rawValue, href: charge.id.href, isHeading: true,
              isCode: true),
            product,
            DataCell(text: charge.date.dayName, identifier: Moment(charge.date).text),
            DataCell(
              text: difference.price.map {
                Price.text($0.amountMilliunits, currency: $0.currency)
              } ?? "price unknown"),
            accounts([difference.owner].compactMap(\.self)), accounts(difference.verdict.owners),
            DataCell(
              text: named.policyExplanation.withTimesForPeople,
              note: "Owner now: \(named.explanation.withTimesForPeople)"),
          ])
      },
      emptyText: "No charge would have another owner.", isFolded: true)
  }
}
