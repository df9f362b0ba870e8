import Crypto
import Foundation
import LedgerStorage
import Postgres
import Subscriptions

/// The statements of a submission, batch by batch, as `LedgerStorage` sends them.
struct BaselineStatements: Sendable {
  let sample: SampleSubmission
  let exchangeAnswer: [UInt8]
  let now: Timestamp
  let submissionID = UUID()

  init(_ sample: SampleSubmission, answer: [UInt8], at now: Timestamp) {
    self.sample = sample
    exchangeAnswer = answer
    self.now = now
  }

  var environment: String { Environment.production.rawValue }
  var product: String { SampleAccounts.productID.rawValue }
  var line: String { sample.originalTransactionID }
  var transaction: String { sample.transactionID }
  var charge: SQL {
    """
    environment = \(environment) AND original_transaction_id = \(line)
      AND transaction_id = \(transaction) AND product_id = \(product)
    """
  }
  private var jobSubject: String { submissionID.uuidString.lowercased() }

  private static let transactionColumns = """
    number, recorded_at, kind, purchased_at, original_purchased_at, charged_at, expires_at,
    expires_as_of, revoked_at, revocation_at, revocation_reason, revocation_type,
    revocation_percentage, revocation_as_of, unsigned_revocation_at,
    unsigned_revocation_reason, unsigned_revocation_as_of, known_revocation_at,
    revocation_known_at, not_revoked_as_of, not_mentioned_as_of, upgraded_as_of,
    app_account_token, app_account_token_as_of, token_account_key, web_order_line_item_id,
    product_type, subscription_group, quantity, ownership_type, period_type, offer_id,
    price_milliunits, currency, is_commitment
    """
  private static let decisionColumns = """
    charge_original_transaction_id, charge_transaction_id, charge_product_id,
    owner_account_key, rule, reason, renewing_account_key, previous_original_transaction_id,
    previous_transaction_id, previous_product_id, status_as_of, switched_off_at,
    is_provisional, decided_at, corrected_at
    """
  private static let holdingColumns = """
    linked_to, product_type, period_type, starts_at, ends_at, revoked_at, superseded_at,
    auto_renews, phase, grace_ends_at
    """
  private static let replacedTransaction = replaced("\(transactionColumns), \(decisionColumns)")
  private static let replacedHolding = replaced(holdingColumns)

  /// The assignments of an upsert.
  private static func replaced(_ columns: String) -> String {
    columns.split { $0 == "," || $0.isWhitespace }.map { "\($0) = excluded.\($0)" }
      .joined(separator: ", ")
  }

  /// Stores the receipt, and the account if it is new.
  var store: [SQL] {
    let retryAt = now + .seconds(60)
    let bundleID: String? = nil
    let transactionID: String? = nil
    return [selectAccount] + (sample.orderID == nil ? insertAccount + [selectAccount] : []) + [
      """
      INSERT INTO tenure.submission (submission_id, account_key, received_at, transaction_id,
        order_id, restore, bundle_id, body_sha256, status, retry_at)
      VALUES (\(submissionID), \(sample.accountKey), \(now), \(transactionID),
        \(sample.orderID), \(false), \(bundleID), \(receiptDigest), 'pending', \(retryAt))
      """,
      store(Array(sample.receiptData.utf8), receiptDigest),
      """
      INSERT INTO tenure.job (kind, subject, queue, run_at, created_at)
      VALUES (\("verify_submission"), \(jobSubject), \("submissions"), \(retryAt), \(now))
      ON CONFLICT (kind, subject) DO NOTHING
      """,
    ]
  }

  private var receiptDigest: [UInt8] { Array(SHA256.hash(data: Array(sample.receiptData.utf8))) }

  private func store(_ body: [UInt8], _ digest: [UInt8]) -> SQL {
    let none: ([[UInt8]], [String]) = ([], [])
    return """
      SELECT tenure.store_body(\(digest), \(Int64(body.count)), \([0] + body), \(none.0),
        \(none.1), \(now))
      """
  }

