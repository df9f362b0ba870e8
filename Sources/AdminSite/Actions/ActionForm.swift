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

  func form(for subject: Subject) async throws -> ActionForm

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
    let form = try await form(for: subject)
    do {
      return try await perform(
        SentForm(form: form, pages: pages, request: request, context: context), on: subject)
    } catch {
      // What was entered stays; a fault of the server has its own page.
      let problems = (error as? Problems)?.all ?? [ProblemReporting.problem(error, context)]
      guard problems.allSatisfy({ $0.status.kind == .clientError }) else { throw error }
      return try await form.ask(pages, context, faults: problems)
    }
  }
}

extension Controller {
  /// The account that a form names; throws a ``Problem`` for the field, with similar IDs.
  func account(in field: TextField, of fields: EncodedFields) async throws -> Account {
    let id = try fields.entered(field)
    let detail: String
    switch try await ledger.accounts.account(id) {
    case let account? where account.isErased:
      detail = "“\(id)” was erased. Enter another account of the customer."
    case let account? where account.mergedInto != nil:
      let heir = try await ledger.accounts.successor(of: account).id
      detail = "“\(id)” was merged into “\(heir)”: enter “\(heir)”."
    case let account?: return account
    case nil:
      let similar = try await ledger.accounts.accounts(named: id, limit: 3)
        .filter { !$0.isErased }.map { "“\($0.id)”" }
      detail =
        "No account with the ID “\(id)”. "
        + (similar.isEmpty
          ? "Search for the customer above: the app may use another ID."
          : "Did you mean \(similar.joined(separator: " or "))?")
    }
    throw Problem(.invalidRequest, detail, field: field.name)
  }

  /// An account that gets charges, for example `“hans” (Hans Rossi), who has no active entitlement`.
  func inWords(_ account: Account) async throws -> String {
    let active = try await entitlements.entitlements(of: account.id, now: now())
      .filter(\.isActive).map(\.name)
    let names = account.names.isEmpty ? "" : " (\(account.names.joined(separator: ", ")))"
    return "“\(account.id)”\(names), who has "
      + (active.isEmpty ? "no active entitlement" : active.joined(separator: " and "))
  }
}

extension ActionController where Subject == Account {
  func subject(of request: Request, _ context: APIContext) async throws -> Account {
    try await account(of: request, context)
  }
}

/// A note above a form, with the form of an action that may be meant instead.
typealias FormAdvice = (text: String, link: PageLink?)

/// A form for an administrator action: filled in first, then confirmed.
struct ActionForm: Sendable {
  var title: String
  /// The path the form is posted to.
  let action: String
  var lead: String
  var properties: [Property]
  /// Not repeated in the confirmation.
  var advice: [FormAdvice] = []
  /// The fields before the reason; none in the confirmation, where they are hidden.
  var fields: [FormField] = []
  /// Folded, unless one of them is used.
  var rareFields: [FormField] = []
  var rareTitle = ""
  var buttonLabel: String
  var isDanger = false
  /// There is nothing left to do: the page has no form.
  var isOver = false
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
    hint: "Saved permanently in the audit log, with your name. Don't name customers.")

  fileprivate var allFields: [FormField] {
    fields + rareFields + [Self.reason]
  }

  /// Shows the fields, with the errors if the form was sent before.
  func ask(
    _ pages: PageRenderer, _ context: APIContext, faults problems: [Problem] = []
  ) async throws -> Response {
    var form = self
    func shown(_ field: FormField) -> FormField {
      var field = field
      if !problems.isEmpty { field.value = context.admin.form[field.name]?.rawValue ?? "" }
      field.isChecked = field.isCheckbox && context.admin.form[field.name] != nil
      field.options = field.options.map { ($0.value, $0.label, $0.value == field.value) }
      return field
    }
    form.fields = (fields + [Self.reason]).map(shown).marked(with: problems, naming: allFields)
    form.rareFields = rareFields.map(shown).marked(with: problems, naming: allFields)
    let faults = (form.fields + form.rareFields).count { $0.fault != nil }
    form.fault =
      faults > 0
      ? "Nothing was changed. Fix the highlighted field\(faults > 1 ? "s" : "")."
      : problems.first.map { "Nothing was changed. \($0.detail(naming: allFields))" }
    return try await form.response(pages, context, status: problems.first?.status ?? .ok)
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
  ///
  /// - Parameter other: The title and the lead, if it is another action than the form's.
  func confirm(
    as other: (title: String, lead: String)? = nil, consequences: [String], warnings: [String],
    unseen: [(name: String, value: String)] = []
  ) async throws -> Response {
    var form = form
    form.hidden =
      unseen
      + form.allFields.compactMap { field in
        fields[field.name].map { (field.name, $0.rawValue) }
      } + [("confirmed", "yes")]
    (form.fields, form.rareFields) = ([], [])
    let title = other?.title ?? form.title
    form.lead = other?.lead ?? form.lead
    form.title = "Confirm: \(title.prefix(1).lowercased())\(title.dropFirst())"
    form.buttonLabel = title
    if let reason = fields[TextField.reason.name] {
      form.properties.append(Property("Reason", reason.rawValue))
    }
    (form.consequences, form.warnings, form.advice) = (consequences, warnings, [])
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

extension [FormField] {
  /// The fields with the problems' details at those that they are about.
  func marked(with problems: [Problem], naming all: [FormField]) -> [FormField] {
    map { field in
      var field = field
      field.fault = problems.first { $0.field == field.name }?.detail(naming: all)
      return field
    }
  }
}

extension Problem {
  /// The detail with the fields' labels instead of their names.
  func detail(naming fields: [FormField]) -> String {
    fields.reduce(detail) { $0.replacing("`\($1.name)`", with: $1.label) }
      .replacing("`", with: "")
  }
}

extension APIContext {
  /// The logged-in administrator with the form's reason; throws a ``Problem`` if it is missing.
  func actingAdministrator() throws -> Administrator {
    try administrator(reason: try admin.form.entered(.reason))
  }
}
