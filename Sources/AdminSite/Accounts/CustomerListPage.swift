import Foundation
import HTTPAPI
import HTTPTypes
import Hummingbird
import HummingbirdCore
import JSONText
import LedgerStorage
import Reports
import Subscriptions

/// The customers with filters: a page, and a CSV file of all that match.
///
/// Accounts are read in batches, in an order that an index gives. Their entitlements are computed as
/// for the API: nothing is stored for the filters.
struct CustomerListController: Controller {
  let api: API

  struct Customer: Sendable {
    var account: Account
    var entitlements: [Entitlement]

    var name: String? {
      let names = account.names
      return names.isEmpty ? nil : names.joined(separator: " · ")
    }

    /// ``tags(_:)``, or one that there is none.
    func shownTags(_ ended: EntitlementCharges) -> [Tag] {
      let tags = tags(ended)
      return tags.isEmpty ? [("", .noEntitlement)] : tags
    }

    /// That the account is erased or merged, or each entitlement with its state.
    func tags(_ ended: EntitlementCharges) -> [Tag] {
      if let end { return [("", end)] }
      return entitlements.map { ($0.name, ended.badge(of: $0, from: account.key)) }
    }

    /// Nil for an account in use.
    fileprivate var end: Badge? {
      account.isErased ? .erased : account.mergedInto == nil ? nil : .merged
    }

    /// Those bought and those that give the entitlements.
    func productNames(_ spent: [AccountStore.SpentSum]) -> String {
      Set(entitlements.compactMap(\.productID?.rawValue) + spent.flatMap(\.products)).sorted()
        .joined(separator: ", ")
    }

    private var active: [Entitlement] { entitlements.filter(\.isActive) }
    fileprivate var isEndless: Bool { active.contains { $0.accessEndsAt == nil } }

    /// The last end of access, of the active entitlements if there are any.
    fileprivate var accessEnd: Timestamp? {
      (active.isEmpty ? entitlements : active).compactMap(\.accessEndsAt).max()
    }

    var access: String? {
      isEndless
        ? "access without end"
        : accessEnd.map { "access \(active.isEmpty ? "ended" : "until") \($0.dayName)" }
    }
  }

  private struct Filter: Sendable {
    private static let none = Badge.noEntitlement.text
    static let states =
      Entitlement.State.allCases.flatMap { state in
        Entitlement.EndReason.allCases.map { name(Badge(state, $0)) }
      }.withoutRepetition + [none, Badge.merged.text, Badge.erased.text]

    /// Only the charge tells whether it has another owner or none.
    private static func name(_ state: Badge) -> String {
      state.text == "Moved" ? "Moved or released" : state.text
    }

    var state: String?
    var product: ProductID?
    /// The first day on which the account was seen.
    var since: Timestamp?
    let order: AccountStore.Order
    let query: [(name: String, value: String)]

    init(_ fields: EncodedFields) throws {
      func value(_ name: String) -> String? {
        fields[name]?.rawValue.trimmingCharacters(in: .whitespaces).nonEmpty
      }
      state = value("state")
      guard state.map(Self.states.contains) ?? true else {
        throw Problem.invalid("state", "must be one of: \(Self.states.joined(separator: ", "))")
      }
      product = value("product_id").map { ProductID($0) }
      since = try value("since").map { day in
        guard let since = Timestamp(rfc3339: "\(day)T00:00:00Z") else {
          throw Problem.invalid("since", "must be a date such as 2026-12-31")
        }
        return since
      }
      guard
        let order = value("order").map(AccountStore.Order.init(rawValue:)) ?? .newest
      else {
        let orders = AccountStore.Order.allCases.map(\.rawValue)
        throw Problem.invalid("order", "must be one of \(orders.joined(separator: ", "))")
      }
      self.order = order
      query = ["state", "product_id", "since", "order"].compactMap { name in
        value(name).map { (name, $0) }
      }
    }

    func matches(_ customer: Customer) -> Bool {
      guard since.map({ $0 <= customer.account.createdAt }) ?? true else { return false }
      let held = customer.entitlements.filter { product == nil || $0.productID == product }
      let isOfProduct = product == nil || !held.isEmpty
      if let end = customer.end?.text {
        return isOfProduct && (state == end || state == nil && end == Badge.merged.text)
      }
      return switch state {
      case nil: isOfProduct
      case Self.none: held.isEmpty
      case let state: held.contains { Self.name(Badge($0)) == state }
      }
    }
  }

  private static let batch = 500
  /// Accounts read for one page at most, because few may match.
  private static let mostRead = 5000
  /// More are not counted, because each is read.
  private static let mostCounted = 100_000

