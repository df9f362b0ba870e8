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

  /// The original transaction and the transaction that it is about, if any.
  var line: OriginalTransactionKey?
  var transactionID: String?
  var meaning = Meaning.detail
  /// The sentence in the customer's words, for example `monthly was refunded`.
  var story: String?
  /// Whether Apple reversed a refund.
  var isReversal = false
  /// Whether it is an auto-renew status that every renewal has.
  var isRoutine = false
  var change: OwnershipChange?
  /// The owners before and after a change, for example `from nils to mona`.
  var move: String?
  /// The entitlement that began or ended with it.
  var access: (entitlement: String, began: Bool)?
  /// The original transaction, unless the page is about it.
  var lineLink: PageLink?

  /// Whether the sentence is in the customer's words, and the parts have this row's own, too.
  var isStory = false
  /// The other rows about the charge at this moment, and later ones that changed nothing.
  var parts: [FactRow] = []
  var partsTitle: String?
  /// Earlier charges of the original transaction with no other row between.
  var earlier: [FactRow] = []
  var earlierTitle: String?
  /// Whether it is a part of an earlier row.
  var isLater = false
  /// The charge that it tells of and who got it, if nothing else happened.
  var run: (isRenewal: Bool, owner: String)?

  /// What a row means for the customer.
  ///
  /// Among those about one charge at one moment the highest is shown.
  enum Meaning: Int, Sendable {
    /// Nothing, as another report of what is known.
    case detail
    case access
    case status
    /// The charge's first owner.
    case decision
    case charge
    /// A change of owner, or an administrator's action.
    case owner
    /// A refund, its reversal or an upgrade.
    case revocation
  }
}

/// The charges that a history is about, by each transaction that reports them.
struct HistoryCharges: Sendable {
  struct Report: Sendable {
    let charge: Charge
    let recorded: OriginalTransaction.RecordedDecision
    /// For example `Renewal of monthly on 2 Feb 2026: 9.99 USD, until 2 Mar 2026`.
    let text: String
    let isRenewal: Bool
    /// The first recording of the charge, and of this transaction.
    let chargeRecordedAt: Moment
    let recordedAt: Moment
    /// Whether all charges of the original transaction have had one owner.
    let hasOneOwner: Bool

    var name: String { "\(charge.productID) of \(charge.date.dayName)" }

    /// The owner after a recording.
    fileprivate func owner(at moment: Moment) -> AccountKey? {
      recorded.losses.first { Moment($0.at).iso > moment.iso }?.account ?? recorded.decision.owner
    }
  }

  private let account: AccountKey?
  private let name: @Sendable (AccountKey) -> String
  private var reports: [OriginalTransactionKey: [String: Report]] = [:]

  /// - Parameter account: The account that the page is about, if it is.
  init(
    of originals: some Sequence<RecordedOriginalTransaction>, for account: AccountKey? = nil,
    name: @escaping @Sendable (AccountKey) -> String
  ) {
    (self.account, self.name) = (account, name)
    for original in originals {
      let decisions = original.line.decisions.values
      let owners = Set(
        decisions.map(\.decision.owner) + decisions.flatMap { $0.losses.map(\.account) })
      for charge in original.rule.charges {
        guard let recorded = original.line.decisions[charge.id],
          let named = original.line.history[charge.id]
        else { continue }
        let isRenewal = recorded.decision.isAutomaticRenewal(charge.kind)
        for key in charge.transactions {
          guard let transaction = original.line.history[key] else { continue }
          reports[key.line, default: [:]][key.transactionID.rawValue] = Report(
            charge: charge, recorded: recorded, text: named.inWords(isRenewal: isRenewal),
            isRenewal: isRenewal, chargeRecordedAt: Moment(named.recorded.at),
            recordedAt: Moment(transaction.recorded.at), hasOneOwner: owners.count == 1)
        }
      }
    }
  }

