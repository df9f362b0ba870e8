import HTTPAPI
import HTTPTypes
import Hummingbird
import HummingbirdCore
import LedgerStorage
import Subscriptions

/// The page of failed jobs and webhook deliveries.
struct ParkedController: Sendable {
  let pages: PageRenderer
  let ledger: Ledger

  private static let jobs = "/admin/parked/jobs"
  private static let webhooks = "/admin/parked/webhooks"

  @Sendable
  func show(_ request: Request, context: APIContext) async throws -> Response {
    let now = pages.now()
    let jobPart = try PagePart(request.uri, of: AdminURL.parked, prefix: "jobs_")
    let (jobs, jobPaging) = jobPart.part(
      of: try await ledger.jobs.discardedJobs(
        after: try jobPart.after.map(Self.jobPlace), limit: jobPart.limit + 1)
    ) { "\($0.discardedAt?.milliseconds ?? 0).\($0.id)" }
    let eventPart = try PagePart(request.uri, of: AdminURL.parked, prefix: "webhooks_")
    let (deliveries, eventPaging) = eventPart.part(
      of: try await ledger.webhooks.parkedDeliveries(
        after: try eventPart.after.map(Self.eventPlace), limit: eventPart.limit + 1)
    ) { "\($0.position)" }
    return pages.response(
      ParkedPage(
        page: try await pages.frame("Failed jobs", at: AdminURL.parked, context),
        jobs: ActionList(
          id: "jobs", action: Self.jobs, rows: jobs.map { ActionRow($0, at: now) },
          paging: jobPaging, buttons: [ActionButton(label: "Retry", value: "retry")],
          emptyText: "No failed jobs."),
        webhooks: ActionList(
          id: "webhooks", action: Self.webhooks, rows: deliveries.map { ActionRow($0, at: now) },
          paging: eventPaging, buttons: [ActionButton(label: "Redeliver", value: "redeliver")],
          emptyText: "No failed deliveries.")),
      .parked)
  }

  @Sendable
  func retryJobs(_ request: Request, context: APIContext) async throws -> Response {
    let (ids, administrator) = try Self.chosen("retry", context)
    let count = try await ledger.jobs.restartJobs(
      .discardedNumbers(ids), by: administrator, at: pages.now())
    return Self.done("\(Count.text(count, "job")) will be retried.", count, request, context)
  }

  @Sendable
  func redeliver(_ request: Request, context: APIContext) async throws -> Response {
    let (ids, administrator) = try Self.chosen("redeliver", context)
    let count = try await ledger.webhooks.redeliverParked(ids, by: administrator, at: pages.now())
    return Self.done(
      "\(Count.text(count, "delivery", "deliveries")) will be retried.", count, request, context)
  }

  private static func done(
    _ message: String, _ count: Int, _ request: Request, _ context: APIContext
  ) -> Response {
    PageRenderer.done(
      Flash(message: message, tone: count > 0 ? Tone.good : Tone.warning), then: AdminURL.parked,
      request, context)
  }

  private static func chosen(_ action: String, _ context: APIContext) throws
    -> ([Int64], Administrator)
  {
    let ids = try context.admin.chosen(action).map { text in
      guard let id = Int64(text) else { throw Problem.invalid("item", "must be a number") }
      return id
    }
    return (ids, try context.actingAdministrator())
  }

  private static func jobPlace(_ text: String) throws -> (discardedAt: Timestamp, id: Int64) {
    let parts = text.split(separator: ".").compactMap { Int64($0) }
    guard parts.count == 2 else { throw PagePart.unknownPlace("jobs_") }
    return (Timestamp(milliseconds: parts[0]), parts[1])
  }

  private static func eventPlace(_ text: String) throws -> Int64 {
    guard let place = Int64(text) else { throw PagePart.unknownPlace("webhooks_") }
    return place
  }
}

extension AdminContext {
  private static let mostChosen = PagePart.most

  /// The rows selected for an action.
  ///
  /// - Throws: A ``Problem`` for another action or an empty selection.
  func chosen(_ action: String) throws -> [String] {
    guard form["do"] == ExactText(action) else {
      throw Problem.invalid("do", "must be \(action)")
    }
    let items = form.all("item").map(\.rawValue).filter { !$0.isEmpty }
    guard !items.isEmpty else { throw Problem.invalid("item", "is missing: select a row") }
    guard items.count <= Self.mostChosen else {
      throw Problem.invalid("item", "may occur at most \(Self.mostChosen) times")
    }
    return items
  }
}

extension APIContext {
  /// The logged-in administrator with the form's reason.
  ///
  /// - Throws: A ``Problem`` if the reason is missing.
  func actingAdministrator() throws -> Administrator {
    try administrator(reason: try admin.form.text(.reason))
  }
}

extension ActionRow {
  fileprivate init(_ job: StoredJob, at now: Timestamp) {
    let since = job.discardedAt ?? job.runAt
    self.init(
      value: "\(job.id)", kind: "Job \(job.kind)", subject: job.subject,
      fault: job.lastError ?? "No error message.", since: Moment(since),
      age: Age.text(now - since), attempts: Count.text(job.attempts, "attempt"), badges: [],
      links: [])
  }

  fileprivate init(_ delivery: ParkedDelivery, at now: Timestamp) {
    self.init(
      value: "\(delivery.eventID)", kind: delivery.type, subject: "Event \(delivery.eventID)",
      fault: delivery.reason, since: Moment(delivery.parkedAt),
      age: Age.text(now - delivery.parkedAt),
      attempts: Count.text(delivery.attempts, "attempt"), badges: [],
      links: delivery.accountID.map {
        [PageLink(label: "Account \($0)", href: AdminURL.account($0))]
      } ?? [])
  }
}

/// The context of the template `unclaimed`.
struct UnclaimedPage: Sendable {
  var page: PageFrame
  var charges: [UnclaimedRow]
  var paging: Paging?
  /// Charges whose period had ended when they were first recorded.
  var historical: [UnclaimedRow]
  var historicalPaging: Paging?
}

struct UnclaimedRow: Sendable {
  var transactionID: String
  var href: String
  var productID: String
  var chargedAt: Moment
  /// For example `6 days 3 h`.
  var age: String
  var price: String
  var because: String
  var isSandbox: Bool
  var transferHref: String
}

/// The context of the template `parked`.
struct ParkedPage: Sendable {
  var page: PageFrame
  var jobs: ActionList
  var webhooks: ActionList
}

/// The context of the template `rejected`.
struct RejectedPage: Sendable {
  var page: PageFrame
  var codes: DataTable
  var receipts: ActionList
}

/// A form with selectable rows and actions for them.
struct ActionList: Sendable {
  /// The HTML id: letters, digits and hyphens.
  var id: String
  /// The path the form is posted to, with a field `item` per selected row.
  var action: String
  var rows: [ActionRow]
  var paging: Paging?
  /// The default action first.
  var buttons: [ActionButton]
  var emptyText: String
}

struct ActionRow: Sendable {
  /// The value of the field `item`.
  var value: String
  /// For example `Job poll_line`.
  var kind: String
  var subject: String
  /// The stored error message.
  var fault: String
  var since: Moment
  /// For example `3 days 4 h`.
  var age: String
  var attempts: String
  var badges: [Badge]
  var links: [PageLink]
}

struct ActionButton: Sendable {
  var label: String
  /// The value of the field `do`.
  var value: String
  var isDanger = false
}
