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