  fileprivate func report(_ row: FactRow) -> Report? {
    row.line.flatMap { line in row.transactionID.flatMap { reports[line]?[$0] } }
  }

  /// The row, beginning with the charge that a decision is about: the reason names only the one
  /// before.
  fileprivate func named(_ row: FactRow) -> FactRow {
    guard let change = row.change else { return row }
    var row = row
    let name = report(row)?.name ?? change.charge.productID.rawValue
    row.sentence.insert(("\(name): ", nil), at: 0)
    if change.action == .placed { return row }
    if let move = row.move {
      row.story =
        "\(name) moved \(move)"
        + (change.action == .corrected ? ": late evidence from Apple showed whose it is" : "")
    } else if let owner = change.decision.owner, change.changesOwner {
      row.story =
        "\(name) \(change.action == .claimed ? "was claimed by" : "went to") \(self.name(owner))"
    }
    return row
  }

  /// Who got a charge and who has it now, unless that is the account of the page.
  fileprivate func owner(of report: Report, in group: [FactRow]) -> String {
    if account == nil, report.hasOneOwner { return "" }
    let now = report.recorded.decision.owner
    let then =
      group.lazy.compactMap(\.change).first.map(\.decision.owner) ?? report.owner(at: group[0].at)
    let first =
      then.map { $0 == account ? "" : "; it went to \(name($0))" } ?? "; it was unclaimed"
    return now == then || now == account && account != nil
      ? first : first + (now.map { " (now \(name($0))'s)" } ?? " (released since)")
  }
}

extension StoreTransaction {
  fileprivate func inWords(isRenewal: Bool) -> String {
    let noun =
      switch (periodType, kind) {
      case (.trial, _): "Trial"
      case _ where isRenewal: "Renewal"
      case (_, .purchase): "Purchase"
      case _: "Charge"
      }
    let price =
      ownershipType == .familyShared
      ? nil
      : priceMilliunits.flatMap { amount in
        currency.map { Price.text(amount, currency: $0) }
      }
    let details = [price, expiresDate.map { "until \($0.value.dayName)" }].compactMap(\.self)
    return "\(noun) of \(key.productID) on \(chargedAt.dayName)"
      + (details.isEmpty ? "" : ": \(details.joined(separator: ", "))")
  }
}

extension [FactRow] {
  /// The rows, latest first, with those about one charge at one moment as one, what changed nothing
  /// below the charge's earlier row, and a run of renewals below the latest.
  func folded(_ charges: HistoryCharges) -> [FactRow] {
    var rows: [FactRow] = []
    // The charge's row, and whether the latest of them says that it is refunded or upgraded.
    var homes: [Charge.ID: (row: Int, isRevoked: Bool)] = [:]
    for group in grouped(charges).reversed() {
      let charge = group.lazy.compactMap(charges.report).first?.charge.id
      let known = charge.flatMap { homes[$0] }
      let (row, meaning) = group.told(charges, isRevoked: known?.isRevoked ?? false)
      if meaning == .detail, let known {
        rows[known.row].parts += group.map { row in
          var row = row
          row.isLater = true
          return row
        }
        continue
      }
      if let charge {
        homes[charge] = (
          known?.row ?? rows.count,
          meaning == .revocation ? !row.isReversal : known?.isRevoked ?? false
        )
      }
      rows.append(row)
    }
    return rows.reversed().reduce(into: []) { runs, row in
      var row = row
      if !row.parts.isEmpty { row.partsTitle = Count.text(row.parts.count, "detail") }
      guard let last = runs.last, row.continues(last) else { return runs.append(row) }
      runs[runs.count - 1].earlier.append(row)
      runs[runs.count - 1].earlierTitle =
        Count.text(last.earlier.count + 1, "earlier charge")
        + (charges.report(row).map { ", back to \($0.charge.date.dayName)" } ?? "")
    }
  }

