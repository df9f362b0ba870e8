import LedgerStorage
import Subscriptions

/// A ledger entry, event or administrator action, with its source.
struct FactRow: Sendable {
  /// The HTML id, used by links of the timeline.
  var anchor: String?
  /// The time of recording, or of the action.
  var at: Moment
  var sentence: [TextPiece]
  /// For example `Notification`, `Submission`, `Poll` or `Administrator`.
  var source: String
  var symbol: TimelineLayout.Symbol
  /// For example `DID_RENEW`.
  var sourceDetail: String?
  /// The account that submitted it, the transaction, or the administrator.
  var sourceID: String?
  /// The ID of the notification or poll, shown in a tooltip.
  var messageID: String?
  /// The page of what `sourceID` names.
  var sourceHref: String?
  /// The administrator's reason.
  var reason: String?
  /// The date of Apple's statement, if it differs from `at` by a minute or more.
  var statedAt: Moment?

  /// The original transaction and the charge that it is about, if any.
  var line: OriginalTransactionKey?
  var chargeID: String?
  /// Among rows about one charge at one moment, the highest is shown.
  var rank = 0
  /// Whether it says no more than that a subscription was renewed; receipts don't tell renewals.
  var isRenewal = false
  /// The owners before and after a change, for example `from nils to mona`.
  var move: String?
  /// The refund or upgrade that ended the charge, for example `monthly, charged 24 Oct 2026, was
  /// refunded`.
  var loss: String?
  /// The entitlement that ended.
  var endedEntitlement: String?
  /// The other rows about the charge at this moment.
  var parts: [FactRow] = []
  var partsTitle: String?
  /// Earlier renewals of the original transaction with no other row between.
  var earlier: [FactRow] = []
  var earlierTitle: String?

  /// The ``rank`` of events of a loss.
  static let lossRank = 5
  /// The ``rank`` of changes of owner.
  static let ownerRank = 4
}

extension FactRow {
  /// The row, beginning with the charge that a decision is about: the reason names only the one
  /// before.
  func naming(_ content: LedgerItem.Content, charged dates: [Charge.ID: Timestamp]) -> FactRow {
    guard case .ownership(let change) = content else { return self }
    var row = self
    let date = dates[change.charge].map { " of \($0.dayName)" } ?? ""
    row.sentence.insert(("\(change.charge.productID)\(date): ", nil), at: 0)
    return row
  }

  /// Whether it is folded below a later one: both are renewals, or one message said the same of
  /// both charges.
  fileprivate func isAlike(_ later: FactRow) -> Bool {
    guard line != nil, line == later.line else { return false }
    return isRenewal && later.isRenewal
      || at.iso == later.at.iso && rank > 0 && rank == later.rank
  }
}

extension [FactRow] {
  /// The rows, latest first, with those about one charge at one moment as one, and a run of
  /// renewals below the latest.
  var folded: [FactRow] {
    var groups: [[FactRow]] = []
    for row in self {
      let place = groups.indices.reversed().prefix { groups[$0][0].at.iso == row.at.iso }
        .first { groups[$0].isAboutCharge(of: row) }
      if let place { groups[place].append(row) } else { groups.append([row]) }
    }
    var rows: [FactRow] = []
    for group in groups.withMovesTogether {
      let moves = group.compactMap(\.move)
      if moves.count > 1, var row = group.first(where: { $0.move != nil }) {
        let sentences = moves.withoutRepetition.map { move in
          "\(Count.text(moves.count { $0 == move }, "charge")) moved \(move)."
        }
        row.sentence = [(sentences.joined(separator: " "), nil)]
        (row.parts, row.partsTitle) = (group, Count.text(group.count, "detail"))
        row.rank = 0
        rows.append(row)
        continue
      }
      let loss = group.lazy.compactMap(\.loss).first
      // A loss without a cause of its own follows from a change of owner, if there was one.
      let most =
        loss == nil && group.contains { $0.rank == FactRow.ownerRank }
        ? FactRow.ownerRank : FactRow.lossRank
      let first =
        group.indices.filter { group[$0].rank <= most }
        .max { group[$0].rank < group[$1].rank } ?? 0
      var row = group[first]
      if row.rank == FactRow.lossRank, let loss {
        let ended = group.compactMap(\.endedEntitlement).map { "“\($0)”" }
        let end = ended.isEmpty ? "." : "; access to \(ended.joined(separator: " and ")) ended."
        row.sentence = [(loss + end, nil)]
      }
      row.parts = group.indices.filter { $0 != first }.map { group[$0] }
      if !row.parts.isEmpty { row.partsTitle = Count.text(row.parts.count, "detail") }
      row.isRenewal = group.allSatisfy(\.isRenewal) && group.contains { $0.chargeID != nil }
      guard let last = rows.last, row.isAlike(last) else {
        rows.append(row)
        continue
      }
      rows[rows.count - 1].earlier.append(row)
      rows[rows.count - 1].earlierTitle =
        Count.text(last.earlier.count + 1, "earlier charge")
        + (row.at.iso == last.at.iso ? "" : " since \(row.at.text.prefix { $0 != "," })")
    }
    return rows
  }

