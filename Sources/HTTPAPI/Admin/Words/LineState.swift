import LedgerStorage
import Subscriptions

/// How an original transaction stands, in words.
struct LineState: Sendable {
  let verdict: String
  let tone: String
  let properties: [Property]

  init(
    of line: LineID, in family: RecordedFamily, facts: LineFacts, catalogue: Catalogue,
    at now: Timestamp
  ) {
    let bindings = Binding.bindings(of: family.rule.charges, decisions: family.rule.decisions)
    let account = bindings.account(asOf: now)
    let current = family.current(in: catalogue, at: now)
    let summary = LineSummary(line: family.line, rule: family.rule)
    let owner = account.map { "bound to “\(facts.name($0))”" } ?? "bound to nobody"
    if let current {
      verdict = "\(current.inWords) It is \(owner)."
      tone = Badge(current.state).tone
    } else {
      verdict = "Nothing of it lasts. It is \(owner)."
      tone = account == nil ? Tone.warning : Tone.quiet
    }
    var properties = [
      Property(
        label: "Bound to", value: account.map(facts.name) ?? "nobody",
        href: account.map { PageAddress.account(facts.name($0)) }, isCode: account != nil),
      Property(label: "Environment", value: line.environment.rawValue),
      Property(label: "Charges", value: ChartUnit.count.text(Int64(family.rule.charges.count))),
    ]
    if let product = current?.productID ?? summary.latest?.productID {
      properties.append(Property(label: "Product", value: product.rawValue, isCode: true))
    }
    if let paidThrough = summary.paidThrough {
      properties.append(Property(label: "Paid through", value: Moment(paidThrough).text))
    }
    if let autoRenews = summary.autoRenews {
      properties.append(
        Property(
          label: "Auto-renew", value: autoRenews ? "on" : "off",
          note: summary.autoRenewProductID.map { "to \($0)" }))
    }
    if let statusAsOf = summary.statusAsOf {
      properties.append(
        Property(label: "Apple's last word on renewal", value: Moment(statusAsOf).text))
    }
    self.properties = properties
  }
}
