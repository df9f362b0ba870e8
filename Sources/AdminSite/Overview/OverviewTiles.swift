import LedgerStorage
import Reports
import Subscriptions

extension OverviewAnswers {
  private static let mostCurrencies = 4

  var groups: [(heading: String, tiles: [Tile])] {
    let totals = [
      stock(.active, "Active", "active", more: Tone.good),
      stock(.trials, "Open trials", "trials", more: Tone.info), churn,
      stock(
        .billingIssues, "Billing issues", "in_grace_period", "in_billing_retry",
        more: Tone.warning, less: Tone.good),
    ]
    let work = [
      waiting(
        "Processing backlog", "submissions_open", "notifications_open", "jobs_overdue",
        note: "receipts, notifications, jobs", href: OverviewQuestion.intake.href),
      waiting(
        "Failed", "jobs_parked", "deliveries_parked", note: "jobs and webhook deliveries",
        href: AdminURL.parked),
    ]
    return [
      ("Subscriptions", totals),
      ("Revenue", money + revenue + [refunds, renewals]),
      ("Processing", work + failures),
    ]
  }

  private func rows(_ question: OverviewQuestion) -> [ReportRow] {
    tables[question]?.records ?? []
  }

  /// All weeks of the overview: revenue reports have no row for a week without charges.
  private var everyWeek: [String] { rows(.active).compactMap { $0["from_day"]?.text } }

  /// The first day of the week that has not ended.
  private var thisWeek: CalendarDate? { everyWeek.max().flatMap { CalendarDate(iso8601: $0) } }

  /// For example `since 22 Nov`, the last Sunday.
  private var sinceLastWeek: String {
    guard let sunday = thisWeek?.adding(days: -1) else { return "" }
    return "since \(sunday.day) \(sunday.monthName)"
  }

  /// What the legends of the charts by week leave out.
  var weekNote: String? {
    thisWeek.map {
      "Weeks run from Monday to Sunday (UTC). The week that began on \($0.day) \($0.monthName) has not "
        + "ended: it is hatched, and not in the totals."
    }
  }

  /// The sums of some columns by week; nil without an answer.
  private func weeks(_ question: OverviewQuestion, _ columns: [String], currency: String? = nil)
    -> [Int64]?
  {
    guard tables[question] != nil else { return nil }
    var weeks: [String: Int64] = [:]
    for week in everyWeek { weeks[week] = 0 }
    for row in rows(question) {
      guard let week = row["from_day"]?.text else { continue }
      let isCounted = currency == nil || row["currency"]?.text == currency
      weeks[week, default: 0] += isCounted ? columns.reduce(0) { $0 + row.integer($1) } : 0
    }
    return weeks.sorted { $0.key < $1.key }.map(\.value)
  }

  /// The sums of some measures by week, latest last; nil without an answer.
  private func pastWeeks(_ question: OverviewQuestion, _ measures: [String]) -> [Int64]? {
    guard tables[question] != nil else { return nil }
    var weeks = [Int64](repeating: 0, count: PastWeeks.count)
    for row in rows(question) {
      guard let measure = row["measure"]?.text, measures.contains(measure),
        let ago = row["weeks_ago"]?.integer.flatMap(Int.init(exactly:)), weeks.indices.contains(ago)
      else { continue }
      weeks[PastWeeks.count - 1 - ago] += row.integer("number")
    }
    return weeks
  }

  private func empty(_ question: OverviewQuestion, _ label: String) -> Tile {
    Tile(
      label: label, value: "…", note: working.contains(question) ? "Loading" : "Not available",
      href: question.href)
  }

  private func stock(
    _ question: OverviewQuestion, _ label: String, _ columns: String..., more: String,
    less: String = Tone.warning
  ) -> Tile {
    guard let weeks = weeks(question, columns) else { return empty(question, label) }
    var tile = Tile(
      label: label, value: ChartUnit.count.text(weeks.last ?? 0), href: question.href,
      sparkline: Sparkline(weeks, name: label))
    tile.compare(weeks, .count, sinceLastWeek, more: more, less: less)
    return tile
  }

