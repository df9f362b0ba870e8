import Foundation
import HTTPAPI
import Hummingbird
import HummingbirdCore
import JSONText
import LedgerStorage
import Reports
import Subscriptions

/// The catalogue, and each product with its versions.
struct ProductPageController: Controller {
  let api: API

  fileprivate static let columns =
    ["Name", "Entitlements", "Price", "Period", "Type", "Group", "Level"]

  @Sendable
  func list(_ request: Request, context: APIContext) async throws -> Response {
    let (products, paging) = try PagePart(request.uri, of: AdminURL.products)
      .slice(of: catalogue.products) { $0.id.rawValue }
    var frame = try await pages.frame("Products", at: AdminURL.products, context)
    frame.actions = context.links([PageLink(label: "Add product…", href: AdminURL.productForm)])
    let values = products.map(Self.values)
    let shown = Self.columns.indices.filter { place in values.contains { $0[place] != "–" } }
    return PageRenderer.response(
      (
        page: frame, lead: "The products sold, and the entitlements that they grant.",
        properties: [Property](),
        tables: [
          DataTable(
            caption: "Catalogue",
            columns: (["Product"] + shown.map { Self.columns[$0] }).map { DataColumn(label: $0) },
            rows: zip(products, values).map { product, values in
              DataRow(
                cells: [
                  DataCell(
                    text: product.id.rawValue, href: AdminURL.product(product.id.rawValue),
                    isHeading: true, isCode: true)
                ] + shown.map { DataCell(text: values[$0]) })
            }, emptyText: "No products yet.")
        ], paging: paging
      ), "tables")
  }

  @Sendable
  func show(_ request: Request, context: APIContext) async throws -> Response {
    let product = try product(of: request)
    let versions = catalogue.allVersions.filter { $0.id == product.id }.reversed()
    var frame = try await pages.frame(product.id.rawValue, context)
    frame.trail = [PageLink(label: "Products", href: AdminURL.products)]
    frame.actions = context.links([
      PageLink(label: "Change…", href: AdminURL.product(product.id.rawValue, isForm: true))
    ])
    return PageRenderer.response(
      (
        page: frame,
        lead: "A charge has the period and price of the version at its date. The latest version's "
          + "entitlements count for all charges.",
        properties: zip(Self.columns, Self.values(of: product)).map { Property($0, $1) },
        tables: [
          DataTable(
            caption: "Versions",
            columns: (["Valid from"] + Self.columns).map { DataColumn(label: $0) },
            rows: versions.map { version in
              DataRow(
                cells: [DataCell(text: Moment(version.validFrom).text, isHeading: true)]
                  + Self.values(of: version).map { DataCell(text: $0) })
            }, emptyText: "")
        ], paging: nil as Paging?
      ), "tables")
  }

  /// The differences between two versions, one sentence each.
  static func changes(from old: Product, to new: Product) -> [String] {
    zip(columns, zip(values(of: old), values(of: new)))
      .filter { ExactText($0.1.0) != ExactText($0.1.1) }
      .map { "\($0): \($1.0) → \($1.1)." }
  }

  /// The texts of ``columns``.
  fileprivate static func values(of product: Product) -> [String] {
    [
      product.displayName, product.entitlements.map(\.rawValue).joined(separator: ", "),
      product.priceMilliunits.map { Price.text($0, currency: product.currency) },
      product.period?.words, product.type.label, product.subscriptionGroup,
      product.level.map(String.init),
    ].map { text in text.flatMap { $0.isEmpty ? nil : $0 } ?? "–" }
  }
}

/// The form that adds a product, or a version of one.
struct ProductFormController: ActionController {
  let api: API

  /// Nil for a new product.
  func subject(of request: Request, _ context: APIContext) async throws -> Product? {
    EncodedFields(query: request.uri)[TextField.productID.name] == nil
      ? nil : try product(of: request)
  }

  /// The period's choice that is followed by a field for any other.
  private static let otherPeriod = "other"
  private static let otherPeriodName = "other_period"
  private static let periods = ["P7D", "P1M", "P2M", "P3M", "P6M", "P1Y"]

