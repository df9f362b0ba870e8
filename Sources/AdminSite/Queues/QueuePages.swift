import Foundation
import HTTPAPI
import HTTPTypes
import Hummingbird
import HummingbirdCore
import JSONText
import LedgerStorage
import Subscriptions

/// The pages of work that waits for an administrator: unclaimed charges, failed jobs and webhook
/// deliveries, and rejected submissions and notifications; and the webhook's page.
struct QueueController: Controller {
  let api: API
  let webhook: Installation.Webhook?

  private static let jobs = "/admin/parked/jobs"
  private static let failedDeliveries = "/admin/parked/webhooks"
  private static let rejectionsCountedFor: Duration = .days(30)

  // MARK: Unclaimed charges

  @Sendable
  func unclaimed(_ request: Request, context: APIContext) async throws -> Response {
    let now = pages.now()
    var lists: [(list: UnclaimedList, charges: [UnclaimedCharge], paging: Paging?)] = []
    for (list, prefix) in [
      (UnclaimedList.waiting, ""), (.ended, "ended_"), (.historical, "historical_"),
    ] {
      let part = try PagePart(request.uri, of: AdminURL.unclaimed, prefix: prefix)
      let last: UnclaimedCursor? = try part.cursor()
      let (charges, paging) = part.part(
        of: try await ledger.ownership.unclaimedCharges(
          list, after: last.map { ($0.expiresAt, $0.charge) }, limit: part.limit + 1, at: now)
      ) { UnclaimedCursor(expiresAt: $0.expiresAt, charge: $0.charge) }
      if !charges.isEmpty || paging != nil { lists.append((list, charges, paging)) }
    }
    let owners = try await LastOwners(of: lists.flatMap { $0.charges }, in: ledger)
    let frame = try await pages.frame("Unclaimed charges", at: AdminURL.unclaimed, context)
    let count = frame.waiting?.unclaimed.count ?? 0
    let since = frame.waiting?.unclaimed.since.map {
      ", \(count == 1 ? "" : "the oldest ")since \(Moment($0).text)"
    }
    return PageRenderer.response(
      (
        page: frame,
        waiting: PageRenderer.bounded(count).map {
          "\($0) paid \(count == 1 ? "charge gives" : "charges give") no account access\(since ?? "")."
        },
        lists: lists.map { list in
          (
            title: list.list.title, note: list.list.note,
            charges: list.charges.map { row($0, owners) }, paging: list.paging
          )
        }
      ), "unclaimed")
  }

  private func row(_ unclaimed: UnclaimedCharge, _ owners: LastOwners) -> some Sendable {
    let charge = unclaimed.charge
    let reason = Explanation(unclaimed.decision) { _ in "" }.sentence.withTimesForPeople
    let linked = unclaimed.decision.renewal.previous.flatMap { id in
      reason.linking(
        PageLink(label: id.transactionID.rawValue, href: id.href),
        in: "transaction \(id.transactionID.rawValue)")
    }
    let because: [TextPiece] = linked ?? [(reason, nil)]
    let now = pages.now()
    let paid = unclaimed.expiresAt.map { "\($0 > now ? "paid until" : "ended") \($0.dayName)" }
    return (
      transactionID: charge.transactionID.rawValue, href: charge.href,
      productID: charge.productID.rawValue, since: Moment(unclaimed.unclaimedSince).text,
      paid: paid ?? "bought \(unclaimed.chargedAt.dayName)",
      price: Price.text(unclaimed.amountMilliunits, currency: unclaimed.currency),
      because: because, lastOwner: owners.owner(of: unclaimed),
      isSandbox: charge.line.environment == .sandbox, transferHref: charge.href(form: "transfer")
    )
  }

  // MARK: Failed jobs and webhook deliveries

