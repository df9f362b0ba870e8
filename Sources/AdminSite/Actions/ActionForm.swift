import HTTPAPI
import HTTPTypes
import Hummingbird
import LedgerStorage
import Subscriptions

/// A form that changes something, in two steps: it is filled in, and what it will do is confirmed.
struct ActionForm: Sendable {
  let title: String
  /// Where it goes.
  let action: String
  let lead: String
  let properties: [Property]
  var fields: [ActionField]
  let buttonLabel: String
  var isDanger = false
  /// What comes of it is a file, beside which the form stays.
  var isFile = false
  /// Where the page's subject is.
  let subject: PageLink

  /// Why something is done, in every form.
  static let reason = ActionField(
    id: "reason", name: TextField.reason.name, label: "Reason", isText: true,
    maximumLength: "\(Administrator.maximumReasonLength)",
    hint: "Recorded with your name, for whoever asks later.")

  /// Asks for the fields, again if something is wrong with what was sent.
  func ask(
    _ pages: PageMaker, _ context: APIContext, fault problem: Problem? = nil
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
        fault: isOfField ? "Nothing was done: look at what is marked below." : problem?.detail),
      .action, status: problem?.status ?? .ok)
  }

  /// Tells what it will do, and asks to confirm that.
  func confirm(
    _ pages: PageMaker, _ context: APIContext, consequences: [String], warnings: [String],
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

  /// Whether the second step was sent.
  static func isConfirmed(_ context: APIContext) -> Bool {
    context.admin.form["confirmed"] == "yes"
  }

  private func page(
    _ pages: PageMaker, _ context: APIContext, fields: [ActionField], hidden: [HiddenField],
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

/// The template `action`: a form that does something to an account or a charge, and its
/// confirmation.
///
/// First the fields are asked for; what they would do is then told, with the fields sent along
/// unseen, and only the second form does it.
struct ActionPage: Sendable {
  var page: PageFrame
  /// Where the form goes.
  var action: String
  /// What is about to happen, in a sentence or two.
  var lead: String
  /// What it happens to.
  var properties: [Property]
  var fields: [ActionField]
  var hidden: [HiddenField]
  /// What will change, one sentence each; empty: not asked yet.
  var consequences: [String]
  /// What speaks against it.
  var warnings: [String]
  var buttonLabel: String
  /// The button takes something away.
  var isDanger: Bool
  /// The answer is a file, and the page stays.
  var isFile: Bool
  /// Back, with nothing done.
  var cancelHref: String
  /// Why nothing was done.
  var fault: String?
}

/// A field of such a form; `isSelect`, `isText` and `isInput` say which kind, one of them.
struct ActionField: Sendable {
  /// In the page: letters, digits and hyphens.
  var id: String
  var name: String
  var label: String
  var isSelect = false
  /// Of several lines.
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