  func perform(_ sent: SentForm, on old: Product?) async throws -> Response {
    var problems: [Problem] = []
    let id = try problems.note { try old?.id ?? newID(in: sent.fields) }
    let body = try Self.body(sent.fields, noting: &problems)
    let described = try ProductDescription(body)
      .product(id ?? ProductID(""), validFrom: now(), noting: &problems)
    try Self.check(body, noting: &problems)
    let administrator = try problems.note(sent.context.actingAdministrator)
    guard problems.isEmpty, let id, let product = described, let administrator else {
      let isOther = sent.fields["period"] == ExactText(Self.otherPeriod)
      throw Problems(all: problems.map { isOther ? Self.ofOtherPeriod($0) : $0 })
    }
    guard sent.isConfirmed else {
      let changes = old.map { ProductPageController.changes(from: $0, to: product) }
      if changes?.isEmpty == true {
        throw Problem(.invalidRequest, "The values are those of the current version.")
      }
      let values = zip(ProductPageController.columns, ProductPageController.values(of: product))
        .filter { $0.1 != "–" }.map { "\($0): \($1)." }
      return try await sent.confirm(
        consequences: changes
          ?? (["“\(id)” is added. Charges recorded before count immediately."] + values),
        warnings: warnings(from: old, to: product))
    }
    _ = try await api.catalogue.describe(product, by: administrator)
    return sent.done("“\(id)” was saved.", then: AdminURL.product(id.rawValue))
  }

  private func newID(in fields: EncodedFields) throws -> ProductID {
    let id = ProductID(try fields.entered(.productID))
    guard catalogue[id] == nil else {
      throw Problem.invalid(TextField.productID.name, "is in the catalogue already")
    }
    return id
  }

  /// Checks what programs may leave out, but people forget or mistype.
  private static func check(_ body: JSONValue, noting problems: inout [Problem]) throws {
    if body["type"]?.string == ProductType.autoRenewable.rawValue, body["period"] == nil {
      problems.append(.invalid("period", "is missing: an auto-renewable subscription has one"))
    }
    if body["period"] != nil,
      [ProductType.consumable, .nonConsumable].map(\.rawValue).contains(body["type"]?.string)
    {
      problems.append(.invalid("period", "must be None for a product that does not end"))
    }
    guard let currency = body["currency"]?.string else { return }
    guard Rate.currencies.contains(currency) else {
      problems.append(.invalid("currency", "must be an ISO 4217 code, such as EUR"))
      return
    }
    if let price = body["price_milliunits"]?.integer,
      ChartUnit.exact(price, currency: currency) != nil
    {
      let digits = ReportValue.fractionDigits(of: currency)
      problems.append(
        .invalid(
          "price_milliunits",
          digits == 0
            ? "must be a whole number in \(currency)"
            : "must have at most \(digits) decimals in \(currency)"))
    }
  }

  private static func ofOtherPeriod(_ problem: Problem) -> Problem {
    guard problem.field == "period" else { return problem }
    return Problem(
      problem.code, problem.detail.replacing("`period`", with: "`\(otherPeriodName)`"),
      field: otherPeriodName)
  }

  /// Entitlements that may be misspelt, and who loses what by another list of them.
  private func warnings(from old: Product?, to new: Product) -> [String] {
    let known = Set(catalogue.products.flatMap(\.entitlements))
    let unknown = new.entitlements.filter { !known.contains($0) }.map {
      "No product grants “\($0)” yet: check the spelling."
    }
    return unknown + losses(from: old, to: new)
  }

  private func losses(from old: Product?, to new: Product) -> [String] {
    guard let old, old.entitlements != new.entitlements else { return [] }
    let later = "The entitlements of earlier charges change too, within minutes."
    let lost = old.entitlements.filter { !new.entitlements.contains($0) }
    guard !lost.isEmpty else { return [later] }
    let names = lost.map { "“\($0)”" }.joined(separator: " and ")
    return [
      "Customers with “\(old.id)” lose \(names), unless another purchase or a grant provides it.",
      later,
    ]
  }

  /// The form as the body of `PUT /v1/products/{product_id}`, with the same names.
  private static func body(_ fields: EncodedFields, noting problems: inout [Problem]) throws
    -> JSONValue
  {
    func text(_ name: String) -> String? {
      let isOther = name == "period" && fields[name] == ExactText(otherPeriod)
      return fields[isOther ? otherPeriodName : name]?.rawValue
        .trimmingCharacters(in: .whitespacesAndNewlines)
    }
    let names = ["type", "subscription_group", "period", "currency", "display_name"]
    var members = names.compactMap { name in
      text(name).map {
        JSONValue.Member(key: name, value: .string(name == "currency" ? $0.uppercased() : $0))
      }
    }
    let entitlements = text("entitlements")?.split(whereSeparator: \.isNewline) ?? []
    members.append(
      .init(
        key: "entitlements",
        value: .array(
          entitlements.map { .string($0.trimmingCharacters(in: .whitespaces)) })))
    if let level = text("level") {
      members.append(
        .init(key: "level", value: Int64(level).map(JSONValue.integer) ?? .string(level)))
    }
    if let price = text("price_milliunits"),
      let milliunits = try problems.note({ try milliunits(price) })
    {
      members.append(.init(key: "price_milliunits", value: .integer(milliunits)))
    }
    return .object(members)
  }