  /// A count of the last seven days; earlier weeks end at the same time of day.
  private func flow(
    _ question: OverviewQuestion, _ label: String, _ measures: String...,
    note: String = "last 7 days", href: String? = nil
  ) -> Tile {
    guard let weeks = pastWeeks(question, measures) else { return empty(question, label) }
    var tile = Tile(
      label: label, value: ChartUnit.count.text(weeks.last ?? 0), note: note,
      href: href ?? question.href, sparkline: Sparkline(weeks, name: "\(label) per week"))
    tile.compare(
      weeks, .count, "vs previous 7 days", more: Tone.warning, less: Tone.good)
    // Usually nothing fails.
    if tile.changeTone == nil { tile.change = nil }
    return tile
  }

  private var money: [Tile] {
    guard tables[.mrr] != nil else { return [empty(.mrr, "MRR")] }
    let last = (rows(.mrr).compactMap { $0["from_day"]?.text } + everyWeek).max()
    // Largest amounts first, without conversion.
    let current = rows(.mrr).compactMap { row -> (currency: String, amount: Int64)? in
      guard row["from_day"]?.text == last, let currency = row["currency"]?.text,
        let amount = row["mrr_milliunits"]?.integer
      else { return nil }
      return (currency, amount)
    }.sorted { ($1.amount, $0.currency) < ($0.amount, $1.currency) }
    guard !current.isEmpty else {
      return [Tile(label: "MRR", value: "0", href: OverviewQuestion.mrr.href)]
    }
    return current.prefix(Self.mostCurrencies).map { currency, amount in
      let unit = ChartUnit.money(currency: currency)
      let weeks = weeks(.mrr, ["mrr_milliunits"], currency: currency) ?? []
      var tile = Tile(
        label: current.count > 1 ? "MRR, \(currency)" : "MRR", value: unit.text(amount),
        href: OverviewQuestion.mrr.href,
        sparkline: Sparkline(weeks, name: "MRR", unit: unit))
      tile.compare(weeks, unit, sinceLastWeek, more: Tone.good, less: Tone.warning)
      return tile
    }
  }

  // MARK: This month

  /// The months of the report of revenue, in order: some have no rows.
  private func months(_ asOf: Timestamp) -> [DayRange] {
    let asked = ReportRequest(.revenue, query: nil, at: asOf)
    guard let range = asked.range else { return [] }
    return asked.starts(of: range).map { first in
      DayRange(first: first, last: first.adding(months: 1).adding(days: -1))
    }
  }

  private func months(_ asOf: Timestamp, _ column: String, currency: String? = nil) -> [Int64] {
    months(asOf).map { month in
      rows(.revenue).filter {
        $0["from_day"]?.text == month.first.text
          && (currency == nil || $0["currency"]?.text == currency)
      }.reduce(0) { $0 + $1.integer(column) }
    }
  }

  /// Charges less refunds, each in its currency.
  private var revenue: [Tile] {
    let label = "Net revenue this month"
    guard let asOf = tables[.revenue]?.asOf else { return [empty(.revenue, label)] }
    let all = rows(.revenue).currencies.map { currency in
      (currency: currency, months: months(asOf, "net_by_refund_milliunits", currency: currency))
    }.sorted { ($1.months.max() ?? 0, $0.currency) < ($0.months.max() ?? 0, $1.currency) }
    guard !all.isEmpty else {
      return [Tile(label: label, value: "0", href: OverviewQuestion.revenue.href)]
    }
    return all.prefix(Self.mostCurrencies).map { currency, amounts in
      monthly(
        all.count > 1 ? "\(label), \(currency)" : label, amounts, .money(currency: currency), asOf,
        href: OverviewQuestion.revenue.href)
    }
  }

  /// The refunds of this month by their own date, which lead to the list of them.
  private var refunds: Tile {
    let label = "Refunds this month"
    guard let asOf = tables[.revenue]?.asOf, let month = months(asOf).last else {
      return empty(.revenue, label)
    }
    var choices = ReportChoices()
    (choices.from, choices.to, choices.asOf) = (month.first, month.last, asOf)
    let cell = try? ReportCell(of: .revenue, choices, column: "refunds", row: [:])
    return monthly(
      label, months(asOf, "refunds"), .count, asOf,
      href: cell.map { ReportRequest(.revenue, query: nil, at: asOf).href($0) }
        ?? OverviewQuestion.revenue.href)
  }

