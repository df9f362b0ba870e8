import HTTPAPI
import HTTPTypes
import Hummingbird
import LedgerStorage
import Subscriptions

/// A form for an administrator action: filled in first, then confirmed.
struct ActionForm: Sendable {
  let title: String
  /// The path the form is posted to.
  let action: String
  let lead: String
  let properties: [Property]
  var fields: [ActionField]
  let buttonLabel: String
  var isDanger = false
  /// The response is a file; the browser stays on the form.
  var isFile = false
  /// The page of the account or charge concerned.
  let subject: PageLink

  static let reason = ActionField(
    id: "reason", name: TextField.reason.name, label: "Reason", isText: true,
    maximumLength: "\(Administrator.maximumReasonLength)",
    hint: "Saved in the audit log with your name.")

  /// Shows the fields, with the error if the form was sent before.
  func ask(
    _ pages: PageRenderer, _ context: APIContext, fault problem: Problem? = nil
  ) async throws -> Response {
    let fields = fields.map { field in
      var field = field
      field.value = context.admin.form[field.name]?.rawValue ?? field.value
      if let problem, problem.field == field.name { field.fault = problem.detail }
      return field
    }
    let isOfField = fields.contains { $0.fault != nil }
    return pages.response(
      try await page(
        pages, context, fields: fields, hidden: [], consequences: [], warnings: [],
        fault: isOfField ? "Nothing was changed. Fix the highlighted fields." : problem?.detail),
      .action, status: problem?.status ?? .ok)
  }

  /// Shows the consequences and asks for confirmation.
  func confirm(
    _ pages: PageRenderer, _ context: APIContext, consequences: [String], warnings: [String],
    unseen: [HiddenField] = []
  ) async throws -> Response {
    let hidden =
      unseen
      + fields.compactMap { field in
        context.admin.form[field.name].map { HiddenField(name: field.name, value: $0.rawValue) }
      }
    return pages.response(
      try await page(
        pages, context, fields: [], hidden: hidden + [HiddenField(name: "confirmed", value: "yes")],
        consequences: consequences, warnings: warnings, fault: nil),
      .action)
  }

  static func isConfirmed(_ context: APIContext) -> Bool {
    context.admin.form["confirmed"] == "yes"
  }

  private func page(
    _ pages: PageRenderer, _ context: APIContext, fields: [ActionField], hidden: [HiddenField],
    consequences: [String], warnings: [String], fault: String?
  ) async throws -> ActionPage {
    var frame = try await pages.frame(title, context)
    frame.trail = [subject]
    return ActionPage(
      page: frame, action: action, lead: lead, properties: properties, fields: fields,
      hidden: hidden, consequences: consequences, warnings: warnings, buttonLabel: buttonLabel,
      isDanger: isDanger, isFile: isFile, cancelHref: subject.href, fault: fault)
  }
}

/// The context of the template `action`.
///
/// The first form has fields; the confirmation has consequences, and the fields are hidden.
struct ActionPage: Sendable {
  var page: PageFrame
  var action: String
  var lead: String
  var properties: [Property]
  var fields: [ActionField]
  var hidden: [HiddenField]
  /// One sentence per change; empty before the confirmation.
  var consequences: [String]
  var warnings: [String]
  var buttonLabel: String
  var isDanger: Bool
  var isFile: Bool
  var cancelHref: String
  var fault: String?
}

/// A form field of one kind: exactly one of `isSelect`, `isText` and `isInput` is set.
struct ActionField: Sendable {
  /// The HTML id: letters, digits and hyphens.
  var id: String
  var name: String
  var label: String
  var isSelect = false
  /// Has several lines.
  var isText = false
  var isInput = false
  /// `text`, `date` or `datetime-local`.
  var type = "text"
  var value = ""
  var maximumLength = "255"
  var isRequired = true
  var options: [ReportOption] = []
  var hint: String?
  var fault: String?
}