  private static func milliunits(_ price: String) throws -> Int64 {
    guard let parts = price.wholeMatch(of: /([0-9]{1,9})(?:\.([0-9]{1,3}))?/)?.output,
      let milliunits = Int64(
        parts.1 + (parts.2 ?? "").padding(toLength: 3, withPad: "0", startingAt: 0))
    else { throw Problem.invalid("price_milliunits", "must be an amount such as 9.99") }
    return milliunits
  }

  func form(for product: Product?) -> ActionForm {
    func input(
      _ field: TextField, _ label: String, _ value: String?, isRequired: Bool = false,
      isHalf: Bool = false, hint: String? = nil
    ) -> FormField {
      FormField(
        id: field.name.replacing("_", with: "-"), name: field.name, label: label, isInput: true,
        value: value ?? "", maximumLength: field.maximumLength, isRequired: isRequired,
        isHalf: isHalf, hint: hint)
    }
    let type = product?.type ?? .autoRenewable
    let text = product?.period?.description ?? ""
    let isUsual = text.isEmpty || Self.periods.contains(text)
    let period = (chosen: isUsual ? text : Self.otherPeriod, other: isUsual ? "" : text)
    let price = product?.priceMilliunits.map {
      "\(Decimal($0) / 1000)"
    }
    return ActionForm(
      title: product == nil ? "Add product" : "Change product",
      action: product.map { AdminURL.product($0.id.rawValue, isForm: true) }
        ?? AdminURL.productForm,
      lead:
        "Adds a version that is valid from now on. Earlier charges keep their period and price.",
      properties: product.map { [Property("Product", $0.id.rawValue, isCode: true)] } ?? [],
      fields: (product == nil
        ? [
          input(
            .productID, "Product ID", nil, isRequired: true, hint: "As in App Store Connect.")
        ] : []) + [
          input(.displayName, "Name", product?.displayName),
          FormField(
            id: "type", name: "type", label: "Type", isSelect: true, value: type.rawValue,
            options: ProductType.allCases.map { ($0.rawValue, $0.label, $0 == type) },
            isHalf: true),
          FormField(
            id: "period", name: "period", label: "Period", isSelect: true, value: period.chosen,
            options: [("", "None", period.chosen.isEmpty)]
              + Self.periods.map { text in
                (text, CalendarPeriod(iso8601: text)?.words ?? text, text == period.chosen)
              } + [(Self.otherPeriod, "Other", period.chosen == Self.otherPeriod)],
            isHalf: true),
          input(
            TextField(name: Self.otherPeriodName, maximumLength: 20), "Other period", period.other,
            hint: "Such as P10D, P2W or P1Y6M (ISO 8601)."),
          input(
            TextField(name: "price_milliunits", maximumLength: 13), "Price", price, isHalf: true,
            hint: "Such as 9.99."),
          input(
            TextField(name: "currency", maximumLength: 3), "Currency", product?.currency,
            isHalf: true, hint: "Such as USD (ISO 4217)."),
          FormField(
            id: "entitlements", name: TextField.entitlements.name, label: "Entitlements",
            isText: true,
            value: product?.entitlements.map(\.rawValue).joined(separator: "\n") ?? "",
            maximumLength: 25_600, hint: "One on each line."),
          input(
            .subscriptionGroup, "Subscription group", product?.subscriptionGroup, isHalf: true),
          input(
            TextField(name: "level", maximumLength: 5), "Level", product?.level.map(String.init),
            isHalf: true, hint: "The rank in the group; 1 is the highest."),
        ],
      buttonLabel: product == nil ? "Add product" : "Change product",
      subject: product.map {
        PageLink(label: $0.id.rawValue, href: AdminURL.product($0.id.rawValue))
      }
        ?? PageLink(label: "Products", href: AdminURL.products))
  }
}

extension Controller {
  /// The product in a page's query; throws a ``Problem`` for an unknown one.
  fileprivate func product(of request: Request) throws -> Product {
    let id = EncodedFields(query: request.uri)[TextField.productID.name]?.rawValue ?? ""
    guard let product = catalogue[ProductID(id)] else {
      throw Problem(.unknownProduct, "No product with this ID.")
    }
    return product
  }
}

extension APIContext {
  /// The links for administrators; none for support.
  fileprivate func links(_ links: [PageLink]) -> [PageLink] { caller?.role == .admin ? links : [] }
}

extension ProductType {
  /// For example `Non-consumable`.
  fileprivate var label: String {
    rawValue.prefix(1).uppercased() + rawValue.dropFirst().replacing("_", with: "-")
  }
}

extension CalendarPeriod {
  /// For example `1 year` or `3 months`.
  fileprivate var words: String {
    let isWeeks = days % 7 == 0
    return [
      (months / 12, "year"), (months % 12, "month"),
      isWeeks ? (days / 7, "week") : (days, "day"),
    ].filter { $0.0 > 0 }
      .map { Count.text($0.0, $0.1) }.joined(separator: " ")
  }
}