  @Sendable
  func parked(_ request: Request, context: APIContext) async throws -> Response {
    let jobPart = try PagePart(request.uri, of: AdminURL.parked, prefix: "jobs_")
    let lastJob: TimedCursor<Int64>? = try jobPart.cursor()
    let (jobs, jobPaging) = jobPart.part(
      of: try await ledger.jobs.discardedJobs(
        after: lastJob.map { ($0.at, $0.id) }, limit: jobPart.limit + 1)
    ) { TimedCursor(at: $0.discardedAt ?? $0.runAt, id: $0.id) }
    let names = try await ledger.ownership.accountIDs(of: Set(jobs.compactMap(\.account)))
    let eventPart = try PagePart(request.uri, of: AdminURL.parked, prefix: "webhooks_")
    let (deliveries, eventPaging) = eventPart.part(
      of: try await ledger.webhooks.parkedDeliveries(
        after: try eventPart.cursor(), limit: eventPart.limit + 1)
    ) { $0.position }
    return PageRenderer.response(
      (
        page: try await pages.frame("Failed jobs", at: AdminURL.parked, context),
        jobs: ActionList(
          id: "jobs", action: Self.jobs, rows: jobs.map { row($0, names) }, paging: jobPaging,
          buttonLabel: "Retry", buttonValue: "retry", emptyText: "No failed jobs."),
        webhooks: deliveries.isEmpty && eventPaging == nil
          ? nil
          : ActionList(
            id: "webhooks", action: Self.failedDeliveries, rows: deliveries.map(row),
            paging: eventPaging, buttonLabel: "Redeliver", buttonValue: "redeliver",
            emptyText: "No failed deliveries.")
      ), "parked")
  }

  @Sendable
  func retryJobs(_ request: Request, context: APIContext) async throws -> Response {
    guard let ids = try context.admin.chosenNumbers("retry") else {
      return nothingChosen(at: AdminURL.parked, request, context)
    }
    let count = try await ledger.jobs.restartJobs(
      .discarded(ids), by: try context.actingAdministrator(), at: now())
    return done(count, "job", will: "retried", at: AdminURL.parked, request, context)
  }

  @Sendable
  func redeliver(_ request: Request, context: APIContext) async throws -> Response {
    guard let ids = try context.admin.chosenNumbers("redeliver") else {
      return nothingChosen(at: AdminURL.parked, request, context)
    }
    let count = try await ledger.webhooks.redeliverParked(
      ids, by: try context.actingAdministrator(), at: now())
    return done(
      count, "delivery", "deliveries", will: "retried", at: AdminURL.parked, request, context)
  }

  // MARK: Webhook

  private static let outcomes = [("delivered", "Delivered"), ("failed", "Failed")]

  @Sendable
  func webhooks(_ request: Request, context: APIContext) async throws -> Response {
    let status = try await ledger.webhooks.webhookStatus()
    let fields = EncodedFields(query: request.uri)
    let (outcome, type) = (fields["outcome"]?.rawValue.nonEmpty, fields["type"]?.rawValue.nonEmpty)
    guard outcome.map({ Self.outcomes.map(\.0).contains($0) }) ?? true else {
      throw Problem.invalid("outcome", "must be delivered or failed")
    }
    let query = [("outcome", outcome), ("type", type)].compactMap { name, value in
      value.map { (name: name, value: $0) }
    }
    let part = try PagePart(request.uri, of: AdminURL.page(AdminURL.webhooks, query: query))
    let last: TimedCursor<Int64>? = try part.cursor()
    let (deliveries, paging) = part.part(
      of: try await ledger.webhooks.deliveries(
        hasFailed: outcome.map { $0 == "failed" }, type: type,
        before: last.map { ($0.at, $0.id) }, limit: part.limit + 1)
    ) { TimedCursor(at: $0.attempts[0].at, id: $0.attempts[0].eventID) }
    // One width for all, so that the columns behind it are straight.
    let digits = deliveries.map { "\($0.attempts[0].eventID)".count }.max() ?? 0
    func count(_ label: String, _ number: Int, href: String? = nil) -> Property {
      Property(label, ChartUnit.count.text(Int64(number)), href: href)
    }
    let isUnused = webhook == nil && deliveries.isEmpty && query.isEmpty && last == nil
    let receiver = Property(
      "Receiver", webhook?.origin ?? "not configured", isCode: webhook != nil,
      note: webhook == nil ? "set TENURE_WEBHOOK_URL" : "set by TENURE_WEBHOOK_URL")
    let counts = [
      count("Waiting now", status.waiting), count("Being retried now", status.failing),
      count("Failed now", status.parked, href: AdminURL.parked + "#webhooks"),
    ]
    let since = status.oldestDueSince.map { [Property("Waiting since", $0)] } ?? []
    let types = LedgerEvent.Kind.allCases.map(\.rawValue) + [WebhookAttempt.test]
    let filters: [FormField] = [
      .filter("outcome", "Outcome", Self.outcomes, chosen: outcome),
      .filter("type", "Event type", types.map { ($0, $0) }, chosen: type),
    ]
    return PageRenderer.response(
      (
        page: try await pages.frame("Webhooks", at: AdminURL.webhooks, context),
        isUnused: isUnused,
        properties: isUnused ? [] : [receiver] + counts + since,
        testAction: webhook.map { _ in AdminURL.webhooks + "/test" }, action: AdminURL.webhooks,
        fields: filters,
        deliveries: isUnused
          ? nil
          : ActionList(
            id: "deliveries", action: AdminURL.webhooks,
            rows: deliveries.map { row($0, digits: digits) },
            paging: paging,
            buttonLabel: "Redeliver", buttonValue: "redeliver",
            emptyText: query.isEmpty ? "No deliveries yet." : "No deliveries for these filters.")
      ), "webhooks")
  }