  private var selectAccount: SQL {
    """
    SELECT account_key, app_account_token, created_at FROM tenure.account
    WHERE account_id = \(sample.accountID)
    """
  }

  private var insertAccount: [SQL] {
    let (key, token) = (sample.accountKey, sample.appAccountToken)
    return [
      """
      INSERT INTO tenure.account (account_id, account_key, app_account_token, created_at)
      VALUES (\(sample.accountID), \(key), \(token), \(now))
      ON CONFLICT (account_id) DO NOTHING
      RETURNING account_id
      """,
      """
      INSERT INTO tenure.account_by_key (account_key, account_id, app_account_token)
      VALUES (\(key), \(sample.accountID), \(token))
      """,
      """
      INSERT INTO tenure.account_by_token (app_account_token, account_key)
      VALUES (\(token), \(key))
      """,
    ]
  }

  /// Locks the submission and the original transaction, and reads what the decision needs.
  var load: [SQL] {
    [
      """
      SELECT status, retry_at, attempts FROM tenure.submission WHERE submission_id = \(submissionID)
      FOR UPDATE
      """,
      """
      SELECT coalesce(max(number), 0) FROM tenure.submission_exchange
      WHERE submission_id = \(submissionID)
      """,
      """
      INSERT INTO tenure.original_transaction (environment, original_transaction_id)
      VALUES (\(environment), \(line))
      ON CONFLICT (environment, original_transaction_id) DO NOTHING
      """,
      """
      SELECT head_number, head_hash, head_recorded_at, repeated
      FROM tenure.original_transaction
      WHERE environment = \(environment) AND original_transaction_id = \(line)
      FOR UPDATE
      """,
    ] + loadLine + loadOrder + loadAccount
  }

  private var loadLine: [SQL] {
    [
      select(
        "transaction_id, product_id, \(Self.transactionColumns)", from: "store_transaction"),
      select("\(Self.decisionColumns), order_id, delivered_at", from: "store_transaction"),
      select(
        """
        number, as_of, auto_renews, phase, grace_ends_at, auto_renew_product_id,
        expiration_intent, app_account_token, token_account_key, is_commitment
        """, from: "renewal_status"),
      select(
        "number, recorded_at, transaction_id, product_id, account_key, received_at",
        from: "claim"),
      select(
        "number, recorded_at, transaction_id, product_id, account_key, effective_from",
        from: "owner_override"),
      """
      SELECT linked_original_transaction_id FROM tenure.original_transaction_link
      WHERE environment = \(environment) AND original_transaction_id = \(line)
      """,
      """
      INSERT INTO tenure.transaction_lookup (transaction_id, environment, original_transaction_id)
      SELECT name, environment, original_transaction_id
      FROM unnest(\([transaction]), \([environment]), \([line]))
        AS occurrence (name, environment, original_transaction_id)
      ON CONFLICT (transaction_id, environment) DO NOTHING
      """,
      """
      INSERT INTO tenure.web_order_line_item (web_order_line_item_id, environment,
        original_transaction_id)
      SELECT name, environment, original_transaction_id
      FROM unnest(\([sample.webOrderLineItemID]), \([environment]), \([line]))
        AS occurrence (name, environment, original_transaction_id)
      ON CONFLICT (web_order_line_item_id, environment) DO NOTHING
      """,
      """
      SELECT transaction_id, environment, original_transaction_id FROM tenure.transaction_lookup
      WHERE transaction_id = ANY(\([transaction]))
      """,
      """
      SELECT web_order_line_item_id, environment, original_transaction_id
      FROM tenure.web_order_line_item
      WHERE web_order_line_item_id = ANY(\([sample.webOrderLineItemID]))
      """,
      """
      SELECT account_key, account_id, erased_at FROM tenure.account_by_key
      WHERE account_key = ANY(\([sample.accountKey]))
      """,
    ]
  }

