import Foundation
import HTTPAPI
import HTTPTypes
import Hummingbird
import HummingbirdCore
import LedgerStorage
import Subscriptions

/// The page of rejected submissions and notifications.
struct RejectedController: Sendable {
  let pages: PageRenderer
  let ledger: Ledger

  private static let countedFor: Duration = .days(30)

  @Sendable
  func show(_ request: Request, context: APIContext) async throws -> Response {
    let now = pages.now()
    let part = try PagePart(request.uri, of: AdminURL.rejected)
    let (submissions, paging) = part.part(
      of: try await ledger.submissions.rejectedSubmissions(
        before: try part.after.map(Self.place), limit: part.limit + 1)
    ) { "\($0.decidedAt?.milliseconds ?? 0).\($0.id.uuidString.lowercased())" }
    let start = now - Self.countedFor
    return pages.response(
      RejectedPage(
        page: try await pages.frame("Rejected receipts", at: AdminURL.rejected, context),
        codes: DataTable(
          rejections: try await ledger.submissions.rejectionCounts(since: start),
          notifications: try await ledger.notifications.refusedNotifications(since: start)),
        receipts: ActionList(
          id: "receipts", action: AdminURL.rejected,
          rows: submissions.map { ActionRow($0, at: now) }, paging: paging,
          buttons: [ActionButton(label: "Verify again", value: "verify")],
          emptyText: "No rejected receipts.")),
      .rejected)
  }

  @Sendable
  func verify(_ request: Request, context: APIContext) async throws -> Response {
    let ids = try context.admin.chosen("verify").map { try UUID(parsing: $0, field: "item") }
    let count = try await ledger.submissions.verifyAgain(
      ids, by: try context.actingAdministrator(), at: pages.now())
    return PageRenderer.done(
      Flash(
        message: "\(Count.text(count, "submission")) will be verified again.",
        tone: count > 0 ? Tone.good : Tone.warning),
      then: AdminURL.rejected, request, context)
  }

  private static func place(_ text: String) throws -> (decidedAt: Timestamp, id: UUID) {
    let parts = text.split(separator: ".", maxSplits: 1)
    guard parts.count == 2, let milliseconds = Int64(parts[0]),
      let id = UUID(uuidString: String(parts[1]))
    else { throw PagePart.unknownPlace() }
    return (Timestamp(milliseconds: milliseconds), id)
  }
}

extension ActionRow {
  fileprivate init(_ submission: SubmissionSummary, at now: Timestamp) {
    let since = submission.decidedAt ?? submission.receivedAt
    var badges = [Badge(text: submission.problem?.code ?? "Rejected", tone: Tone.bad)]
    if let status = submission.problem?.appleStatus {
      badges.append(Badge(text: "Apple \(status)", tone: Tone.quiet))
    }
    self.init(
      value: submission.id.uuidString.lowercased(), kind: "Submission",
      subject: submission.id.uuidString.lowercased(),
      fault: submission.problem?.detail ?? "No error message.", since: Moment(since),
      age: Age.text(now - since), attempts: Count.text(submission.attempts, "attempt"),
      badges: badges,
      links: [
        PageLink(
          label: "Account \(submission.accountID)", href: AdminURL.account(submission.accountID))
      ])
  }
}

extension DataTable {
  fileprivate init(rejections: [RejectionCount], notifications: [RefusedNotifications]) {
    var refusals: [String: (count: Int, lastAt: Timestamp)] = [:]
    for refused in notifications {
      let known = refusals[refused.reason]
      refusals[refused.reason] = (
        (known?.count ?? 0) + refused.count, max(known?.lastAt ?? refused.lastAt, refused.lastAt)
      )
    }
    self.init(
      caption: "Rejections in the last 30 days by code",
      columns: [
        DataColumn(label: "Type"), DataColumn(label: "Code"), DataColumn(label: "Apple status"),
        DataColumn(label: "Count", isNumber: true), DataColumn(label: "Latest"),
      ],
      rows: rejections.map {
        Self.row(
          "Submission", $0.code, status: $0.appleStatus, count: $0.count, lastAt: $0.lastAt)
      }
        + refusals.sorted { ($0.value.count, $0.key) > ($1.value.count, $1.key) }.map {
          Self.row("Notification", $0.key, count: $0.value.count, lastAt: $0.value.lastAt)
        },
      emptyText: "No rejections.")
  }

  private static func row(
    _ what: String, _ code: String, status: Int? = nil, count: Int, lastAt: Timestamp
  ) -> DataRow {
    DataRow(cells: [
      DataCell(text: what), DataCell(text: code, isHeading: true, isCode: true),
      DataCell(text: status.map(String.init) ?? "–"),
      DataCell(text: ChartUnit.count.text(Int64(count)), isNumber: true),
      DataCell(text: Moment(lastAt).text),
    ])
  }
}
