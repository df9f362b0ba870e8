import JSONText
import Postgres

/// A table of `tenure export`: the columns of its file, and the SQL of their values.
package struct ExportTable: Sendable {
  struct Field: Sendable, ExpressibleByStringLiteral {
    let name: String
    /// The column that sorts the rows, if the field is part of the key.
    let column: String
    let value: String
    /// Whether the value is an account's key, to be exported as the account's ID.
    let isAccount: Bool

    init(_ name: String, column: String? = nil, _ value: String, isAccount: Bool = false) {
      (self.name, self.column, self.value) = (name, column ?? name, value)
      self.isAccount = isAccount
    }

    /// A column exported under its own name.
    init(stringLiteral name: String) { self.init(name, "t.\(name)::text") }

    static func time(_ name: String, _ column: String? = nil) -> Field {
      Field(name, ExportTable.time(column ?? name))
    }

    static func account(_ name: String, _ key: String) -> Field {
      Field(name, column: key, "t.\(key)::text", isAccount: true)
    }
  }

  /// Rows that ``complete`` adds values of other tables to.
  struct Page: Sendable {
    let table: ExportTable
    var rows: [[String?]]

    subscript(row: Int, name: String) -> String? {
      get { rows[row][table.index(of: name)] }
      set { rows[row][table.index(of: name)] = newValue }
    }

    func values(_ name: String) -> [String] {
      let column = table.index(of: name)
      return rows.compactMap { $0[column] }
    }

    func place(ofRow row: Int) -> [String] { table.key.map { self[row, $0.name] ?? "" } }
  }

  let fields: [Field]
  private let source: String
  private let condition: String
  /// The fields of the primary key, with the types of their columns.
  fileprivate let key: [(name: String, type: String)]
  let required: Int?
  let complete: @Sendable (ExportStore, inout Page) async throws -> Void

  fileprivate init(
    _ source: String, where condition: String = "true", key: [(name: String, type: String)],
    requiring required: String? = nil, _ fields: [Field],
    complete: @escaping @Sendable (ExportStore, inout Page) async throws -> Void = { _, _ in }
  ) {
    (self.source, self.condition, self.key, self.fields) = (source, condition, key, fields)
    self.required = required.flatMap { name in fields.firstIndex { $0.name == name } }
    self.complete = complete
  }

  package var columns: [String] { fields.map(\.name) }

  fileprivate func index(of name: String) -> Int {
    guard let index = fields.firstIndex(where: { $0.name == name }) else {
      preconditionFailure("The export has no column \(name).")
    }
    return index
  }

  /// RFC 3339 in UTC with milliseconds.
  static func time(_ column: String) -> String {
    #"to_char(\#(column) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')"#
  }

  func select(after last: [String]?, limit: Int) -> SQL {
    let order = key.map { "t.\(fields[index(of: $0.name)].column)" }.joined(separator: ", ")
    let rest =
      last.map { last -> SQL in
        let values = zip(last, key).map { "\($0)::\(unescaped: $1.type)" as SQL }
        return "(\(unescaped: order)) > (\(values.joined()))"
      } ?? "true"
    return """
      SELECT \(unescaped: fields.map(\.value).joined(separator: ", "))
      FROM tenure.\(unescaped: source)
      WHERE \(unescaped: condition) AND \(rest)
      ORDER BY \(unescaped: order) LIMIT \(limit)
      """
  }
}

extension ExportTable {
  private static let line = [
    (name: "environment", type: "text"), ("original_transaction_id", "text"),
  ]

  /// The owner of the latest charge, or the imported one until Apple has returned a charge.
  private static let owner = Field(
    "account_id",
    """
    coalesce(t.latest_owner_key, CASE WHEN t.latest_charged_at IS NULL THEN (
      SELECT (array_agg(p.account_key ORDER BY p.number DESC))[1] FROM tenure.ownership_action AS p
      WHERE p.environment = t.environment
        AND p.original_transaction_id = t.original_transaction_id AND p.transaction_id IS NULL)
      END)::text
    """, isAccount: true)

  /// A column of a row that belongs to the original transaction.
  private static func ofLine(_ column: String, in table: String) -> Field {
    Field(
      column,
      """
      (SELECT o.\(column) FROM tenure.\(table) AS o WHERE o.environment = t.environment
        AND o.original_transaction_id = t.original_transaction_id)
      """)
  }

  /// The account of each original transaction, with the app and transaction of an import.
  package static let owners = ExportTable(
    "original_transaction AS t", key: line, requiring: "account_id",
    [
      "environment", "original_transaction_id", owner, ofLine("bundle_id", in: "poll_target"),
      ofLine("transaction_id", in: "imported_source"),
    ])

  /// Imports that Apple has not confirmed: when their poll was parked, and its last error.
  package static let unverified = ExportTable(
    "original_transaction AS t", where: "t.latest_charged_at IS NULL", key: line,
    requiring: "account_id",
    [
      "environment", "original_transaction_id", owner, Field("given_up_at", "NULL::text"),
      Field("reason", "NULL::text"),
    ]
  ) { try await $0.addPolls(to: &$1) }

  package static let charges = ExportTable(
    "store_transaction AS t", where: "t.rule IS NOT NULL",
    key: line + [("transaction_id", "text"), ("product_id", "text")],
    [
      "environment", "original_transaction_id", "transaction_id", "product_id",
      .time("purchased_at", "charged_at"), .time("expires_at"), .time("revoked_at"),
      .account("account_id", "owner_account_key"), "rule", "quantity", "ownership_type",
      "period_type", "price_milliunits", "currency", "order_id", .time("delivered_at"),
    ]
  ) { try await $0.addWhatAliasesFulfilled(to: &$1) }

