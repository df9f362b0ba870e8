import JSONText
package import LedgerStorage
package import Subscriptions

/// A ledger item about a charge, with its source.
package struct ChargeEvent: JSONObjectWritable {
  package let item: LedgerItem
  package let source: EntrySource
  package let sentence: String
  /// The owners before and after a charge moved to another account.
  package let move: (from: String, to: String)?

  package init(_ item: LedgerItem, source: EntrySource, name: @escaping (AccountKey) -> String) {
    self.item = item
    self.source = source
    sentence = Sentence(name: name).text(for: item.content)
    move =
      if case .ownership(let change) = item.content, let previous = change.previousOwner,
        let owner = change.decision.owner, change.changesOwner
      { (name(previous), name(owner)) } else { nil }
  }

  func writeMembers(to json: inout JSONWriter) {
    json.member("number", item.number)
    json.member("original_transaction_id", item.line.originalTransactionID)
    json.member("kind", item.content.kind)
    json.member("recorded_at", item.recordedAt)
    json.member("evidence_date", item.content.evidenceDate)
    json.object("source") { json in
      json.member("kind", source.kind.rawValue)
      json.member("id", source.id)
    }
    json.member("in_words", sentence)
  }
}

extension OwnershipStore {
  /// The items of an original transaction and those that Apple links with it, in recording order,
  /// and the names of the accounts in them and of `others`.
  package func events(
    of original: RecordedOriginalTransaction, naming others: [AccountKey] = []
  ) async throws -> (events: [ChargeEvent], names: [AccountKey: String]) {
    let items = try await history(of: Set(original.line.heads.keys)).sorted {
      ($0.item.recordedAt, $0.item.line, $0.item.number)
        < ($1.item.recordedAt, $1.item.line, $1.item.number)
    }
    let unnamed = Set(items.flatMap { $0.item.content.accounts } + others)
      .subtracting(original.names.keys)
    let names = original.names.merging(try await accountIDs(of: unnamed)) { first, _ in first }
    return (
      items.map { ChargeEvent($0.item, source: $0.source) { names[$0] ?? "erased" } }, names
    )
  }

  /// The items about a charge and the renewal statuses behind its decision, in recording order.
  func history(of charge: Charge, in original: RecordedOriginalTransaction) async throws
    -> [ChargeEvent]
  {
    let statusDates = original.charge(of: charge.id)?.recorded.decision.renewal.statusDates ?? []
    return try await events(of: original).events.filter {
      $0.item.content.concerns(charge, statusDates: statusDates)
    }
  }
}

extension RenewalEvidence {
  /// The dates of the renewal statuses that the decision rests on.
  package var statusDates: Set<Timestamp> { Set([statusAsOf, switchedOffAt].compactMap(\.self)) }
}

extension LedgerItem.Content {
  /// Whether this is about a charge, or a renewal status of one of these dates.
  package func concerns(_ charge: Charge, statusDates: Set<Timestamp>) -> Bool {
    switch self {
    case .evidence(.transaction(let record)): charge.transactions.contains(record.key)
    case .evidence(.renewalStatus(let status, _)): statusDates.contains(status.asOf)
    case .action(.importedOverride(let ownerOverride)): ownerOverride.covers(charge)
    case .action(let action): action.transaction.map(charge.transactions.contains) ?? false
    case .ownership(let change): charge.transactions.contains(change.charge)
    case .evidence(.link): false
    }
  }

  package var accounts: [AccountKey] {
    switch self {
    case .action(.claim(let claim)): [claim.account]
    case .action(.ownerOverride(let ownerOverride)): [ownerOverride.account].compactMap(\.self)
    case .action(.importedOverride(let ownerOverride)): [ownerOverride.account]
    case .ownership(let change): [change.previousOwner, change.decision.owner].compactMap(\.self)
    case .evidence: []
    }
  }
}

private struct Sentence {
  let name: (AccountKey) -> String

  func text(for content: LedgerItem.Content) -> String {
    switch content {
    case .evidence(.transaction(let record)): text(for: record)
    case .evidence(.renewalStatus(let status, _)): text(for: status)
    case .evidence(.link(let line, let previous)):
      "Apple reported that \(line) continues \(previous)."
    case .action(.claim(let claim)):
      "\(quoted(claim.account)) submitted transaction \(claim.transaction.transactionID)."
    case .action(.ownerOverride(let ownerOverride)):
      ownerOverride.account.map {
        "An administrator assigned transaction \(ownerOverride.transaction.transactionID) to "
          + "\(quoted($0))."
      } ?? "An administrator released transaction \(ownerOverride.transaction.transactionID)."
    case .action(.importedOverride(let ownerOverride)):
      "An import assigned everything bought on \(ownerOverride.line) until \(ownerOverride.boughtUntil) to "
        + "\(quoted(ownerOverride.account))."
    case .ownership(let change): text(for: change)
    }
  }

  private func text(for record: TransactionRecord) -> String {
    let kind =
      switch record.kind {
      case .renewal: "a renewal"
      case .purchase: "a purchase"
      case .unknown: "a charge"
      }
    var text =
      "Apple reported transaction \(record.key.transactionID): \(kind) of \(record.key.productID) "
      + "on \(record.chargedAt)"
    if let expiresDate = record.expiresDate { text += ", paid until \(expiresDate)" }
    if let revocation = record.revocation.revocation {
      text += ", \(revocation.isRefund ? "refunded" : "revoked") on \(revocation.at)"
    }
    if record.isUpgraded { text += ", replaced by an upgrade" }
    return text + "."
  }

  private func text(for status: RenewalStatus) -> String {
    var parts: [String] = []
    if let autoRenews = status.autoRenews {
      parts.append("auto-renew is \(autoRenews ? "on" : "off")")
    }
    switch status.phase {
    case .gracePeriod(let until): parts.append("payment failed, grace period until \(until)")
    case .billingRetry: parts.append("payment failed, Apple is retrying")
    case .expired: parts.append("the subscription has expired")
    case .undisturbed, nil: break
    }
    let words = parts.isEmpty ? "no billing issue" : parts.joined(separator: ", ")
    return "Apple reported on \(status.asOf): \(words)."
  }

  private func text(for change: OwnershipChange) -> String {
    let because = Explanation(change.decision, name: name).sentence
    let isAssigned = change.action == .placed && change.decision.rule == .administrator
    let action =
      switch change.action {
      case .decided: "Decided"
      case .claimed: "Claimed"
      case .corrected: "Corrected"
      case .placed: "Assigned"
      }
    guard change.changesOwner, let previous = change.previousOwner else {
      return isAssigned ? because : "\(action). \(because)"
    }
    if isAssigned, let owner = change.decision.owner {
      return "An administrator assigned it from \(quoted(previous)) to \(quoted(owner))."
    }
    if change.action == .placed, change.decision.owner == nil {
      return "An administrator released it from \(quoted(previous))."
    }
    guard change.action == .corrected else {
      return "\(action); previous owner: \(quoted(previous)). \(because)"
    }
    return "Corrected: late evidence from Apple showed the earlier owner (\(name(previous))) was "
      + "wrong. \(because)"
  }

  private func quoted(_ account: AccountKey) -> String { "“\(name(account))”" }
}
