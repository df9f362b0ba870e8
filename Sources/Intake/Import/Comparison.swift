import Foundation
import LedgerStorage
package import Subscriptions

package struct PublishedAccess: Hashable, Sendable {
  package var accountID: String
  package var entitlement: String
  package var isActive: Bool
  package var until: End

  package enum End: Hashable, Sendable {
    /// Not stated in the file.
    case unsaid
    case never
    case at(Timestamp)

    package var moment: Timestamp? {
      if case .at(let moment) = self { moment } else { nil }
    }
  }

  package static let columns: [RowFile.Column] = [
    RowFile.Column("account_id", "account"),
    RowFile.Column("entitlement"),
    RowFile.Column("until", "expires_at", isNeeded: false, keepsEmpty: true),
    RowFile.Column("active", "is_active", isNeeded: false),
  ]

  /// Parses a row; without `active` one is active until its end, and an empty `until` is no end.
  package static func access(_ values: [String?], at now: Timestamp) -> Result<
    PublishedAccess, RowFault
  > {
    guard let account = values[0], let entitlement = values[1] else {
      let column = values[0] == nil ? "account_id" : "entitlement"
      return .failure(RowFault("missing_value", "\(column) is missing."))
    }
    let until: End
    switch values[2] {
    case nil: until = .unsaid
    case let text? where text.isEmpty: until = .never
    case let text?:
      guard let moment = Timestamp(rfc3339: text) else {
        return .failure(
          RowFault(
            "invalid_time",
            "until must be a time such as 2026-11-21T09:30:00Z, not “\(text.quotable)”."))
      }
      until = .at(moment)
    }
    let isActive: Bool
    switch values[3].map({ ExactText($0.lowercased()) }) {
    case nil: isActive = until.moment.map { $0 > now } ?? true
    case "true"?, "yes"?, "1"?, "t"?, "active"?: isActive = true
    case "false"?, "no"?, "0"?, "f"?, "inactive"?: isActive = false
    case let text?:
      return .failure(
        RowFault(
          "invalid_active", "active must be true or false, not “\(text.rawValue.quotable)”."))
    }
    return .success(
      PublishedAccess(
        accountID: account, entitlement: entitlement, isActive: isActive, until: until))
  }
}

package struct AccessDifference: Hashable, Sendable {
  package enum Kind: String, CaseIterable, Sendable {
    /// Active in the other backend only.
    case onlyThere = "only_there"
    /// Active in Tenure only.
    case onlyHere = "only_here"
    /// Active in both, with different ends.
    case otherEnd = "other_end"
  }

  package var kind: Kind
  package var accountID: String
  package var entitlement: String
  /// Nil if it is not active, has no end, or has an unknown end.
  package var untilThere: Timestamp?
  package var untilHere: Timestamp?
  /// The reason for Tenure's answer.
  package var explanation: String
}

package struct AccessComparison: Sendable {
  /// The maximum difference of two ends that match.
  package var tolerance: Duration
  package var now: Timestamp

  package init(tolerance: Duration, now: Timestamp) {
    self.tolerance = tolerance
    self.now = now
  }

  /// The differences of one account, ordered by entitlement.
  ///
  /// - Parameter reported: The account's rows; nil if it is not in the file.
  package func differences(
    of accountID: String, _ reported: [PublishedAccess]?, _ entitlements: [Entitlement],
    explain: (String) async throws -> String
  ) async throws -> [AccessDifference] {
    var differences: [AccessDifference] = []
    let here = Dictionary(
      entitlements.map { (ExactText($0.name), $0) }, uniquingKeysWith: { first, _ in first })
    // Of several rows for an entitlement, the best one counts.
    let there = Dictionary((reported ?? []).map { (ExactText($0.entitlement), $0) }) {
      Self.better($0, $1)
    }
    for name in Set(here.keys).union(there.keys).sorted() {
      let (mine, other) = (here[name].flatMap { $0.isActive ? $0 : nil }, there[name])
      let kind: AccessDifference.Kind
      switch (mine, other?.isActive ?? false) {
      case (nil, true): kind = .onlyThere
      case (_?, false): kind = .onlyHere
      case (let mine?, true):
        guard let other, !isSame(mine.accessEndsAt, other.until) else { continue }
        kind = .otherEnd
      case (nil, false): continue
      }
      let explanation =
        if let mine { Self.reason(of: mine) } else { try await explain(name.rawValue) }
      differences.append(
        AccessDifference(
          kind: kind, accountID: other?.accountID ?? accountID, entitlement: name.rawValue,
          untilThere: other?.until.moment, untilHere: mine?.accessEndsAt,
          explanation: (reported == nil ? "The account is not in the file. " : "") + explanation))
    }
    return differences
  }

  private static func better(_ one: PublishedAccess, _ other: PublishedAccess) -> PublishedAccess {
    if one.isActive != other.isActive { return one.isActive ? one : other }
    switch (one.until, other.until) {
    case (.at(let end), .at(let otherEnd)): return end >= otherEnd ? one : other
    case (.never, _), (.unsaid, .at): return one
    case (_, .never), (.at, .unsaid), (.unsaid, .unsaid): return other
    }
  }

  /// Whether two ends match within ``tolerance``; an unknown end matches any.
  private func isSame(_ here: Timestamp?, _ there: PublishedAccess.End) -> Bool {
    switch (here, there) {
    case (_, .unsaid), (nil, .never): true
    case (let here?, .at(let there)): (here - there).isWithin(tolerance)
    case (nil, .at), (_?, .never): false
    }
  }

  package static func reason(of entitlement: Entitlement) -> String {
    switch entitlement.source {
    case .grant: return "An administrator granted it."
    case .provisional: return "Provisional access until Apple verifies a receipt."
    case .appStore:
      let product = entitlement.productID?.rawValue ?? "unknown"
      let transaction = entitlement.transactionID?.rawValue ?? "unknown"
      let end = entitlement.expiresAt.map { "is paid until \($0)" } ?? "has no end"
      let grace = entitlement.state == .inGracePeriod ? ", and is in Apple's grace period" : ""
      return "Transaction \(transaction) of \(product) \(end)\(grace)."
    }
  }
}