  @Sendable
  func show(_ request: Request, context: APIContext) async throws -> Response {
    let fields = EncodedFields(query: request.uri)
    // A browser removes some IDs from paths.
    if fields["id"] != nil {
      return try await AccountPageController(api: api).show(request, context: context)
    }
    let filter = try Filter(fields)
    if fields["format"]?.rawValue == "csv" { return csv(filter) }
    let path = AdminURL.page(AdminURL.customers, query: filter.query)
    let part = try PagePart(request.uri, of: path)
    var (cursor, found, read): (TimedCursor<String>?, [Customer], Int) = (try part.cursor(), [], 0)
    var isAtEnd = false
    while !isAtEnd, found.count < part.limit, read < Self.mostRead {
      let batch = try await customers(filter, after: cursor, limit: Self.batch)
      isAtEnd = batch.count < Self.batch
      read += batch.count
      for customer in batch {
        guard found.count < part.limit else {
          isAtEnd = false
          break
        }
        cursor = Self.cursor(customer.account)
        if filter.matches(customer) { found.append(customer) }
      }
    }
    var frame = try await pages.frame("Customers", at: AdminURL.customers, context)
    frame.actions = [
      PageLink(
        label: "CSV",
        href: AdminURL.page(AdminURL.customers, query: filter.query + [("format", "csv")]))
    ]
    return PageRenderer.response(
      (
        page: frame, action: AdminURL.customers, fields: form(filter),
        total: try await total(filter),
        table: table(
          found, try await ledger.entitlementCharges(of: found),
          spent: try await ledger.accounts.spent(by: found.map(\.account), at: now()),
          emptyText: isAtEnd
            ? "No customers for these filters."
            : "None of these \(Count.text(read, "account")) match; the next page reads on."),
        paging: part.paging(shown: found.count, next: isAtEnd ? nil : cursor)
      ), "customers")
  }

  /// The number of customers that match, as far as they are counted.
  private func total(_ filter: Filter) async throws -> String {
    guard filter.state != nil || filter.product != nil else {
      let count = try await ledger.accounts.accountCount(
        since: filter.since, limit: Self.mostCounted + 1)
      return count > Self.mostCounted
        ? "More than \(Count.text(Self.mostCounted, "customer"))" : Count.text(count, "customer")
    }
    var (cursor, count): (TimedCursor<String>?, Int) = (nil, 0)
    for _ in 0..<(Self.mostRead / Self.batch) {
      let batch = try await customers(filter, after: cursor, limit: Self.batch)
      count += batch.count(where: filter.matches)
      guard batch.count == Self.batch, let last = batch.last else {
        return Count.text(count, "customer")
      }
      cursor = Self.cursor(last.account)
    }
    return
      "\(Count.text(count, "customer")) among the \(filter.order == .newest ? "latest" : "first") "
      + Count.text(Self.mostRead, "account")
  }

  /// The latest customers.
  func latest(_ count: Int) async throws -> [Customer] {
    let found = try await customers(nil, after: nil, limit: 4 * count)
    return Array(found.filter { !$0.account.isErased }.prefix(count))
  }

  private func customers(_ filter: Filter?, after cursor: TimedCursor<String>?, limit: Int)
    async throws -> [Customer]
  {
    let order = filter?.order ?? .newest
    // By ID, the index does not know the date: what is read has to stay bounded.
    let accounts = try await ledger.accounts.accounts(
      by: order, since: order == .id ? nil : filter?.since,
      after: cursor.map { ($0.at, $0.id) }, limit: limit)
    guard !accounts.isEmpty else { return [] }
    let held = try await entitlements.entitlements(of: accounts.map(\.id), now: now())
    return zip(accounts, held).map { Customer(account: $0, entitlements: $1) }
  }

  private static func cursor(_ account: Account) -> TimedCursor<String> {
    TimedCursor(at: account.createdAt, id: account.id)
  }

  // MARK: Page

  private func form(_ filter: Filter) -> [FormField] {
    [
      .filter(
        "state", "State", Filter.states.map { ($0, $0) }, chosen: filter.state),
      .filter(
        "product_id", "Product with entitlement",
        catalogue.products.filter { !$0.entitlements.isEmpty }.map {
          ($0.id.rawValue, $0.id.rawValue)
        },
        chosen: filter.product?.rawValue),
      FormField(
        id: "since", name: "since", label: "First seen since", isInput: true, type: "date",
        value: filter.since.map { String($0.description.prefix(10)) } ?? ""),
      FormField(
        id: "order", name: "order", label: "Order", isSelect: true,
        options: AccountStore.Order.allCases.map { ($0.rawValue, $0.label, $0 == filter.order) }),
    ]
  }