  /// This month so far, and the months before.
  private func monthly(
    _ label: String, _ values: [Int64], _ unit: ChartUnit, _ asOf: Timestamp, href: String
  ) -> Tile {
    let before = values.dropLast()
    return Tile(
      label: label, value: unit.text(values.last ?? 0),
      note: before.last.map { "\(months(asOf).dropLast().last?.text ?? ""): \(unit.text($0))" },
      href: href, sparkline: Sparkline(values, isSoFar: true, name: "By month", unit: unit)
    )
  }

  /// The churn of the last complete week.
  private var churn: Tile {
    guard tables[.churn] != nil else { return empty(.churn, "Weekly churn") }
    let shares = rows(.churn).map { row -> (Int64?, String) in
      let (churned, active) = (row.integer("churned"), row.integer("active_at_start"))
      let week = row["from_day"]?.text.flatMap { CalendarDate(iso8601: $0) }.map {
        ", \(DayRange(first: $0, last: $0.adding(days: 6)).text)"
      }
      return (
        ReportValue.hundredthsOfPercent(of: churned, in: active),
        "\(ChartUnit.count.text(churned)) / \(ChartUnit.count.text(active))\(week ?? "")"
      )
    }
    let whole = shares.dropLast()
    return Tile(
      label: "Weekly churn", value: whole.last?.0.map(ChartUnit.share.text) ?? "—",
      note: whole.last?.1, href: OverviewQuestion.churn.href,
      sparkline: Sparkline(whole.map(\.0), name: "Churn per week", unit: .share))
  }

  private var renewals: Tile {
    guard tables[.renewalsDue] != nil else { return empty(.renewalsDue, "Renewals due") }
    var (number, amounts) = (Int64(0), [String: Int64]())
    for row in rows(.renewalsDue) {
      number += row.integer("number")
      if let currency = row["currency"]?.text {
        amounts[currency, default: 0] += row.integer("amount_milliunits")
      }
    }
    let money = amounts.sorted { $0.key < $1.key }.map {
      ChartUnit.money(currency: $0.key).text($0.value)
    }
    var tile = Tile(
      label: "Renewals due", value: ChartUnit.count.text(number),
      note: (["next 7 days"] + money).joined(separator: ", "),
      href: OverviewQuestion.renewalsDue.href)
    // Due within 7 days of this time in earlier weeks, as known then.
    if let before = pastWeeks(.renewalsDueBefore, ["renewals_due"]) {
      let weeks = before.dropLast() + [number]
      tile.sparkline = Sparkline(weeks.map(Optional.some), name: "Renewals due within 7 days")
      tile.compare(
        Array(weeks), .count, "vs 7 days ago", more: Tone.good, less: Tone.warning)
    }
    return tile
  }

  /// A tile without history: earlier backlogs are not recorded.
  private func waiting(_ label: String, _ measures: String..., note: String, href: String) -> Tile {
    guard tables[.intake] != nil else { return empty(.intake, label) }
    let (number, oldest) = counted(measures)
    return Tile(
      label: label, value: ChartUnit.count.text(number),
      change: oldest.map { "oldest: \(Age.text(.milliseconds($0)))" },
      changeTone: oldest.map { $0 > 3_600_000 ? Tone.bad : Tone.quiet }, note: note, href: href)
  }

  /// Failures, each linked to the page where it can be fixed.
  private var failures: [Tile] {
    // Anyone can post to the endpoint, so refused posts are counted apart.
    let refused = counted(["notifications_refused"]).number
    let posts =
      refused > 0
      ? ", \(Count.text(Int(refused), "forged or malformed notification")) refused" : ""
    var notifications = flow(
      .intakeFailures, "Unprocessable notifications", "notifications_rejected",
      "notifications_unbelievable", note: "last 7 days" + posts)
    if refused > 0 { notifications.noteHref = AdminURL.rejected }
    var missed = flow(
      .intakeFailures, "Missed notifications", "notifications_missed",
      href: items("notifications_missed"))
    if isHistoryUnknown, missed.value == "0" {
      missed = Tile(
        label: missed.label, value: "–", note: "never compared", href: AdminURL.health)
    }
    return [
      flow(
        .intakeFailures, "Rejected receipts", "submissions_rejected", href: AdminURL.rejected),
      notifications, missed,
      flow(
        .intakeFailures, "Failed requests to Apple", "apple_failures",
        href: items("apple_failures")),
    ]
  }