  @Sendable
  func redeliverAttempted(_ request: Request, context: APIContext) async throws -> Response {
    guard let ids = try context.admin.chosenNumbers("redeliver") else {
      return nothingChosen(at: AdminURL.webhooks, request, context)
    }
    let administrator = try context.actingAdministrator()
    var count = 0
    for id in Set(ids).sorted()
    where try await ledger.webhooks.redeliver(id, by: administrator, at: now()) == .scheduled {
      count += 1
    }
    return done(
      count, "event", will: "redelivered", at: AdminURL.webhooks, request, context)
  }

  @Sendable
  func sendTestEvent(_ request: Request, context: APIContext) async throws -> Response {
    guard let webhook else { throw Problem(.webhooksOff, "No webhook is configured.") }
    let event: JSONValue = [
      "id": "0", "type": .string(WebhookAttempt.test), "occurred_at": .string(now().description),
      "account_id": .null, "data": [:],
    ]
    let (at, start) = (now(), ContinuousClock.now)
    let failure = try await webhook.send(String(decoding: event.bytes, as: UTF8.self), at)
    try await ledger.webhooks.log(
      WebhookAttempt(eventID: 0, at: at, took: .now - start, failure: failure))
    return PageRenderer.done(
      Flash(
        message: failure.map { "The test event was not delivered. \($0)" }
          ?? "The test event was delivered.", tone: failure == nil ? Tone.good : Tone.bad),
      then: AdminURL.webhooks, request, context)
  }

  private func row(_ logged: LoggedDelivery, digits: Int) -> ActionList.Row {
    let attempt = logged.attempts[0]
    let number = "\(attempt.eventID)"
    let padding = String(repeating: "\u{A0}", count: digits - number.count)
    let isTest = attempt.eventID == 0
    let badge =
      attempt.failure == nil
      ? Badge(text: "Delivered", tone: Tone.good)
      : logged.retryAt == nil
        ? Badge(text: isTest ? "Not delivered" : "Failed", tone: Tone.bad)
        : Badge(text: "Retrying", tone: Tone.warning)
    var row = row(
      "\(attempt.eventID)", logged.type ?? (isTest ? WebhookAttempt.test : "Deleted event"),
      isTest ? "" : "Event\u{A0}\(padding)\(number)", fault: attempt.failure, since: attempt.at,
      attempts: logged.attempts.count, badges: [badge], account: logged.accountID)
    // What is no longer kept can't be sent again.
    if logged.body == nil { row.value = nil }
    row.payload = logged.body.map { (try? JSONValue(parsing: $0.utf8))?.indented() ?? $0 }
    row.fault = attempt.failure
    row.isShort = attempt.failure == nil
    row.attempts += ", \(attempt.took.inMilliseconds) ms"
    if row.isShort, let failure = logged.attempts.compactMap(\.failure).first {
      let status = failure.firstMatch(of: /HTTP \d+/).map { String($0.output) }
      row.attempts += ", after \(status ?? "a failure")"
    }
    if let retryAt = logged.retryAt { row.attempts += ", next attempt \(Moment(retryAt).text)" }
    if logged.attempts.count > 1 {
      row.log = logged.attempts.map { attempt in
        let outcome = attempt.failure ?? "Delivered."
        return "\(Moment(attempt.at).text), \(attempt.took.inMilliseconds) ms: \(outcome)"
      }.joined(separator: "\n")
    }
    return row
  }