  private func select(_ columns: String, from table: String) -> SQL {
    """
    SELECT \(unescaped: columns) FROM tenure.\(unescaped: table)
    WHERE environment = \(environment) AND original_transaction_id = \(line)
    ORDER BY number
    """
  }

  private var loadOrder: [SQL] {
    guard let order = sample.orderID else {
      return [
        """
        SELECT order_id, account_key, product_id, created_at, status FROM tenure.purchase_order
        WHERE account_key = \(sample.accountKey) AND product_id = ANY(\([product]))
          AND status = 'open'
        ORDER BY order_id
        FOR UPDATE
        """
      ]
    }
    return [
      """
      SELECT order_id, account_key, product_id, created_at, status FROM tenure.purchase_order
      WHERE account_key = \(sample.accountKey) AND order_id = \(order)
      FOR UPDATE
      """
    ]
  }

  /// Locks the account, and reads its holdings and published entitlements.
  private var loadAccount: [SQL] {
    [
      """
      SELECT account_id FROM tenure.account WHERE account_id = \(sample.accountID)
      FOR NO KEY UPDATE
      """,
      """
      SELECT a.account_id, a.published_at, t.entitlement, t.access_ends_at
      FROM tenure.account AS a LEFT JOIN tenure.published_entitlement AS t USING (account_id)
      WHERE a.account_id = ANY(\([sample.accountID]))
      """,
      """
      SELECT account_id, environment, original_transaction_id, transaction_id, product_id,
        \(unescaped: Self.holdingColumns)
      FROM tenure.holding WHERE account_id = ANY(\([sample.accountID]))
      """,
      """
      SELECT account_id, grant_id, entitlement, starts_at, ends_at, source, environment,
        original_transaction_id, revoked_at
      FROM tenure.account_grant WHERE account_id = ANY(\([sample.accountID]))
        AND submission_id IS DISTINCT FROM \(submissionID)
      """,
    ]
  }

  /// Reads the rest of the response.
  var answer: [SQL] {
    guard let order = sample.orderID else { return [] }
    return [
      """
      SELECT product_id, status, created_at, fulfilled_at, environment, transaction_id
      FROM tenure.purchase_order
      WHERE account_key = \(sample.accountKey) AND order_id = \(order)
      """,
      """
      SELECT account_id, app_account_token FROM tenure.account_by_key
      WHERE account_key = \(sample.accountKey)
      """,
    ]
  }
}

extension BaselineStatements {
  /// The kinds of the ledger entries of a first purchase.
  private static let entryKinds = ["transaction", "renewal_status", "claim", "claimed"]
  /// The lengths of such entries' bodies.
  private static let bodyLengths = [520, 120, 240, 420]

  private var end: Timestamp { now + .days(30) }
  private var hash: [UInt8] { [UInt8](repeating: 7, count: 32) }

  /// Records the purchase and its consequences.
  var write: [SQL] {
    [insertEntries, updateLine, insertTransaction, noteCharge(1, isOrdered: false)]
      + insertProjections + insertLookups
      + [insertHolding, insertMovements] + fulfilOrder + publish + plan
      + finishSubmission
  }

  private var insertEntries: SQL {
    let count = Self.entryKinds.count
    let none: Timestamp? = nil
    let dates = [now, now, none, none]
    let source = submissionID.uuidString.lowercased()
    let bodies = Self.bodyLengths.map { "{" + String(repeating: "x", count: $0 - 2) + "}" }
    return """
      INSERT INTO tenure.ledger_entry (environment, original_transaction_id, number, recorded_at,
        kind, evidence_date, source, source_id, format, body, hash)
      SELECT \(environment), \(line), number, recorded_at, kind,
        evidence_date, source, source_id, format, body, hash
      FROM unnest(\(Array(1...count)), \(Array(repeating: now, count: count)),
        \(Self.entryKinds), \(dates), \(Array(repeating: "receipt", count: count)),
        \(Array(repeating: source, count: count)), \(Array(repeating: Int16(1), count: count)),
        \(bodies), \(Array(repeating: hash, count: count)))
        AS entry (number, recorded_at, kind, evidence_date, source, source_id, format, body, hash)
      """
  }

