import HTTPAPI
import HummingbirdCore
import LedgerStorage
import Reports
import Subscriptions

/// The page of exchange rates and of Apple's commission.
struct RatesPageController: Controller {
  let api: API

  @Sendable
  func show(_ request: Request, context: APIContext) async throws -> Response {
    let rates = try await ledger.rates.rates()
    var frame = try await pages.frame("Rates", at: AdminURL.rates, context)
    frame.actions = RateKind.allCases.map {
      PageLink(label: "\($0.title)…", href: AdminURL.rate($0.rawValue))
    }
    return PageRenderer.response(
      (
        page: frame,
        tables: [
          DataTable(
            "Exchange rates", rates, kind: RateKind.exchange,
            emptyText: "No exchange rates. Reports show each currency by itself."),
          DataTable(
            "Apple's commission", rates, kind: .commission,
            emptyText: "No commission is set. Proceeds are calculated with 30%."),
        ]
      ), "rates")
  }
}

/// A kind of rate, by its form's name in the path.
enum RateKind: String, CaseIterable {
  case exchange
  case commission

  var title: String {
    switch self {
    case .exchange: "Set exchange rate"
    case .commission: "Set commission"
    }
  }

  fileprivate func includes(_ rate: Rate) -> Bool {
    switch rate.subject {
    case .exchange: self == .exchange
    case .commission: self == .commission
    }
  }
}

extension DataTable {
  fileprivate init(_ caption: String, _ rates: [Rate], kind: RateKind, emptyText: String) {
    self.init(
      caption: caption,
      columns: [
        DataColumn(label: kind == .exchange ? "Currency" : "Product"),
        DataColumn(label: kind == .exchange ? "Rate" : "Percent", isNumber: true),
        DataColumn(label: "Valid from"), DataColumn(label: ""),
      ],
      rows: rates.filter(kind.includes).map { rate in
        DataRow(cells: [
          DataCell(text: rate.label, isHeading: true), DataCell(text: rate.value, isNumber: true),
          DataCell(text: CalendarDate.name(rate.validFrom)),
          DataCell(text: "Remove…", href: AdminURL.removal(of: rate)),
        ])
      },
      emptyText: emptyText)
  }
}

/// The forms that set a rate.
struct RateFormController: ActionController {
  let api: API
  let kind: RateKind

  func subject(of request: Request, _ context: APIContext) -> RateKind { kind }

  func perform(_ sent: SentForm, on kind: RateKind) async throws -> Response {
    func text(_ field: RateFault.Field) -> String { sent.fields[field.rawValue]?.rawValue ?? "" }
    let product = text(.product)
    let rate: Rate
    do {
      rate = try Rate(
        kind == .exchange
          ? .exchange(
            currency: text(.currency), reportingCurrency: text(.reportingCurrency))
          : .commission(productID: product.isEmpty ? nil : product),
        text(.value), validFrom: text(.validFrom))
      try await ledger.rates.set(rate, by: try sent.context.actingAdministrator(), at: now())
    } catch let error as RateFault {
      throw Problem.invalid(error.field.rawValue, error.text)
    }
    return sent.done(
      "\(rate.sentenceStart) is \(rate.shownValue) from \(CalendarDate.name(rate.validFrom)) on.",
      then: AdminURL.rates)
  }

  func form(for kind: RateKind) -> ActionForm {
    let isExchange = kind == .exchange
    func field(_ field: RateFault.Field, _ label: String, type: String = "text", hint: String)
      -> FormField
    {
      FormField(
        id: field.rawValue.replacing("_", with: "-"), name: field.rawValue, label: label,
        isInput: true, type: type, maximumLength: 255, isRequired: true, hint: hint)
    }
    let fields =
      isExchange
      ? [
        field(.currency, "Currency", hint: "The currency to convert, such as USD."),
        field(.reportingCurrency, "Reporting currency", hint: "For example EUR."),
        field(
          .value, "Rate", hint: "The value of one unit in the reporting currency, such as 0.92."),
      ]
      : [
        FormField(
          id: "product-id", name: RateFault.Field.product.rawValue, label: "Product",
          isSelect: true, value: "",
          options: [("", "All products without a commission of their own", true)]
            + catalogue.products.map { ($0.id.rawValue, $0.id.rawValue, false) }),
        field(.value, "Percent", hint: "For example 15."),
      ]
    return ActionForm(
      title: kind.title, action: AdminURL.rate(kind.rawValue),
      lead: isExchange
        ? "Reports convert the amounts of a day with the latest rate that is valid on it."
        : "Proceeds are revenue less Apple's commission on the day of the charge.",
      properties: [],
      fields: fields + [
        field(.validFrom, "Valid from", type: "date", hint: "The first day on which it applies.")
      ],
      buttonLabel: "Set", subject: PageLink(label: "Rates", href: AdminURL.rates))
  }
}

/// The form that removes a rate.
struct RateRemovalController: ActionController {
  let api: API

  func subject(of request: Request, _ context: APIContext) async throws -> Rate {
    let fields = EncodedFields(query: request.uri)
    func text(_ field: RateFault.Field) -> String? { fields[field.rawValue]?.rawValue }
    let subject: Rate.Subject =
      if let currency = text(.currency), let reportingCurrency = text(.reportingCurrency) {
        .exchange(currency: currency, reportingCurrency: reportingCurrency)
      } else {
        .commission(productID: text(.product))
      }
    let rate = try await ledger.rates.rates().first {
      $0.subject == subject && $0.validFrom == text(.validFrom)
    }
    guard let rate else { throw Problem(.notFound, "There is no such rate.") }
    return rate
  }

  func perform(_ sent: SentForm, on rate: Rate) async throws -> Response {
    try await ledger.rates.remove(rate, by: try sent.context.actingAdministrator(), at: now())
    return sent.done(
      "\(rate.sentenceStart) from \(CalendarDate.name(rate.validFrom)) on was removed.",
      then: AdminURL.rates)
  }

  func form(for rate: Rate) -> ActionForm {
    let isExchange = RateKind.exchange.includes(rate)
    return ActionForm(
      title: isExchange ? "Remove exchange rate" : "Remove commission",
      action: AdminURL.removal(of: rate),
      lead: (isExchange
        ? "From that day on, the rate before it is valid again; without one, amounts are not converted."
        : "From that day on, the commission before it is valid again; without one, it is 30%.")
        + " Reports as known at an earlier time keep it.",
      properties: [
        Property(isExchange ? "Currency" : "Product", rate.label),
        Property(isExchange ? "Rate" : "Percent", rate.value),
        Property("Valid from", CalendarDate.name(rate.validFrom)),
      ],
      buttonLabel: "Remove", isDanger: true,
      subject: PageLink(label: "Rates", href: AdminURL.rates))
  }
}

extension Rate {
  fileprivate var sentenceStart: String {
    RateKind.exchange.includes(self)
      ? "The exchange rate of \(label)" : "Apple's commission on \(label)"
  }

  fileprivate var shownValue: String { value + (RateKind.commission.includes(self) ? "%" : "") }
}

extension AdminURL {
  fileprivate static func removal(of rate: Rate) -> String {
    let subject: [(RateFault.Field, String)] =
      switch rate.subject {
      case .exchange(let currency, let reportingCurrency):
        [(.currency, currency), (.reportingCurrency, reportingCurrency)]
      case .commission(let productID): productID.map { [(.product, $0)] } ?? []
      }
    return page(
      rateRemoval,
      query: (subject + [(.validFrom, rate.validFrom)]).map { ($0.rawValue, $1) })
  }
}