  private func row(_ job: StoredJob, _ names: [AccountKey: String]) -> ActionList.Row {
    let kind = Job.Kind(rawValue: job.kind)
    let account = job.account.flatMap { names[$0] }
    var row = row(
      "\(job.id)", EnumText.label(job.kind, in: "cause"),
      account != nil || job.subject == "all" ? "" : job.subject, fault: job.lastError,
      since: job.discardedAt ?? job.runAt, attempts: job.attempts,
      badges: kind.map { [$0.effect] } ?? [], account: account)
    row.identifier = job.kind
    switch kind {
    case .verifySubmission, .expireOrder:
      row.link = PageLink(label: "Customer", href: AdminURL.search(job.subject))
    case .pollStatus, .setAppAccountToken:
      row.link = OriginalTransactionKey(subject: job.subject).map {
        PageLink(label: "Original transaction", href: $0.href)
      }
    default: break
    }
    return row
  }

  private func row(_ delivery: ParkedDelivery) -> ActionList.Row {
    row(
      "\(delivery.eventID)", delivery.type, "Event \(delivery.eventID)", fault: delivery.reason,
      since: delivery.parkedAt, attempts: delivery.attempts, account: delivery.accountID)
  }

  private func row(
    _ value: String, _ kind: String, _ subject: String, fault: String?, since: Timestamp,
    attempts: Int, badges: [Badge] = [], account: String? = nil
  ) -> ActionList.Row {
    ActionList.Row(
      value: value, kind: kind, subject: subject, fault: fault ?? "No error message.",
      since: Moment(since), age: Age.text(pages.now() - since),
      attempts: Count.text(attempts, "attempt"), badges: badges,
      link: account.map { PageLink(label: "Account \($0)", href: AdminURL.account($0)) })
  }

  // MARK: Rejected receipts

  @Sendable
  func rejected(_ request: Request, context: APIContext) async throws -> Response {
    let part = try PagePart(request.uri, of: AdminURL.rejected)
    let last: TimedCursor<UUID>? = try part.cursor()
    let (submissions, paging) = part.part(
      of: try await ledger.submissions.rejectedSubmissions(
        before: last.map { ($0.at, $0.id) }, limit: part.limit + 1)
    ) { TimedCursor(at: $0.decidedAt ?? $0.receivedAt, id: $0.id) }
    let start = pages.now() - Self.rejectionsCountedFor
    let codes = DataTable(
      rejections: try await ledger.submissions.rejectionCounts(since: start),
      notifications: try await ledger.notifications.refusedNotifications(since: start))
    return PageRenderer.response(
      (
        page: try await pages.frame("Rejected receipts", at: AdminURL.rejected, context),
        codes: codes.rows.isEmpty ? nil : codes,
        receipts: ActionList(
          id: "receipts", action: AdminURL.rejected, rows: submissions.map(row), paging: paging,
          buttonLabel: "Verify again", buttonValue: "verify", emptyText: "No rejected receipts.")
      ), "rejected")
  }

  @Sendable
  func verify(_ request: Request, context: APIContext) async throws -> Response {
    let ids = try context.admin.chosen("verify").map { try UUID(parsing: $0, field: "item") }
    guard !ids.isEmpty else { return nothingChosen(at: AdminURL.rejected, request, context) }
    let count = try await ledger.submissions.verifyAgain(
      ids, by: try context.actingAdministrator(), at: now())
    return done(
      count, "submission", will: "verified again, and listed here again if rejected",
      at: AdminURL.rejected, request, context)
  }

  private func row(_ submission: Submission) -> ActionList.Row {
    let status = submission.problem?.appleStatus.map {
      Badge(text: "Apple \($0)", tone: Tone.quiet)
    }
    let id = submission.id.text
    return row(
      id, "Submission", id,
      fault: submission.problem?.detail,
      since: submission.decidedAt ?? submission.receivedAt, attempts: submission.attempts,
      badges: [status].compactMap(\.self),
      account: submission.accountID)
  }