  private var updateLine: SQL {
    """
    UPDATE tenure.original_transaction SET
      head_number = \(Self.entryKinds.count), head_hash = \(hash),
      head_recorded_at = \(now),
      latest_charged_at = \(now), latest_owner_key = \(sample.accountKey),
      paid_through = \(end), auto_renew_product_id = \(product)
    WHERE environment = \(environment) AND original_transaction_id = \(line)
    """
  }

  private var insertTransaction: SQL {
    let (text, time, key, number): (String?, Timestamp?, UUID?, Int64?) = (nil, nil, nil, nil)
    return """
      INSERT INTO tenure.store_transaction (
        environment, original_transaction_id, transaction_id, product_id,
        \(unescaped: Self.transactionColumns), \(unescaped: Self.decisionColumns)
      ) VALUES (
        \(environment), \(line), \(transaction), \(product), \(1), \(now), \("unknown"), \(now),
        \(now), \(now), \(end), \(now), \(time), \(time), \(text), \(text), \(number),
        \(time), \(time), \(text), \(time), \(time), \(time), \(time), \(now), \(time), \(key),
        \(time), \(key),
        \(sample.webOrderLineItemID), \(text), \("20500001"), \(1), \("purchased"), \("normal"),
        \(text), \(number), \(text), \(false), \(line), \(transaction), \(product),
        \(sample.accountKey), \("submitter"), \("no_earlier_charge"), \(key), \(text), \(text),
        \(text), \(time), \(time), \(false), \(now), \(time)
      )
      ON CONFLICT (environment, original_transaction_id, transaction_id, product_id)
      DO UPDATE SET \(unescaped: Self.replacedTransaction)
      """
  }

  /// Adds to, or subtracts from, the counts that reports make of the charge.
  private func noteCharge(_ number: Int, isOrdered: Bool) -> SQL {
    """
    INSERT INTO tenure.charge_change (environment, original_transaction_id, product_id, number,
      rule, decided_at, charged_at, kind, ownership_type, is_owned, is_revoked, is_ordered,
      is_delivered)
    VALUES (\(environment), \(line), \(product), \(number), \("submitter"), \(now), \(now),
      \("unknown"), \("purchased"), \(true), \(false), \(isOrdered), \(false))
    """
  }

  private var insertProjections: [SQL] {
    let (time, key, number): (Timestamp?, UUID?, Int?) = (nil, nil, nil)
    return [
      """
      INSERT INTO tenure.renewal_status (environment, original_transaction_id, number, as_of,
        auto_renews, phase, grace_ends_at, auto_renew_product_id, expiration_intent,
        app_account_token, token_account_key, is_commitment)
      VALUES (\(environment), \(line), \(2), \(now), \(true), \("undisturbed"), \(time),
        \(product), \(number), \(key), \(key), \(false))
      """,
      """
      INSERT INTO tenure.claim (environment, original_transaction_id, number, recorded_at,
        transaction_id, product_id, account_key, received_at, submission_id)
      VALUES (\(environment), \(line), \(3), \(now), \(transaction), \(product),
        \(sample.accountKey), \(now), \(submissionID))
      """,
    ]
  }

  private var insertLookups: [SQL] {
    [
      """
      INSERT INTO tenure.account_original_transaction (account_key, environment, original_transaction_id)
      VALUES (\(sample.accountKey), \(environment), \(line))
      ON CONFLICT (account_key, environment, original_transaction_id) DO NOTHING
      """
    ]
  }

