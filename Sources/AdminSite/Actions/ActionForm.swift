import HTTPAPI
import HTTPTypes
import Hummingbird
import LedgerStorage
import Subscriptions

/// An administrator action on a subject: its form, and what happens when the form is sent.
protocol ActionController: Controller {
  associatedtype Subject: Sendable

  /// Finds the account, charge or grant that the path names.
  func subject(of request: Request, _ context: APIContext) async throws -> Subject

  func form(for subject: Subject) -> ActionForm

  /// Performs the action or asks for confirmation; the form shows the client's error that is thrown.
  func perform(_ sent: SentForm, on subject: Subject) async throws -> Response
}

extension Controller {
  var pages: PageRenderer { PageRenderer(ledger: ledger, now: api.now) }
}

extension ActionController {
  func addRoutes(to routes: some RouterMethods<APIContext>, at paths: String...) {
    for path in paths {
      routes
        .get(RouterPath(path)) { request, context in
          try await form(for: try await subject(of: request, context)).ask(pages, context)
        }
        .post(RouterPath(path), use: send)
    }
  }

  @Sendable
  private func send(_ request: Request, context: APIContext) async throws -> Response {
    let subject = try await subject(of: request, context)
    let form = form(for: subject)
    do {
      return try await perform(
        SentForm(form: form, pages: pages, request: request, context: context), on: subject)
    } catch {
      // What was entered stays; a fault of the server has its own page.
      let problem = ProblemReporting.problem(error, context)
      guard problem.status.kind == .clientError else { throw error }
      return try await form.ask(pages, context, fault: problem)
    }
  }
}

extension ActionController where Subject == Account {
  func subject(of request: Request, _ context: APIContext) async throws -> Account {
    try await account(of: request, context)
  }
}

/// A form for an administrator action: filled in first, then confirmed.
struct ActionForm: Sendable {
  var title: String
  /// The path the form is posted to.
  let action: String
  let lead: String
  var properties: [Property]
  /// The fields before the reason; none in the confirmation, where they are hidden.
  var fields: [FormField] = []
  /// Folded, unless one of them is used.
  var rareFields: [FormField] = []
  var rareTitle = ""
  var buttonLabel: String
  var isDanger = false
  /// The response is a file; the browser stays on the form.
  var isFile = false
  /// The page of the account or charge concerned.
  let subject: PageLink
  var hidden: [(name: String, value: String)] = []
  /// One sentence per change; empty before the confirmation.
  var consequences: [String] = []
  var warnings: [String] = []
  var fault: String?

  fileprivate static let reason = FormField(
    id: "reason", name: TextField.reason.name, label: "Reason", isText: true,
    maximumLength: Administrator.maximumReasonLength, isRequired: true,
    hint: "Saved in the audit log with your name.")

  fileprivate var allFields: [FormField] {
    fields + rareFields + [Self.reason]
  }

  /// Shows the fields, with the error if the form was sent before.
  func ask(
    _ pages: PageRenderer, _ context: APIContext, fault problem: Problem? = nil
  ) async throws -> Response {
    var form = self
    func shown(_ field: FormField) -> FormField {
      var field = field
      if problem != nil { field.value = context.admin.form[field.name]?.rawValue ?? "" }
      field.isChecked = field.isCheckbox && context.admin.form[field.name] != nil
      field.options = field.options.map { ($0.value, $0.label, $0.value == field.value) }
      if let problem, problem.field == field.name {
        field.fault = problem.detail(naming: field.label)
      }
      return field
    }
    form.fields = (fields + [Self.reason]).map(shown)
    form.rareFields = rareFields.map(shown)
    form.fault =
      (form.fields + form.rareFields).contains { $0.fault != nil }
      ? "Nothing was changed. Fix the highlighted field."
      : problem.map { "Nothing was changed. \($0.detail(naming: ""))" }
    return try await form.response(pages, context, status: problem?.status ?? .ok)
  }

  fileprivate func response(
    _ pages: PageRenderer, _ context: APIContext, status: HTTPResponse.Status = .ok
  ) async throws -> Response {
    var frame = try await pages.frame(title, context)
    frame.trail = [subject]
    return PageRenderer.response(
      (
        page: frame, form: self, hasRare: !rareFields.isEmpty,
        isRareOpen: rareFields.contains(where: \.isUsed)
      ), "action", status: status)
  }
}

/// A form that was sent.
struct SentForm: Sendable {
  let form: ActionForm
  let pages: PageRenderer
  let request: Request
  let context: APIContext

  var fields: EncodedFields { context.admin.form }
  /// Whether the administrator has confirmed the consequences.
  var isConfirmed: Bool { fields["confirmed"] == "yes" }

  /// Shows the consequences and asks for confirmation.
  func confirm(
    consequences: [String], warnings: [String], unseen: [(name: String, value: String)] = []
  ) async throws -> Response {
    var form = form
    form.hidden =
      unseen
      + form.allFields.compactMap { field in
        fields[field.name].map { (field.name, $0.rawValue) }
      } + [("confirmed", "yes")]
    (form.fields, form.rareFields) = ([], [])
    form.title = "Confirm: \(form.title.prefix(1).lowercased())\(form.title.dropFirst())"
    form.buttonLabel = "Confirm \(form.buttonLabel.lowercased())"
    if let reason = fields[TextField.reason.name] {
      form.properties.append(Property("Reason", reason.rawValue))
    }
    form.consequences = consequences
    form.warnings = warnings
    return try await form.response(pages, context)
  }

  /// Shows a message on the next page, when the response is not a page.
  func announce(_ message: String, with response: inout Response) {
    guard let session = context.admin.session else { return }
    response.setCookie(
      .flash(session.seal(Flash(message: message, tone: Tone.good)), on: request))
  }

  /// Redirects to a page that shows the result once.
  func done(_ message: String, link: PageLink? = nil, then path: String) -> Response {
    PageRenderer.done(
      Flash(message: message, tone: Tone.good, link: link), then: path, request, context)
  }
}

extension Problem {
  /// The detail with the field's label instead of its name.
  func detail(naming label: String) -> String {
    let text =
      field.map { label.isEmpty ? detail : detail.replacing("`\($0)`", with: label) } ?? detail
    return text.replacing("`", with: "")
  }
}

extension APIContext {
  /// The logged-in administrator with the form's reason; throws a ``Problem`` if it is missing.
  func actingAdministrator() throws -> Administrator {
    try administrator(reason: try admin.form.entered(.reason))
  }
}
