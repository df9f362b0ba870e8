import HTTPTypes
import Hummingbird
import HummingbirdCore
import LedgerStorage
import Subscriptions

/// Jobs and webhook deliveries that were given up, and what starts them again.
struct ParkedController: Sendable {
  let pages: PageMaker
  let ledger: Ledger

  private static let jobs = "/admin/parked/jobs"
  private static let webhooks = "/admin/parked/webhooks"

  @Sendable
  func show(_ request: Request, context: APIContext) async throws -> Response {
    let now = pages.now()
    let jobPart = try PagePart(request.uri, of: PageAddress.parked, prefix: "jobs_")
    let (jobs, jobPaging) = jobPart.part(
      of: try await ledger.discardedJobs(
        after: try jobPart.after.map(Self.jobPlace), limit: jobPart.limit + 1)
    ) { "\($0.discardedAt?.milliseconds ?? 0).\($0.id)" }
    let eventPart = try PagePart(request.uri, of: PageAddress.parked, prefix: "webhooks_")
    let (deliveries, eventPaging) = eventPart.part(
      of: try await ledger.parkedDeliveries(
        after: try eventPart.after.map(Self.eventPlace), limit: eventPart.limit + 1)
    ) { "\($0.position)" }
    return pages.response(
      ParkedPage(
        page: try await pages.frame("Parked", at: PageAddress.parked, context),
        jobs: ActionList(
          id: "jobs", action: Self.jobs, rows: jobs.map { ActionRow($0, at: now) },
          paging: jobPaging, buttons: [ActionButton(label: "Retry", value: "retry")],
          emptyText: "No job was given up."),
        webhooks: ActionList(
          id: "webhooks", action: Self.webhooks, rows: deliveries.map { ActionRow($0, at: now) },
          paging: eventPaging, buttons: [ActionButton(label: "Redeliver", value: "redeliver")],
          emptyText: "No delivery was given up.")),
      .parked)
  }

  @Sendable
  func retryJobs(_ request: Request, context: APIContext) async throws -> Response {
    let (ids, administrator) = try Self.chosen("retry", context)
    let count = try await ledger.restartJobs(
      .discardedNumbers(ids), by: administrator, at: pages.now())
    return Self.done("\(Count.text(count, "job")) started again.", count, request, context)
  }

  @Sendable
  func redeliver(_ request: Request, context: APIContext) async throws -> Response {
    let (ids, administrator) = try Self.chosen("redeliver", context)
    let count = try await ledger.redeliverParked(ids, by: administrator, at: pages.now())
    return Self.done(
      "\(Count.text(count, "delivery", "deliveries")) will be made again.", count, request, context)
  }

  private static func done(
    _ message: String, _ count: Int, _ request: Request, _ context: APIContext
  ) -> Response {
    PageMaker.done(
      Flash(message: message, tone: count > 0 ? Tone.good : Tone.warning), then: PageAddress.parked,
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
  /// More rows than this are on no page.
  private static let mostChosen = PagePart.most

  /// The rows that were chosen for an action.
  ///
  /// - Throws: A ``Problem`` where it is another action, or nothing was chosen.
  func chosen(_ action: String) throws -> [String] {
    guard form["do"] == ExactText(action) else {
      throw Problem.invalid("do", "must be \(action)")
    }
    let items = form.all("item").map(\.rawValue).filter { !$0.isEmpty }
    guard !items.isEmpty else { throw Problem.invalid("item", "is missing: choose a row") }
    guard items.count <= Self.mostChosen else {
      throw Problem.invalid("item", "may be there \(Self.mostChosen) times")
    }
    return items
  }
}

extension APIContext {
  /// Who acts, and why, as the form says.
  ///
  /// - Throws: A ``Problem`` where no reason is given.
  func actingAdministrator() throws -> Administrator {
    try administrator(reason: try admin.form.text(.reason))
  }
}

extension ActionRow {
  fileprivate init(_ job: StoredJob, at now: Timestamp) {
    let since = job.discardedAt ?? job.runAt
    self.init(
      value: "\(job.id)", kind: "Job \(job.kind)", subject: job.subject,
      fault: job.lastError ?? "Nothing was said.", since: Moment(since),
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
        [PageLink(label: "Account \($0)", href: PageAddress.account($0))]
      } ?? [])
  }
}

/// The template `unclaimed`: recorded charges that no account owns.
struct UnclaimedPage: Sendable {
  var page: PageFrame
  var properties: [Property]
  /// Those that somebody may still be waiting for.
  var charges: [UnclaimedRow]
  var paging: Paging?
  /// Those whose period was over when they were first seen.
  var historical: [UnclaimedRow]
  var historicalPaging: Paging?
}

/// A charge that nobody owns.
struct UnclaimedRow: Sendable {
  var transactionID: String
  /// To the charge in its original transaction.
  var href: String
  var productID: String
  var chargedAt: Moment
  /// For example `6 d 3 h`.
  var age: String
  var price: String
  var because: String
  var isSandbox: Bool
  var transferHref: String
}

/// The template `parked`: jobs and webhooks that were given up.
struct ParkedPage: Sendable {
  var page: PageFrame
  var jobs: ActionList
  var webhooks: ActionList
}

/// The template `rejected`: receipts and notifications for which Apple does not vouch.
struct RejectedPage: Sendable {
  var page: PageFrame
  /// How many of each code in the past days.
  var codes: DataTable
  var receipts: ActionList
}

/// Things of which some can be chosen, and something done with them, for a reason.
struct ActionList: Sendable {
  /// In the page: letters, digits and hyphens.
  var id: String
  /// Where the form goes; each chosen row is a field `item`.
  var action: String
  var rows: [ActionRow]
  var paging: Paging?
  /// What can be done with the chosen ones; the first is the usual one.
  var buttons: [ActionButton]
  var emptyText: String
}

/// Something that waits for a decision.
struct ActionRow: Sendable {
  /// What the form sends, if it is chosen.
  var value: String
  /// For example `Job poll_line`.
  var kind: String
  var subject: String
  /// What went wrong, in the words that were kept.
  var fault: String
  var since: Moment
  /// For example `3 d 4 h`.
  var age: String
  var attempts: String
  var badges: [Badge]
  /// What else can be done about it.
  var links: [PageLink]
}

/// Something that can be done with chosen rows.
struct ActionButton: Sendable {
  var label: String
  /// The value of the field `do`.
  var value: String
  var isDanger = false
}