  private var insertHolding: SQL {
    let (text, time): (String?, Timestamp?) = (nil, nil)
    return """
      INSERT INTO tenure.holding (account_id, environment, original_transaction_id,
        transaction_id, product_id, \(unescaped: Self.holdingColumns))
      VALUES (\(sample.accountID), \(environment), \(line), \(transaction), \(product), \(text),
        \(text), \("normal"), \(now), \(end), \(time), \(time), \(true), \("undisturbed"), \(time))
      ON CONFLICT (account_id, environment, original_transaction_id, transaction_id, product_id)
      DO UPDATE SET \(unescaped: Self.replacedHolding)
      """
  }

  /// The movements of a first purchase: the charge, and its states and end as expected.
  private var insertMovements: SQL {
    let kinds = ["charged", "started", "ended", "state", "state", "state"]
    let causes = ["", "", "unknown", "active_renewing", "active_renewing", "expired"]
    let dates = [now, now, end, now, end, end]
    let origins: [Timestamp?] = [nil, now, now, nil, nil, nil]
    // The charge's ownership (not moved, not a renewal) and its end.
    let none = [String?](repeating: nil, count: kinds.count - 1)
    let rules = ["submitter"] + none
    let decisions = [Optional(now)] + none.map { _ in nil }
    let flags = [Optional(false)] + none.map { _ in nil }
    let expiries = [Optional(end)] + none.map { _ in nil }
    return """
      WITH change AS (
        INSERT INTO tenure.movement_change (environment, original_transaction_id)
        VALUES (\(environment), \(line))
        RETURNING change_id
      )
      INSERT INTO tenure.movement (environment, original_transaction_id, kind, at, transaction_id,
        charge_original_transaction_id, product_id, product_type, subscription_group, cause,
        origin_at, number, ownership_type, period_type, quantity, account_key, rule, decided_at,
        has_moved, is_renewal, expires_at, known_from, opened_by)
      SELECT \(environment), \(line), kind, at, \(transaction), \(line), \(product),
        \("auto_renewable"), \("bench"), cause, origin_at, number,
        \("purchased"), \("normal"), \(1), \(sample.accountKey), rule, decided_at, is_of_charge,
        is_of_charge, expires_at, \(now), change_id
      FROM change CROSS JOIN unnest(\(kinds), \(dates), \(causes), \(origins),
        \([1, 1, -1, 1, -1, 1]), \(rules), \(decisions), \(flags), \(expiries))
        AS new (kind, at, cause, origin_at, number, rule, decided_at, is_of_charge, expires_at)
      """
  }

  private var fulfilOrder: [SQL] {
    guard let order = sample.orderID else { return [] }
    return [
      """
      UPDATE tenure.purchase_order SET status = 'fulfilled', fulfilled_at = \(now),
        environment = \(environment), original_transaction_id = \(line),
        transaction_id = \(transaction)
      WHERE account_key = \(sample.accountKey) AND order_id = \(order)
      """,
      "UPDATE tenure.store_transaction SET order_id = \(order) WHERE \(charge)",
      noteCharge(-1, isOrdered: false), noteCharge(1, isOrdered: true),
      """
      DELETE FROM tenure.job WHERE kind = \("expire_order")
        AND subject = \(order.uuidString.lowercased())
      """,
    ]
  }

  /// The events of a first purchase, with their usual lengths.
  private var events: [(kind: String, length: Int)] {
    [("transaction.recorded", 250), ("transaction.claimed", 420), ("binding.opened", 800)]
      + (sample.orderID == nil ? [] : [("order.fulfilled", 310)])
      + [("entitlement.granted", 350)]
  }

