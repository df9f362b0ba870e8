import Foundation
import HTTPTypes
import Hummingbird
package import HummingbirdCore
import JSONText
package import LedgerStorage
import NIOCore
package import Subscriptions

/// Streams everything stored about an account, with submissions as sent and Apple's answers.
package struct AccountExport: Sendable {
  /// Rows read at a time.
  private static let page = 100

  private let account: Account
  private let erasedAt: Timestamp?
  private let exportedAt: Timestamp
  private let entitlements: [Entitlement]
  private let ledger: Ledger
  private let catalogue: Catalogue

  /// Prepares the export, and records it in the audit log.
  package init(
    of account: Account, by administrator: Administrator, from ledger: Ledger, terms: AccessTerms,
    at now: Timestamp
  ) async throws {
    self.account = account
    self.ledger = ledger
    catalogue = terms.catalogue
    exportedAt = now
    erasedAt = try await ledger.accounts.erasedAt(account.key)
    let held = try await ledger.holdings.holdings(of: account.id)
    entitlements = terms.entitlements(
      of: account.id, holding: held.holdings, granted: held.grants, at: now)
    try await ledger.administration.recordExport(of: account, by: administrator, at: now)
  }

  /// The document, sent while it is read.
  package var response: Response {
    Response(
      status: .ok, headers: [.contentType: "application/json"],
      body: ResponseBody { writer in
        try await write(to: &writer)
        try await writer.finish(nil)
      })
  }

  package func write(to take: @escaping @Sendable ([UInt8]) throws -> Void) async throws {
    var writer: any ResponseBodyWriter = PieceWriter(take: take)
    try await write(to: &writer)
  }

  @concurrent
  func write(to writer: inout any ResponseBodyWriter) async throws {
    let grants = try await ledger.grants.storedGrants(of: account.id)
    let consent = try await ledger.writeBacks.consumptionConsent(of: account)
    try await send(to: &writer) { json in
      json.write(json: "{")
      json.member("exported_at", exportedAt)
      json.object("account") { json in
        account.writeMembers(to: &json)
        json.member("erased_at", erasedAt)
      }
      json.member("entitlements", entitlements)
      json.member("grants", grants)
      json.member("consumption_consent", consent)
    }
    try await list("orders", to: &writer, after: \.order.id) { last in
      try await ledger.accounts.orders(of: account, after: last, limit: Self.page)
    } piece: {
      $0.answered(at: exportedAt)
    }
    try await writeCharges(to: &writer)
    try await list("submissions", to: &writer, after: \.self) { last in
      try await ledger.accounts.submissionIDs(of: account.key, after: last, limit: Self.page)
    } piece: {
      try await submission($0)
    }
    try await list("write_backs", to: &writer, after: \.id) { last in
      try await ledger.writeBacks.writeBacks(of: account.key, after: last, limit: Self.page)
    } piece: {
      $0.writeBack
    }
    try await list("events", to: &writer, after: \.position) { last in
      try await ledger.accounts.events(of: account.key, after: last, limit: Self.page)
    } piece: {
      JSONPiece(text: $0.text)
    }
    try await list("administrator_actions", to: &writer, after: \.id) { last in
      try await ledger.administration.administratorActions(
        on: account.key, namingOthers: false, before: last, limit: Self.page)
    } piece: {
      $0
    }
    try await send(to: &writer) { $0.write(json: "}") }
  }

  // MARK: Lists

  /// Writes a member whose list is read in pages.
  ///
  /// `page` reads the elements after the `cursor` of one, or from the beginning. An element without
  /// a `piece` is left out.
  @concurrent
  private func list<Element, Cursor, Piece: JSONWritable>(
    _ name: String, to writer: inout any ResponseBodyWriter, after cursor: KeyPath<Element, Cursor>,
    page: (Cursor?) async throws -> [Element], piece: (Element) async throws -> Piece?
  ) async throws {
    try await send(to: &writer) { $0.write(json: ",\"\(name)\":[") }
    var (last, isFirst): (Cursor?, Bool) = (nil, true)
    while true {
      let elements = try await page(last)
      for element in elements {
        guard let piece = try await piece(element) else { continue }
        try await send(to: &writer) { json in
          if !isFirst { json.write(json: ",") }
          piece.write(to: &json)
        }
        isFirst = false
      }
      guard elements.count == Self.page, let end = elements.last else { break }
      last = end[keyPath: cursor]
    }
    try await send(to: &writer) { $0.write(json: "]") }
  }

  @concurrent
  private func writeCharges(to writer: inout any ResponseBodyWriter) async throws {
    try await send(to: &writer) { $0.write(json: ",\"lines\":[") }
    var isFirst = true
    for try await (line, original) in try await ledger.ownership.originals(of: account.key) {
      try await send(to: &writer) { json in
        if !isFirst { json.write(json: ",") }
        json.object { write(line, of: original, to: &$0) }
      }
      isFirst = false
    }
    try await send(to: &writer) { $0.write(json: "]") }
  }

  private func write(
    _ line: OriginalTransactionKey, of original: RecordedOriginalTransaction,
    to json: inout JSONWriter
  ) {
    json.member("environment", line.environment)
    json.member("original_transaction_id", line.originalTransactionID)
    json.objects("transactions", original.charges(of: account.key, in: catalogue)) { json, report in
      var report = report
      // Other accounts must not be named.
      report.because = Explanation(report.recorded.decision, for: account.key).sentence
      json.transactionMembers(report, in: catalogue)
      json.member("order_id", report.orderID)
      json.member("delivered_at", report.deliveredAt)
    }
    let claims = original.line.history.actions.compactMap { action in
      if case .claim(let claim) = action.action, claim.account == account.key {
        (claim: claim, recordedAt: action.recorded.at)
      } else {
        nil
      }
    }
    json.objects("claims", claims) { json, item in
      json.member("transaction_id", item.claim.transaction.transactionID)
      json.member("product_id", item.claim.transaction.productID)
      json.member("received_at", item.claim.receivedAt)
      json.member("recorded_at", item.recordedAt)
    }
  }

  private func submission(_ id: UUID) async throws -> JSONMembers? {
    guard let submission = try await ledger.submissions.submission(id) else { return nil }
    let (payload, remains) = try await ledger.submissions.storedPayload(of: id)
    let exchanges = try await ledger.submissions.exchanges(of: id)
    return JSONMembers { json in
      json.member("submission_id", submission.id)
      json.member("received_at", submission.receivedAt)
      json.member("status", submission.status.rawValue)
      json.member("environment", submission.environment)
      json.member("bundle_id", submission.bundleID)
      json.member("transaction_id", submission.transactionID)
      json.member("order_id", submission.orderID)
      json.member("restore", submission.isRestore)
      json.member("problem", submission.problem?.code)
      switch payload {
      case .receipt(let data): json.member("receipt_data", data)
      case .signedData(let transactions, let renewalInfo):
        json.member("signed_transactions", transactions)
        json.member("signed_renewal_info", renewalInfo)
      // It was pruned or erased.
      case nil: json.memberIfPresent("aged_out", remains)
      }
      json.member("exchanges", exchanges)
    }
  }

  @concurrent
  private func send(
    to writer: inout any ResponseBodyWriter, _ write: (inout JSONWriter) -> Void
  ) async throws {
    var json = JSONWriter(capacity: 4096)
    write(&json)
    try await writer.write(ByteBuffer(bytes: json.bytes))
  }
}

private struct PieceWriter: ResponseBodyWriter {
  let take: @Sendable ([UInt8]) throws -> Void

  func write(_ buffer: ByteBuffer) async throws { try take(Array(buffer.readableBytesView)) }

  consuming func finish(_ trailingHeaders: HTTPFields?) async throws {}
}

extension WriteBack: JSONObjectWritable {
  func writeMembers(to json: inout JSONWriter) {
    json.member("kind", kind.rawValue)
    json.member("sent_at", sentAt)
    json.member("environment", line.environment)
    json.member("original_transaction_id", line.originalTransactionID)
    json.member("transaction_id", request?.transactionID)
    json.member("outcome", outcome.name)
    switch outcome {
    case .accepted: break
    case .refused(_, let code): json.member("apple_error_code", code)
    case .skipped(let reason): json.member("reason", reason.rawValue)
    }
    json.member("delivery_status", deliveryStatus)
  }
}

/// Text that is JSON already.
private struct JSONPiece: JSONWritable {
  let text: String

  func write(to json: inout JSONWriter) { json.write(json: text) }
}
