import HTTPAPI
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

  /// The same to the millisecond, for whatever Apple stated.
  var evidenceDate: Timestamp?

  /// The original transaction and the charge that it is about, if any.
  var line: OriginalTransactionKey?
  var chargeID: String?
  /// Among rows about one charge at one moment, the highest is shown.
  var rank = 0
  /// Whether it says no more than that a subscription was renewed; receipts don't tell renewals.
  var isRenewal = false
  /// The owners before and after a change, for example `from nils to mona`.
  var move: String?
  /// What happened in the customer's words, for example `Renewal of monthly on 2 Feb 2026`.
  var story: String?
  /// Whether the sentence is the story, with the entitlements that began and ended.
  var isStory = false
  /// That an entitlement began or ended with it, as in `Access to “pro” ended.`.
  var access: String?
  /// The original transaction, unless the page is about it.
  var lineLink: PageLink?
  /// The rows about the charge at this moment, without this one unless it tells the story.
  var parts: [FactRow] = []
  var partsTitle: String?
  /// Earlier renewals of the original transaction with no other row between.
  var earlier: [FactRow] = []
  var earlierTitle: String?

  /// Whether it reports a transaction that an earlier row has.
  var isRepeat = false
  /// Whether it is a part of an earlier row.
  var isLater = false

  /// The values of ``rank`` by what a row is about.
  static let (repeatRank, statusRank, decisionRank, transactionRank, endRank) = (1, 2, 3, 4, 5)
  /// A change of owner, or an administrator's action: the cause of the end of an entitlement.
  static let ownerRank = 6
  /// A refund, its reversal or an upgrade.
  static let revocationRank = 7
}

extension FactRow {
  /// The row, beginning with the charge that a decision is about: the reason names only the one
  /// before.
  func naming(_ content: LedgerItem.Content, charged dates: [Charge.ID: Timestamp]) -> FactRow {
    guard case .ownership(let change) = content else { return self }
    var row = self
    let name =
      "\(change.charge.productID)" + (dates[change.charge].map { " of \($0.dayName)" } ?? "")
    if change.action == .corrected, let move {
      row.story = "\(name) moved \(move): late evidence from Apple showed whose it is"
    } else if change.previousOwner == nil, change.action != .placed {
      // Without “Decided.” or “Claimed.”.
      let reason = row.sentence[0].text.dropLast().split(separator: ". ", maxSplits: 1).last ?? ""
      row.story = "\(name): \(reason)"
    }
    row.sentence.insert(("\(name): ", nil), at: 0)
    return row
  }

  /// Whether it has nothing but what an earlier row has, and nothing folded below it.
  fileprivate func isRepeat(of earlier: FactRow) -> Bool {
    isRepeat && self.earlier.isEmpty && line == earlier.line && chargeID == earlier.chargeID
  }

  fileprivate var asLater: FactRow {
    var row = self
    row.isLater = true
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
      // A new charge comes with a decision.
      let isNew = group.contains { $0.rank == FactRow.decisionRank }
      let ranks = group.map {
        $0.rank == FactRow.transactionRank && !isNew ? FactRow.repeatRank : $0.rank
      }
      let first = ranks.indices.max { ranks[$0] < ranks[$1] } ?? 0
      var row = group[first]
      row.parts = group.indices.filter { $0 != first }.map { group[$0] }
      let access = row.parts.compactMap(\.access).withoutRepetition
      if row.rank == FactRow.revocationRank, let date = row.evidenceDate,
        group.contains(where: {
          $0.rank == FactRow.transactionRank && ($0.evidenceDate ?? date) > date
        })
      {
        row.story = row.story.map { "\($0); Apple had reversed it when that was reported" }
      }
      row.isStory = row.story != nil || !access.isEmpty && row.rank != FactRow.endRank
      if row.isStory {
        row.parts = group
        row.parts[first].anchor = nil
      }
      row.isRepeat = ranks[first] == FactRow.repeatRank && access.isEmpty
      if row.rank == FactRow.transactionRank {
        // The latest report says most, such as the price.
        for later in rows.indices.reversed() where rows[later].isRepeat(of: row) {
          row.story = rows[later].story
          row.parts += rows.remove(at: later).parts.map { $0.asLater }
        }
      }
      if row.isStory {
        row.sentence =
          (row.story.map { [("\($0).", nil)] } ?? row.sentence) + access.map { (" \($0)", nil) }
      }
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
    guard self[0].line == row.line else { return false }
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

extension ChargeEvent {
  /// See ``FactRow/story``.
  ///
  /// - Parameter isReversal: Whether Apple reported the transaction because a refund was reversed.
  func story(isReversal: Bool) -> String? {
    switch item.content {
    case .evidence(.transaction(let record)): record.story(isReversal: isReversal)
    case .evidence(.renewalStatus):
      // Without “Apple reported on …”.
      sentence.firstRange(of: ": ").map {
        EnumText.sentence(String(sentence[$0.upperBound...].dropLast()))
      }
    case .action(.claim(let claim)):
      "\(claim.transaction.productID) was submitted; its owner did not change"
    default: nil
    }
  }
}

extension TransactionRecord {
  fileprivate func story(isReversal: Bool) -> String {
    let (product, day) = (key.productID, chargedAt.dayName)
    let name = "\(product), charged \(day),"
    if isReversal { return "The refund of \(name) was reversed" }
    if let revocation = revocation.revocation {
      return "\(name) \(revocation.isRefund ? "was refunded" : "is no longer shared")"
    }
    if isUpgraded { return "\(name) was replaced by an upgrade" }
    let noun =
      switch (periodType, kind) {
      case (.trial, _): "Trial"
      case (_, .renewal): "Renewal"
      case (_, .purchase): "Purchase"
      case (_, .unknown): "Charge"
      }
    let price =
      ownershipType == .familyShared
      ? nil
      : priceMilliunits.flatMap { amount in
        currency.map { Price.text(amount, currency: $0) }
      }
    let details = [price, expiresDate.map { "until \($0.dayName)" }].compactMap(\.self)
    return "\(noun) of \(product) on \(day)"
      + (details.isEmpty ? "" : ": \(details.joined(separator: ", "))")
  }
}

extension LedgerItem.Content {
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
      [.corrected, .placed].contains(change.action) ? FactRow.ownerRank : FactRow.decisionRank
    case .evidence(.transaction(let record)):
      record.revocation.revocation != nil || record.isUpgraded
        ? FactRow.revocationRank : FactRow.transactionRank
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
    case .transactionRevoked, .entitlementExpired, .entitlementRevoked: FactRow.endRank
    case .transactionRecorded, .renewalStatusChanged, .inGracePeriod, .inBillingRetry, .recovered:
      FactRow.statusRank
    default: 0
    }
  }

  /// See ``FactRow/isRenewal``.
  var isRenewal: Bool {
    [.transactionRecorded, .ownerDecided, .entitlementExtended].contains(self)
  }
}