  /// The list again, with what is missing.
  private func nothingChosen(at path: String, _ request: Request, _ context: APIContext)
    -> Response
  {
    PageRenderer.done(
      Flash(message: "Nothing was changed. Select at least one row first.", tone: Tone.warning),
      then: path, request, context)
  }

  private func done(
    _ count: Int, _ one: String, _ many: String? = nil, will outcome: String, at path: String,
    _ request: Request, _ context: APIContext
  ) -> Response {
    PageRenderer.done(
      Flash(
        message: "\(Count.text(count, one, many)) will be \(outcome).",
        tone: count == 0 ? Tone.warning : Tone.good), then: path, request, context)
  }
}

extension UnclaimedList {
  fileprivate var title: String {
    switch self {
    case .waiting: "Needs attention"
    case .ended: "Period ended since"
    case .historical: "Historical (already ended)"
    }
  }

  fileprivate var note: String {
    switch self {
    case .waiting:
      "The paid period that ends first is at the top; purchases without an end follow. Sandbox "
        + "charges are listed, but not counted."
    case .ended: "No access is left to give, but the payment needs an owner. Latest end first."
    case .historical: "Older charges from a first receipt, whose periods had already ended."
    }
  }
}

/// The position of an unclaimed charge in its list.
struct UnclaimedCursor: Codable, Sendable {
  var expiresAt: Timestamp?
  var charge: Charge.ID
}

extension StoredJob {
  /// The account whose key is the subject.
  fileprivate var account: AccountKey? {
    switch Job.Kind(rawValue: kind) {
    case .publishEntitlements, .mergeAccount:
      UUID(uuidString: subject).map(AccountKey.init(rawValue:))
    default: nil
    }
  }
}

extension Job.Kind {
  /// What waits until the job succeeds.
  fileprivate var effect: Badge {
    switch self {
    case .verifySubmission: Badge(text: "A customer may wait for access", tone: Tone.bad)
    case .processNotification, .pollStatus, .compareNotifications:
      Badge(text: "Renewals or refunds may be missing", tone: Tone.bad)
    case .publishEntitlements, .expireOrder, .deliverEvents:
      Badge(text: "Your server was not told", tone: Tone.warning)
    case .mergeAccount: Badge(text: "Charges have not all moved", tone: Tone.warning)
    case .setAppAccountToken, .sendConsumption:
      Badge(text: "Apple was not told", tone: Tone.warning)
    default:
      Badge(text: "Maintenance", tone: Tone.quiet)
    }
  }
}

/// The last owners of unclaimed charges, or else of their subscriptions.
private struct LastOwners: Sendable {
  private let originals: [OriginalTransactionKey: RecordedOriginalTransaction]
  private let names: [AccountKey: String]

  init(of charges: [UnclaimedCharge], in ledger: Ledger) async throws {
    originals = try await ledger.ownership.originals(
      of: Set(charges.filter { $0.lastOwner == nil }.map(\.charge.line)))
    names = try await ledger.ownership.accountIDs(of: Set(charges.compactMap(\.lastOwner)))
  }

  func owner(of unclaimed: UnclaimedCharge) -> PageLink? {
    if let owner = unclaimed.lastOwner { return .account(names[owner] ?? "erased") }
    guard let original = originals[unclaimed.charge.line] else { return nil }
    return original.lastOwner(before: unclaimed.charge).flatMap { original.names[$0] }
      .map(PageLink.account)
  }
}

extension RecordedOriginalTransaction {
  /// The owner of the latest charge before one that has an owner.
  func lastOwner(before charge: Charge.ID) -> AccountKey? {
    rule.position(of: charge).flatMap { position in
      rule.charges[..<position].reversed().lazy
        .compactMap { line.decisions[$0.id]?.decision.owner }.first
    }
  }
}

extension AdminContext {
  /// The rows selected for an action; throws a ``Problem`` for another one.
  fileprivate func chosen(_ action: String) throws -> [String] {
    guard form["do"] == ExactText(action) else {
      throw Problem.invalid("do", "must be \(action)")
    }
    let items = form.all("item").map(\.rawValue)
    guard items.count <= PagePart.most else {
      throw Problem.invalid("item", "may occur at most \(PagePart.most) times")
    }
    return items
  }