  /// The rows about each charge at each moment, and those about an original transaction at a moment
  /// at which several of its charges moved.
  private func grouped(_ charges: HistoryCharges) -> [[FactRow]] {
    var groups: [[FactRow]] = []
    for row in lazy.map(charges.named) {
      let place = groups.indices.reversed().prefix { groups[$0][0].at.iso == row.at.iso }
        .first { groups[$0].isAboutCharge(of: row, charges) }
      if let place { groups[place].append(row) } else { groups.append([row]) }
    }
    return groups.reduce(into: []) { groups, group in
      let together = groups.indices.reversed().prefix { groups[$0][0].at.iso == group[0].at.iso }
        .first { groups[$0].hasMoved && groups[$0][0].line == group[0].line }
      if let together, group.hasMoved {
        groups[together] += group
      } else {
        groups.append(group)
      }
    }
  }

  private var hasMoved: Bool { contains { $0.move != nil } }

  /// Whether a row of the same moment is about the same charge as these, or about their original
  /// transaction as a whole.
  private func isAboutCharge(of row: FactRow, _ charges: HistoryCharges) -> Bool {
    let other = first { $0.transactionID != nil }
    if let other, row.transactionID != nil {
      guard let report = charges.report(row), let known = charges.report(other) else {
        return other.line == row.line && other.transactionID == row.transactionID
      }
      return report.charge.id == known.charge.id
    }
    return self[0].line == row.line
  }

  /// One row for what happened to a charge at a moment, and what that means.
  ///
  /// - Parameter isRevoked: Whether an earlier row says that the charge was refunded or upgraded.
  private func told(_ charges: HistoryCharges, isRevoked: Bool) -> (FactRow, FactRow.Meaning) {
    let report = lazy.compactMap(charges.report).first
    let isNew = report.map { $0.chargeRecordedAt.iso == self[0].at.iso } ?? false
    let moved = isNew ? nil : first { $0.isMoveByApple(charges) }
    func meaning(_ row: FactRow) -> FactRow.Meaning {
      switch row.meaning {
      case .charge where report != nil && !isNew && moved == nil: .detail
      case .revocation where isRevoked && !row.isReversal: .detail
      // An import places what it records.
      case .owner where isNew && row.change?.previousOwner == nil: .decision
      case let meaning: meaning
      }
    }
    let meanings = map(meaning)
    let first = meanings.indices.max { meanings[$0].rawValue < meanings[$1].rawValue } ?? 0
    var row = self[first]
    let owner = report.map { isNew ? charges.owner(of: $0, in: self) : "" } ?? ""
    let began = accessInWords(began: true)
    let ended = accessInWords(began: false)
    let moves = compactMap(\.move)
    var story: String? =
      switch meanings[first] {
      case _ where moves.count > 1:
        moves.withoutRepetition.map { move in
          "\(Count.text(moves.count { $0 == move }, "charge")) moved \(move)"
        }.joined(separator: ". ")
      case .revocation, .owner: row.story
      case _ where isNew: report.map { $0.text + owner }
      case .charge:
        moved.flatMap { row in
          report.flatMap { report in
            row.line.map {
              "Apple moved \(report.charge.productID), charged \(report.charge.date.dayName), to "
                + "original transaction \($0.originalTransactionID)"
            }
          }
        }
      case .access: nil
      case .detail, .status, .decision: row.story
      }
    if meanings[first] == .revocation, let date = row.evidenceDate,
      contains(where: { $0.meaning == .charge && ($0.evidenceDate ?? date) > date })
    {
      story = story.map { "\($0); Apple had reversed it when that was reported" }
    }
    let access = [began, ended].compactMap(\.self)
    if meanings[first] == .access, compactMap(\.access).count == 1 {
      // Its own sentence has the end of access, too.
      row.parts = enumerated().filter { $0.offset != first }.map(\.element)
    } else if story != nil || !access.isEmpty {
      row.sentence =
        story.map { [("\($0).", nil)] } ?? (meanings[first] == .access ? [] : row.sentence)
      if !row.sentence.isEmpty, !access.isEmpty { row.sentence.append((" ", nil)) }
      if !access.isEmpty { row.sentence.append((access.joined(separator: " "), nil)) }
      (row.isStory, row.parts) = (true, self)
      row.parts[first].anchor = nil
    } else {
      row.parts = enumerated().filter { $0.offset != first }.map(\.element)
    }
    if isNew, access.isEmpty, meanings[first].rawValue <= FactRow.Meaning.charge.rawValue,
      allSatisfy({ $0.meaning != .status || $0.isRoutine })
    {
      row.run = report.map { ($0.isRenewal, owner) }
    }
    return (row, meanings[first] == .detail && isNew ? .charge : meanings[first])
  }