  /// The drill-down page of a measure.
  private func items(_ measure: String) -> String {
    let question = OverviewQuestion.intakeFailures
    var request = ReportRequest(question.report, query: nil, at: Timestamp(milliseconds: 0))
    request.choices = question.choices
    let cell = try? ReportCell(
      of: question.report, question.choices, column: "number", row: ["measure": measure])
    return cell.map(request.href) ?? question.href
  }

  // MARK: Attention

  /// Work that needs an administrator.
  func attention(with waiting: AccountStore.WaitingCounts?, faults: Int?, at now: Timestamp)
    -> [some Sendable]
  {
    let parked = counted(["jobs_parked", "deliveries_parked"])
    let rejected = counted(["submissions_rejected"])
    return [
      item(
        Int64(faults ?? 0), "fault found by the health checks", "faults found by the health checks",
        nil, AdminURL.health, Tone.bad),
      item(
        Int64(waiting?.unclaimed.count ?? 0), "unclaimed charge", "unclaimed charges",
        waiting?.unclaimed.since.map { (now - $0).inMilliseconds }, AdminURL.unclaimed, Tone.warning
      ),
      item(
        parked.number, "failed job or delivery", "failed jobs and deliveries", parked.oldest,
        AdminURL.parked, Tone.bad),
      item(
        rejected.number, "receipt rejected in the last 7 days",
        "receipts rejected in the last 7 days", nil, AdminURL.rejected, Tone.info),
    ].compactMap(\.self)
  }

  private func item(
    _ number: Int64, _ one: String, _ many: String, _ oldest: Int64?, _ href: String, _ tone: String
  ) -> (text: String, note: String?, href: String, tone: String)? {
    guard number > 0 else { return nil }
    return (
      Count.text(Int(number), one, many),
      oldest.map { "(oldest: \(Age.text(.milliseconds($0))))" }, href, tone
    )
  }

  private func counted(_ measures: [String]) -> (number: Int64, oldest: Int64?) {
    let counted = rows(.intake).filter { $0["measure"]?.text.map(measures.contains) ?? false }
    let ages = counted.compactMap { row -> Int64? in
      guard case .duration(let age)? = row["oldest_age_ms"] else { return nil }
      return age
    }
    return (counted.reduce(0) { $0 + $1.integer("number") }, ages.max())
  }
}

extension Tile {
  /// Sets the change between the last two weeks.
  fileprivate mutating func compare(
    _ weeks: [Int64], _ unit: ChartUnit, _ other: String, more: String, less: String
  ) {
    guard weeks.count > 1 else { return }
    let difference = weeks[weeks.count - 1] - weeks[weeks.count - 2]
    change =
      difference == 0
      ? "unchanged \(other)" : (difference > 0 ? "+" : "") + unit.text(difference) + " \(other)"
    if difference != 0 { changeTone = difference > 0 ? more : less }
  }
}

/// A small line chart without axes: x from 0 to 100, y in pixels.
struct Sparkline: Sendable {
  /// The text for screen readers.
  var description: String
  var line: String
  var area: String
  /// The y coordinate of the latest value, at the right edge.
  var lastY: String

  private static let height = 36
  private static let margin = 3

  /// Skips unknown values, and draws what is so far as a dot; nil with fewer than two known ones.
  init?(_ values: [Int64?], isSoFar: Bool = false, name: String, unit: ChartUnit = .count) {
    let known = values.enumerated().compactMap { index, value in value.map { (index, $0) } }
    guard let first = known.first, let last = known.last, known.count > 1 else { return nil }
    let (least, most) = (known.map(\.1).min() ?? 0, known.map(\.1).max() ?? 0)
    let room = Double(Self.height - 2 * Self.margin)
    let points = known.map { index, value in
      let span = Double(most) - Double(least)
      let share = span > 0 ? (Double(value) - Double(least)) / span : value == 0 ? 0 : 0.5
      return (
        x: Double(index) / Double(values.count - 1) * 100,
        y: Double(Self.margin) + room * (1 - share)
      )
    }
    let run = PathRun(points: isSoFar ? Array(points.dropLast()) : points)
    line = run.line
    area = run.area(from: Double(Self.height))
    lastY = Coordinate.text(points.last?.y ?? 0)
    description =
      "\(name): from \(unit.text(first.1)) to \(unit.text(last.1))\(isSoFar ? " so far" : ""), "
      + "between \(unit.text(least)) and \(unit.text(most))"
  }
}
