import Foundation
import LedgerStorage
package import Subscriptions

/// What another backend says that an account may use.
package struct ToldAccess: Hashable, Sendable {
  package var accountID: String
  package var entitlement: String
  package var isActive: Bool
  package var until: End

  /// Until when it says so.
  package enum End: Hashable, Sendable {
    case unsaid
    case never
    case at(Timestamp)

    /// Nil where it does not end, and where nobody says.
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

  /// Reads the values of a row.
  ///
  /// Where the file does not say whether it is active, it is until its end. An end that is empty is
  /// none; a file without that column says nothing of ends.
  package static func access(_ values: [String?], at now: Timestamp) -> Result<ToldAccess, RowFault> {
    guard let account = values[0], let entitlement = values[1] else {
      return .failure(
        RowFault(
          code: "missing_value",
          reason: "The line has no \(values[0] == nil ? "account_id" : "entitlement")."))
    }
    let until: End
    switch values[2] {
    case nil: until = .unsaid
    case let text? where text.isEmpty: until = .never
    case let text?:
      guard let moment = Timestamp(rfc3339: text) else {
        return .failure(
          RowFault(
            code: "invalid_time",
            reason: "“\(text.quotable)” is no time like 2026-11-21T09:30:00Z."))
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
          code: "invalid_active", reason: "“\(text.rawValue.quotable)” is neither true nor false."))
    }
    return .success(
      ToldAccess(accountID: account, entitlement: entitlement, isActive: isActive, until: until))
  }
}

/// A difference between what another backend says and what Tenure says.
package struct AccessDifference: Hashable, Sendable {
  package enum Kind: String, CaseIterable, Sendable {
    /// Active there, and not here.
    case onlyThere = "only_there"
    /// Active here, and not there.
    case onlyHere = "only_here"
    /// Active in both, until other times.
    case otherEnd = "other_end"
  }

  package var kind: Kind
  package var accountID: String
  package var entitlement: String
  /// Nil where it is not active, does not end, or where nobody says; of ends that differ, where it
  /// does not end.
  package var untilThere: Timestamp?
  package var untilHere: Timestamp?
  /// Why Tenure says what it says.
  package var explanation: String
}

/// Compares what another backend says with what Tenure says.
package struct AccessComparison: Sendable {
  /// How far two ends may be apart and count as one.
  package var tolerance: Duration
  package var now: Timestamp

  /// The differences of one account.
  ///
  /// - Parameters:
  ///   - told: What the other one says of it.
  ///   - entitlements: What Tenure says.
  ///   - explain: Says why Tenure says so of an entitlement that is not active.
  /// - Returns: The differences, in the order of the entitlements' names.
  /// - Throws: What `explain` throws.
  package func differences(
    _ told: [ToldAccess], _ entitlements: [Entitlement],
    explain: (String) async throws -> String
  ) async throws -> [AccessDifference] {
    var differences: [AccessDifference] = []
    let here = Dictionary(
      entitlements.map { (ExactText($0.name), $0) }, uniquingKeysWith: { first, _ in first })
    // Of several lines of one entitlement the best one counts.
    let there = Dictionary(told.map { (ExactText($0.entitlement), $0) }) { Self.better($0, $1) }
    for name in Set(here.keys).union(there.keys).sorted() {
      let (mine, other) = (here[name], there[name])
      switch (mine?.isActive ?? false, other?.isActive ?? false) {
      case (false, true):
        differences.append(
          AccessDifference(
            kind: .onlyThere, accountID: other?.accountID ?? "", entitlement: name.rawValue,
            untilThere: other?.until.moment, explanation: try await explain(name.rawValue)))
      case (true, false):
        guard let mine, let account = told.first?.accountID else { continue }
        differences.append(
          AccessDifference(
            kind: .onlyHere, accountID: account, entitlement: name.rawValue,
            untilThere: other?.until.moment, untilHere: mine.accessEndsAt,
            explanation: Self.reason(of: mine)))
      case (true, true):
        guard let mine, let other, !isSame(mine.accessEndsAt, other.until) else { continue }
        differences.append(
          AccessDifference(
            kind: .otherEnd, accountID: other.accountID, entitlement: name.rawValue,
            untilThere: other.until.moment, untilHere: mine.accessEndsAt,
            explanation: Self.reason(of: mine)))
      case (false, false): continue
      }
    }
    return differences
  }

  /// What an account may use that the other one does not know.
  ///
  /// - Parameters:
  ///   - accountID: The account, of which it says nothing.
  ///   - entitlements: What Tenure says.
  /// - Returns: The differences, in the order of the entitlements' names.
  package func differences(ofUntold accountID: String, _ entitlements: [Entitlement]) -> [AccessDifference]
  {
    entitlements.filter(\.isActive).sorted { ExactText($0.name) < ExactText($1.name) }.map {
      entitlement in
      AccessDifference(
        kind: .onlyHere, accountID: accountID, entitlement: entitlement.name,
        untilHere: entitlement.accessEndsAt,
        explanation: "The account is not in the file. " + Self.reason(of: entitlement))
    }
  }

  private static func better(_ one: ToldAccess, _ other: ToldAccess) -> ToldAccess {
    if one.isActive != other.isActive { return one.isActive ? one : other }
    switch (one.until, other.until) {
    case (.at(let end), .at(let otherEnd)): return end >= otherEnd ? one : other
    case (.never, _), (.unsaid, .at): return one
    case (_, .never), (.at, .unsaid), (.unsaid, .unsaid): return other
    }
  }

  /// Whether both say the same of the end, as far as the other one says anything.
  private func isSame(_ here: Timestamp?, _ there: ToldAccess.End) -> Bool {
    switch (here, there) {
    case (_, .unsaid), (nil, .never): true
    case (let here?, .at(let there)): abs(here, there) <= tolerance
    case (nil, .at), (_?, .never): false
    }
  }

  private func abs(_ one: Timestamp, _ other: Timestamp) -> Duration {
    one > other ? one - other : other - one
  }

  /// Why an entitlement is active.
  package static func reason(of entitlement: Entitlement) -> String {
    switch entitlement.source {
    case .grant: return "An administrator granted it."
    case .provisional: return "It is granted until Apple answers about a receipt."
    case .appStore:
      let product = entitlement.productID?.rawValue ?? "unknown"
      let transaction = entitlement.transactionID?.rawValue ?? "unknown"
      let end = entitlement.expiresAt.map { "is paid until \($0)" } ?? "does not end"
      let grace = entitlement.state == .inGracePeriod ? ", and Apple grants a grace period" : ""
      return "Transaction \(transaction) of \(product) \(end)\(grace)."
    }
  }
}
