import HTTPTypes
import Hummingbird
import HummingbirdCore
import Mustache
import NIOCore

/// The templates of the administrator's pages.
struct PageTemplates: Sendable {
  /// Those that are built in, read once.
  static let builtIn = PageTemplates()

  private let library: MustacheLibrary

  /// Reads them all; tests see to it that each can be read.
  private init() {
    MustacheContentTypes.register(PageContentType(), named: "PAGE")
    var library = MustacheLibrary()
    for (name, bytes) in Self.files {
      do {
        try library.register(String(decoding: bytes, as: UTF8.self), named: name)
      } catch {
        preconditionFailure("The template \(name) can't be read: \(error)")
      }
    }
    self.library = library
  }

  /// Makes a page.
  ///
  /// - Parameters:
  ///   - page: What is in it: the structure that the template's name has.
  ///   - template: How it looks.
  /// - Returns: The page's HTML.
  func text(of page: some Sendable, _ template: PageTemplate) -> String {
    guard let text = library.render(page, withTemplate: template.rawValue) else {
      preconditionFailure("There is no template \(template.rawValue).")
    }
    return text
  }

  /// Answers with a page.
  func response(
    _ page: some Sendable, _ template: PageTemplate, status: HTTPResponse.Status = .ok
  ) -> Response {
    Response(
      status: status, headers: [.contentType: "text/html; charset=utf-8"],
      body: ResponseBody(byteBuffer: ByteBuffer(string: text(of: page, template))))
  }

  /// Every template, the parts of pages included.
  private static let files: [(name: String, bytes: [UInt8])] = [
    ("account", PackageResources.account_mustache),
    ("account-charge", PackageResources.account_charge_mustache),
    ("act-note", PackageResources.act_note_mustache),
    ("action", PackageResources.action_mustache),
    ("action-list", PackageResources.action_list_mustache),
    ("badge", PackageResources.badge_mustache),
    ("cell", PackageResources.cell_mustache),
    ("charge-section", PackageResources.charge_section_mustache),
    ("chart", PackageResources.chart_mustache),
    ("csrf", PackageResources.csrf_mustache),
    ("done", PackageResources.done_mustache),
    ("drill-down", PackageResources.drill_down_mustache),
    ("error", PackageResources.error_mustache),
    ("facts", PackageResources.facts_mustache),
    ("field", PackageResources.field_mustache),
    ("layout", PackageResources.layout_mustache),
    ("login", PackageResources.login_mustache),
    ("moment", PackageResources.moment_mustache),
    ("original-transaction", PackageResources.original_transaction_mustache),
    ("overview", PackageResources.overview_mustache),
    ("paging", PackageResources.paging_mustache),
    ("parked", PackageResources.parked_mustache),
    ("properties", PackageResources.properties_mustache),
    ("rejected", PackageResources.rejected_mustache),
    ("report", PackageResources.report_mustache),
    ("reports", PackageResources.reports_mustache),
    ("search", PackageResources.search_mustache),
    ("sparkline", PackageResources.sparkline_mustache),
    ("table", PackageResources.table_mustache),
    ("tile", PackageResources.tile_mustache),
    ("timeline", PackageResources.timeline_mustache),
    ("unclaimed", PackageResources.unclaimed_mustache),
    ("unclaimed-row", PackageResources.unclaimed_row_mustache),
  ]
}

/// Mustache's own escaping looks at whole characters, and so not at every quotation mark.
private struct PageContentType: MustacheContentType {
  func escapeText(_ text: String) -> String { PageText.escaped(text) }
}