  /// The entitlements that began or ended, as in `Access to “premium” and “pro” ended.`.
  private func accessInWords(began: Bool) -> String? {
    let names = Set(compactMap(\.access).filter { $0.began == began }.map(\.entitlement)).sorted()
      .map { "“\($0)”" }
    guard let last = names.last else { return nil }
    let list =
      names.count > 1 ? "\(names.dropLast().joined(separator: ", ")) and \(last)" : last
    return "Access to \(list) \(began ? "began" : "ended")."
  }
}

extension FactRow {
  /// Whether it is folded below a later one: both are renewals, or charges first reported at once.
  fileprivate func continues(_ later: FactRow) -> Bool {
    guard line != nil, line == later.line, let run, let other = later.run, run.owner == other.owner
    else { return false }
    return run.isRenewal && other.isRenewal || at.iso == later.at.iso
  }

  /// Whether Apple reported a charge for the first time under another original transaction.
  fileprivate func isMoveByApple(_ charges: HistoryCharges) -> Bool {
    guard meaning == .charge, let report = charges.report(self) else { return false }
    return line != report.charge.id.line && report.recordedAt.iso == at.iso
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
        EnumText.sentence(String(sentence[$0.upperBound...].dropLast())).withTimesForPeople
      }
    case .action(.claim(let claim)):
      "\(claim.transaction.productID) was submitted; its owner did not change"
    default: nil
    }
  }
}

extension TransactionRecord {
  /// What a refund, its reversal or an upgrade is called; nil for any other report.
  fileprivate func story(isReversal: Bool) -> String? {
    let name = "\(key.productID), charged \(chargedAt.dayName),"
    if isReversal { return "The refund of \(name) was reversed" }
    if let revocation = revocation.revocation {
      return "\(name) \(revocation.isRefund ? "was refunded" : "is no longer shared")"
    }
    return isUpgraded ? "\(name) was replaced by an upgrade" : nil
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

  /// See ``FactRow/meaning``.
  var meaning: FactRow.Meaning {
    switch self {
    case .ownership(let change) where change.action == .placed: .owner
    case .ownership(let change) where !change.changesOwner: .detail
    case .ownership(let change): change.previousOwner == nil ? .decision : .owner
    case .evidence(.transaction(let record)):
      record.revocation.revocation != nil || record.isUpgraded ? .revocation : .charge
    case .evidence(.renewalStatus): .status
    case .evidence, .action: .detail
    }
  }

  /// See ``FactRow/isRoutine``.
  var isRoutine: Bool {
    if case .evidence(.renewalStatus(let status, _)) = self {
      status.autoRenews != false && [nil, .undisturbed].contains(status.phase)
    } else {
      false
    }
  }

  /// See ``FactRow/change``.
  var change: OwnershipChange? {
    if case .ownership(let change) = self { change } else { nil }
  }
}

extension LedgerEvent.Kind {
  /// See ``FactRow/meaning``.
  var meaning: FactRow.Meaning {
    switch self {
    case .entitlementGranted, .entitlementExpired, .entitlementRevoked: .access
    case .transactionRecorded, .ownerDecided, .transactionClaimed, .ownerCorrected,
      .entitlementExtended:
      .detail
    default: .status
    }
  }
}