  private func table(
    _ customers: [Customer], _ ended: EntitlementCharges,
    spent: [AccountKey: [AccountStore.SpentSum]], emptyText: String
  ) -> DataTable {
    DataTable(
      caption: "Customers",
      columns: ["Account", "Entitlements", "Access until", "Spent", "Products", "First seen"].map {
        DataColumn(label: $0, isNumber: $0 == "Spent")
      },
      rows: customers.map { customer in
        let spent = spent[customer.account.key] ?? []
        return DataRow(cells: [
          DataCell(
            text: customer.account.id, href: AdminURL.account(customer.account.id),
            isHeading: true, isCode: true,
            note: customer.account.names.joined(separator: "\n").nonEmpty),
          DataCell(text: "", tags: customer.shownTags(ended)),
          customer.isEndless ? DataCell(text: "no end") : DataCell(customer.accessEnd),
          DataCell(text: Price.text(spent), isNumber: true),
          DataCell(text: customer.productNames(spent)),
          DataCell(customer.account.createdAt),
        ])
      },
      emptyText: emptyText,
      note: customers.isEmpty
        ? nil
        : "Spent: what was charged less what was refunded, in production. ≈: partly at the "
          + "catalogue's prices, because Apple gave none.")
  }

  // MARK: CSV

  private static let columns = [
    ReportColumn("account_id", .text), ReportColumn("label", .text), ReportColumn("email", .text),
    ReportColumn("entitlements", .text), ReportColumn("access_until", .time),
    ReportColumn("spent_milliunits", .money), ReportColumn("currency", .text),
    ReportColumn("spent_is_estimated", .flag), ReportColumn("spent_in_other_currencies", .text),
    ReportColumn("products", .text), ReportColumn("first_seen_at", .time),
  ]

  /// The columns of the page; the first currency by name has columns of its own.
  private func row(
    of customer: Customer, _ tags: [Tag], spent: [AccountStore.SpentSum]
  ) -> [ReportValue] {
    let (account, sum) = (customer.account, spent.first)
    return [
      .text(account.id), ReportValue(account.label), ReportValue(account.email),
      .text(
        tags.map { $0.label.isEmpty ? $0.state.text : "\($0.label): \($0.state.text)" }
          .joined(separator: ", ")),
      customer.isEndless ? .text("no end") : customer.accessEnd.map { .time($0) } ?? .none,
      sum.map { .money(milliunits: $0.milliunits, currency: $0.currency) } ?? .none,
      ReportValue(sum?.currency), sum.map { .flag($0.isEstimated) } ?? .none,
      .text(Price.text(Array(spent.dropFirst()))), .text(customer.productNames(spent)),
      .time(account.createdAt),
    ]
  }

  private func csv(_ filter: Filter) -> Response {
    Response(
      status: .ok,
      headers: [
        .contentType: "text/csv; charset=utf-8",
        .contentDisposition: "attachment; filename=\"customers.csv\"",
      ],
      body: ResponseBody { writer in
        try await write(filter, to: &writer)
        try await writer.finish(nil)
      })
  }

  @concurrent
  private func write(_ filter: Filter, to writer: inout any ResponseBodyWriter) async throws {
    try await writer.write(ByteBuffer(string: Self.columns.csvHead))
    var cursor: TimedCursor<String>?
    while true {
      let batch = try await customers(filter, after: cursor, limit: Self.batch)
      let found = batch.filter(filter.matches)
      let ended = try await ledger.entitlementCharges(of: found)
      let spent = try await ledger.accounts.spent(by: found.map(\.account), at: now())
      let lines = found.map {
        Self.columns.csv(row(of: $0, $0.tags(ended), spent: spent[$0.account.key] ?? []))
      }
      try await writer.write(ByteBuffer(string: lines.joined()))
      guard batch.count == Self.batch, let last = batch.last else { return }
      cursor = Self.cursor(last.account)
    }
  }
}

extension Badge {
  static let noEntitlement = Badge(text: "No entitlement", tone: Tone.quiet)
  static let erased = Badge(text: "Erased", tone: Tone.quiet)
  static let merged = Badge(text: "Merged", tone: Tone.quiet)
}

extension ReportValue {
  fileprivate init(_ text: String?) { self = text.map { .text($0) } ?? .none }
}

extension AccountStore.Order {
  fileprivate var label: String {
    switch self {
    case .newest: "Newest first"
    case .oldest: "Oldest first"
    case .id: "Account ID"
    }
  }
}

extension Account {
  /// The label and the email, without those that are the ID.
  var names: [String] { [label, email].compactMap(\.self).filter { $0 != id } }
}

extension Ledger {
  func entitlementCharges(of customers: [CustomerListController.Customer]) async throws
    -> EntitlementCharges
  {
    try await EntitlementCharges(
      of: customers.flatMap(\.entitlements).filter { $0.endedBecause == .moved }, in: self)
  }
}

extension DataCell {
  /// A day on one line, with its time in a tooltip.
  fileprivate init(_ moment: Timestamp?) {
    self.init(
      text: moment?.dayName.replacing(" ", with: "\u{A0}") ?? "",
      identifier: moment.map { Moment($0).text })
  }
}

extension String {
  var nonEmpty: String? { isEmpty ? nil : self }
}