  /// Whether a row of the same moment is about the same charge as these, or about their original
  /// transaction as a whole.
  private func isAboutCharge(of row: FactRow) -> Bool {
    guard let line = row.line, self[0].line == line else { return false }
    let chargeID = lazy.compactMap(\.chargeID).first
    return chargeID == nil || row.chargeID == nil || chargeID == row.chargeID
  }
}

extension [[FactRow]] {
  /// With all groups about an original transaction at one moment as one if several of its charges
  /// moved.
  fileprivate var withMovesTogether: [[FactRow]] {
    func recording(_ group: [FactRow]) -> String? {
      group[0].line.map { "\($0) \(group[0].at.iso)" }
    }
    let moves = Dictionary(grouping: filter { $0.contains { $0.move != nil } }, by: recording)
    return reduce(into: []) { groups, group in
      let key = recording(group)
      let isTogether = key != nil && (moves[key]?.count ?? 0) > 1
      if isTogether, let place = groups.lastIndex(where: { recording($0) == key }) {
        groups[place] += group
      } else {
        groups.append(group)
      }
    }
  }
}

extension LedgerItem.Content {
  /// See ``FactRow/loss``.
  var loss: String? {
    guard case .evidence(.transaction(let record)) = self else { return nil }
    let name = "\(record.key.productID), charged \(record.purchaseDate.dayName),"
    if record.revocation.revocation?.isRefund ?? false { return "\(name) was refunded" }
    return record.isUpgraded ? "\(name) was replaced by an upgrade" : nil
  }

  /// The transaction that it is about; nil for a renewal status or a link.
  var transactionID: TransactionID? {
    switch self {
    case .evidence(.transaction(let record)): record.key.transactionID
    case .evidence: nil
    case .action(let action): action.transaction?.transactionID
    case .ownership(let change): change.charge.transactionID
    }
  }

  /// See ``FactRow/rank``.
  var rank: Int {
    switch self {
    case .ownership(let change):
      [.corrected, .placed].contains(change.action) ? FactRow.ownerRank : 2
    case .evidence(.transaction): 3
    case .evidence, .action: 0
    }
  }

  /// See ``FactRow/isRenewal``.
  var isRenewal: Bool {
    switch self {
    case .evidence(.transaction(let record)):
      record.kind != .purchase && record.revocation.revocation == nil && !record.isUpgraded
    case .evidence(.renewalStatus(let status, _)):
      status.autoRenews != false && [nil, .undisturbed].contains(status.phase)
    case .evidence(.link): false
    case .action(.claim): true
    case .action: false
    case .ownership(let change):
      [.decided, .claimed].contains(change.action) && change.previousOwner == nil
        && change.decision.rule == .activelyAutoRenewing
    }
  }
}

extension LedgerEvent.Kind {
  /// See ``FactRow/rank``.
  var rank: Int {
    switch self {
    case .transactionRevoked, .entitlementExpired, .entitlementRevoked: FactRow.lossRank
    case .transactionRecorded: 1
    default: 0
    }
  }

  /// See ``FactRow/isRenewal``.
  var isRenewal: Bool {
    [.transactionRecorded, .ownerDecided, .entitlementExtended].contains(self)
  }
}