  package static let orders = ExportTable(
    "purchase_order AS t", key: [("account_id", "uuid"), ("order_id", "uuid")],
    requiring: "account_id",
    [
      "order_id", .account("account_id", "account_key"), "product_id", "status",
      .time("created_at"), .time("fulfilled_at"), "environment", "original_transaction_id",
      "transaction_id", .account("opened_by", "opened_by_key"),
    ])

  package static let grants = ExportTable(
    "account_grant AS t", key: [("account_id", "text"), ("grant_id", "uuid")],
    [
      "grant_id", "account_id", "entitlement", "source", .time("starts_at"), .time("ends_at"),
      .time("revoked_at"), "reason", .time("recorded_at"), "submission_id", "environment",
      "original_transaction_id",
    ])

  /// Exchange rates; a correction is a separate row.
  package static let rates = ExportTable(
    "exchange_rate AS t",
    key: [
      ("reporting_currency", "text"), ("currency", "text"), ("valid_from", "date"),
      ("recorded_at", "timestamptz"),
    ],
    [
      "reporting_currency", "currency", Field("valid_from", "to_char(t.valid_from, 'YYYY-MM-DD')"),
      "rate", Field("recorded_at", time("t.recorded_at").replacing("SS.MS", with: "SS.US")),
    ])

  /// Apple's commission; a correction is a separate row.
  package static let commissions = ExportTable(
    "commission AS t",
    key: [("product_id", "text"), ("valid_from", "date"), ("recorded_at", "timestamptz")],
    [
      "product_id", Field("valid_from", "to_char(t.valid_from, 'YYYY-MM-DD')"), "percent",
      Field("recorded_at", time("t.recorded_at").replacing("SS.MS", with: "SS.US")),
    ])

  /// Accounts, including erased ones, which have a pseudonym.
  package static let accounts = ExportTable(
    """
    account_by_key AS t
      LEFT JOIN tenure.consumption_consent AS c ON c.account_key = t.account_key
    """,
    key: [("account_key", "uuid")],
    [
      "account_key", "account_id", "app_account_token", Field("created_at", "NULL::text"),
      .time("erased_at"), "merged_into_key", Field("consumption_consent", "c.is_given::text"),
      .time("consent_decided_at", "decided_at"),
    ]
  ) { try await $0.addCreationDates(to: &$1) }

  /// Submissions without their payloads, in about the order of arrival.
  package static let submissions = ExportTable(
    "submission AS t", key: [("submission_id", "uuid")], requiring: "account_id",
    [
      "submission_id", .account("account_id", "account_key"), .time("received_at"), "restore",
      "transaction_id", "order_id", "bundle_id", "status", "environment", .time("decided_at"),
      "problem",
    ])

  package static let notifications = notifications(bodyBytes: 8 << 20)

  /// Notifications with the bodies that were not pruned, and the lengths and hashes of all.
  ///
  /// - Parameter bodyBytes: The size of the bodies on a page at most, if it contains more than one.
  static func notifications(bodyBytes: Int) -> ExportTable {
    ExportTable(
      "notification AS t", key: [("notification_id", "text")],
      [
        "notification_id", "version", .time("received_at"), "arrival", .time("signed_at"),
        "notification_type", "subtype", "environment", "bundle_id", "original_transaction_id",
        "transaction_id", .time("processed_at"), "outcome", "problem",
        Field("aged_out_at", "NULL::text"), Field("bytes", "NULL::text"),
        Field("sha256", "encode(t.body_sha256, 'hex')"), Field("body", "NULL::text"),
      ]
    ) { try await $0.addBodies(to: &$1, bytes: bodyBytes) }
  }

  package static let writeBacks = ExportTable(
    "app_store_write_back AS t", key: line + [("write_back_id", "bigint")],
    [
      "environment", "original_transaction_id",
      Field("write_back_id", "t.write_back_id::text"), "kind",
      .time("sent_at"),
      "bundle_id", "transaction_id", "notification_id", .account("account_id", "account_key"),
      "outcome", "reason", "http_status", "error_code", "delivery_status",
    ])

  /// All entries; the number of each is that of its last item.
  package static let entries = ExportTable(
    "ledger_entry AS t", key: line + [("number", "integer")],
    [
      "environment", "original_transaction_id", "number", .time("recorded_at"), "source",
      "source_id", "format",
      Field("body", "translate(encode(t.body, 'base64'), E'\\n', '')"),
      Field("hash", "encode(t.hash, 'hex')"), .time("stored_at"),
    ]
  ) { _, page in
    for row in page.rows.indices {
      // A damaged body is evidence, too.
      page[row, "body"] = page[row, "body"].flatMap {
        Base64.decode(standard: Array($0.utf8))
      }
      .map(StoredEntry.text(ofStored:))
    }
  }

  /// The checkpoints over all hash chains that audits made.
  package static let checkpoints = ExportTable(
    "ledger_checkpoint AS t", key: [("number", "bigint")],
    [
      "number", .time("stored_before"), "chains", "entries",
      Field("heads", "encode(t.heads, 'hex')"), Field("previous", "encode(t.previous, 'hex')"),
      Field("digest", "encode(t.digest, 'hex')"),
    ])
}