  /// Nil for an empty selection.
  fileprivate func chosenNumbers(_ action: String) throws -> [Int64]? {
    let numbers = try chosen(action).map { text in
      guard let id = Int64(text) else { throw Problem.invalid("item", "must be a number") }
      return id
    }
    return numbers.isEmpty ? nil : numbers
  }
}

extension DataTable {
  fileprivate init(rejections: [RejectionCount], notifications: [RefusedNotifications]) {
    let refusals = Dictionary(grouping: notifications, by: \.reason).map { reason, refused in
      (
        reason, count: refused.reduce(0) { $0 + $1.count },
        lastAt: refused.map(\.lastAt).reduce(refused[0].lastAt, max)
      )
    }
    self.init(
      caption: "Rejections in the last 30 days by cause",
      columns: [
        DataColumn(label: "Cause"), DataColumn(label: "Type"),
        DataColumn(label: "Count", isNumber: true), DataColumn(label: "Latest"),
      ],
      rows: rejections.map {
        Self.row("Submission", $0.code, status: $0.appleStatus, count: $0.count, lastAt: $0.lastAt)
      }
        + refusals.sorted { ($0.count, $0.0) > ($1.count, $1.0) }.map {
          Self.row("Forged or malformed notification", $0.0, count: $0.count, lastAt: $0.lastAt)
        },
      emptyText: "No rejections.")
  }

  private static func row(
    _ type: String, _ code: String, status: Int? = nil, count: Int, lastAt: Timestamp
  ) -> DataRow {
    let status = status.map { "Apple status \($0)" }
    // The page's title says as much as this code.
    let isAny = code == "receipt_rejected"
    let cause = isAny ? status ?? "Not a valid receipt" : EnumText.sentence(code)
    return DataRow(cells: [
      DataCell(
        text: cause, isHeading: true, note: isAny ? nil : status, identifier: code),
      DataCell(text: type),
      DataCell(text: ChartUnit.count.text(Int64(count)), isNumber: true),
      DataCell(text: Moment(lastAt).text),
    ])
  }
}

extension JSONValue {
  /// The text for people, with a line for each member and element.
  fileprivate func indented(_ margin: String = "") -> String {
    func lines(_ parts: [String], _ start: String, _ end: String) -> String {
      guard !parts.isEmpty else { return start + end }
      let inner = parts.map { "\n\(margin)  \($0)" }.joined(separator: ",")
      return "\(start)\(inner)\n\(margin)\(end)"
    }
    switch self {
    case .object(let members):
      return lines(
        members.map { member in
          let key = JSONValue.string(member.key.rawValue).indented()
          return "\(key): \(member.value.indented(margin + "  "))"
        }, "{", "}")
    case .array(let elements):
      return lines(elements.map { $0.indented(margin + "  ") }, "[", "]")
    case .string, .integer, .number, .bool, .null: return String(decoding: bytes, as: UTF8.self)
    }
  }
}

/// A form with selectable rows and an action for them.
struct ActionList: Sendable {
  /// The HTML id: letters, digits and hyphens.
  var id: String
  /// The path the form is posted to, with a field `item` per selected row.
  var action: String
  var rows: [Row]
  var paging: Paging?
  var buttonLabel: String
  /// The value of the field `do`.
  var buttonValue: String
  var emptyText: String
  /// Whether some rows can be selected, if there are any.
  let hasChoice: Bool

  init(
    id: String, action: String, rows: [Row], paging: Paging? = nil, buttonLabel: String,
    buttonValue: String, emptyText: String
  ) {
    (self.id, self.action, self.rows, self.paging) = (id, action, rows, paging)
    (self.buttonLabel, self.buttonValue) = (buttonLabel, buttonValue)
    self.emptyText = emptyText
    hasChoice = rows.isEmpty || rows.contains { $0.value != nil }
  }

  struct Row: Sendable {
    /// Nil for a row that can't be selected.
    var value: String?
    var kind: String
    /// What the kind stands for, shown in a tooltip.
    var identifier: String?
    var subject: String
    var fault: String?
    var since: Moment
    var age: String
    var attempts: String
    var badges: [Badge]
    /// Whether all of it stands on one line.
    var isShort = false
    var link: PageLink?
    /// All attempts, latest first, if there are several.
    var log: String?
    var payload: String?
  }
}