  private var publish: [SQL] {
    let count = events.count
    let data = events.map { "{" + String(repeating: "x", count: $0.length - 2) + "}" }
    let kind = "publish_entitlements"
    return [
      """
      INSERT INTO tenure.event (type, occurred_at, account_key, data)
      SELECT type, occurred_at, account_key, data
      FROM unnest(\(events.map(\.kind)), \(Array(repeating: now, count: count)),
        \(Array(repeating: sample.accountKey, count: count)), \(data))
        WITH ORDINALITY AS event (type, occurred_at, account_key, data, number)
      ORDER BY number
      """,
      """
      UPDATE tenure.account AS a SET published_at = published.at
      FROM unnest(\([sample.accountID]), \([now])) AS published (account_id, at)
      WHERE a.account_id = published.account_id
      """,
      """
      INSERT INTO tenure.published_entitlement (account_id, entitlement, access_ends_at)
      SELECT account_id, entitlement, access_ends_at
      FROM unnest(\([sample.accountID]), \([SampleAccounts.entitlement]), \([end]))
        AS published (account_id, entitlement, access_ends_at)
      ON CONFLICT (account_id, entitlement)
      DO UPDATE SET access_ends_at = excluded.access_ends_at
      """,
      """
      INSERT INTO tenure.job (kind, subject, queue, priority, run_at, created_at)
      VALUES (\(kind), \(sample.accountKey.uuidString.lowercased()), \("clock"), \(0), \(end),
        \(now))
      ON CONFLICT (kind, subject) DO UPDATE SET run_at = excluded.run_at,
        priority = excluded.priority, generation = tenure.job.generation + 1, attempts = 0,
        discarded_at = NULL, last_error = NULL, created_at = excluded.created_at
      """,
    ]
  }

  /// Schedules the first poll of the original transaction and records what to ask with.
  private var plan: [SQL] {
    let (kind, notification): (String, String?) = ("poll_status", nil)
    return [
      """
      INSERT INTO tenure.job (kind, subject, queue, priority, run_at, created_at)
      VALUES (\(kind), \("\(environment)/\(line)"), \("polls"), \(1), \(end), \(now))
      ON CONFLICT (kind, subject) DO UPDATE SET run_at = excluded.run_at,
        priority = excluded.priority, generation = tenure.job.generation + 1, attempts = 0,
        discarded_at = NULL, last_error = NULL, created_at = excluded.created_at
      """,
      """
      INSERT INTO tenure.poll_target (environment, original_transaction_id, bundle_id,
        receipt_submission_id, receipt_notification_id)
      SELECT environment, original_transaction_id, \(SampleSubmission.bundleID), \(submissionID),
        \(notification)
      FROM unnest(\([environment]), \([line])) AS line (environment, original_transaction_id)
      ON CONFLICT (environment, original_transaction_id)
      DO UPDATE SET bundle_id = excluded.bundle_id,
        receipt_submission_id = excluded.receipt_submission_id,
        receipt_notification_id = excluded.receipt_notification_id
      """,
    ]
  }

  private var finishSubmission: [SQL] {
    let (text, time): (String?, Timestamp?) = (nil, nil)
    let key =
      #"{"line":{"environment":"production","originalTransactionID":"\#(line)"},"#
      + #""productID":"\#(product)","transactionID":"\#(transaction)"}"#
    let outcome = #"{"newlyOwned":[\#(key)],"selected":[\#(key)],"warnings":[]}"#
    let digest = Array(SHA256.hash(data: exchangeAnswer))
    return [
      store(exchangeAnswer, digest),
      """
      INSERT INTO tenure.submission_exchange (submission_id, number, endpoint, asked_at,
        duration_ms, http_status, body_sha256, fault)
      VALUES (\(submissionID), \(1), \("https://buy.itunes.apple.com/verifyReceipt"), \(now),
        \(Int64(0)), \(200), \(digest), \(text))
      """,
      """
      UPDATE tenure.submission SET status = 'verified', environment = \(environment),
        decided_at = \(now), retry_at = \(time), attempts = attempts + 1,
        problem = NULL, problem_detail = NULL, apple_status = NULL, outcome = \(outcome)
      WHERE submission_id = \(submissionID)
      """,
      """
      DELETE FROM tenure.job WHERE kind = \("verify_submission")
        AND subject = \(submissionID.uuidString.lowercased())
      """,
    ]
  }
}
