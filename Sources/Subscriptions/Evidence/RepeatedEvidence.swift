/// Apple's answers about one original transaction that only repeat recorded facts.
///
/// Without items, they are not read by the rule until other evidence gives one a meaning, such as
/// a contradicting answer of an earlier date: so every order of arrival gives the same decisions.
package struct RepeatedEvidence: Hashable, Sendable {
  struct Form: Hashable, Codable, Sendable {
    var hasExpiry: Bool
    var hasToken: Bool
    var revocation: RevocationStatus
  }

  /// The dates of the latest answers, by the transactions' positions in the order of recording.
  private(set) var answers: [Form: [Int: Timestamp]] = [:]
  /// By date.
  package internal(set) var statuses: [RenewalStatus] = []

  /// Limits the size of the stored row.
  package static let mostStatuses = 50

  package init() {}

  package var isEmpty: Bool { answers.isEmpty && statuses.isEmpty }

  package var asOf: Timestamp? {
    (answers.values.flatMap(\.values) + [statuses.last?.asOf].compactMap(\.self)).max()
  }

  // MARK: Transactions

  mutating func add(_ form: Form, about position: Int, asOf: Timestamp) {
    answers[form, default: [:]][position] = max(answers[form]?[position] ?? asOf, asOf)
  }

  mutating func removeAnswers(about position: Int) {
    for form in answers.keys { answers[form]?[position] = nil }
    answers = answers.filter { !$0.value.isEmpty }
  }

  /// The answers about a transaction, as if it had just been received.
  func records(of transaction: StoreTransaction, at position: Int) -> [TransactionRecord] {
    answers.compactMap { form, dates in
      dates[position].map { TransactionRecord(repeating: transaction, form, asOf: $0) }
    }.sorted { $0.asOf < $1.asOf }
  }

  // MARK: Renewal statuses

  /// Inserts a status; a long run thins out with age, so that between two neighbors lies at most a
  /// fifth of their age.
  ///
  /// A different status that arrives late is then followed by the next of these.
  mutating func add(_ status: RenewalStatus) {
    let position = statuses.lastIndex { $0.asOf <= status.asOf }.map { $0 + 1 } ?? 0
    statuses.insert(status, at: position)
    guard statuses.count > Self.mostStatuses else { return }
    let dates = statuses.map { Double($0.asOf.milliseconds) }
    let least = dates.indices.dropFirst().dropLast().map { index in
      (
        index: index,
        gap: (dates[index + 1] - dates[index - 1]) / (dates[dates.count - 1] - dates[index] + 1)
      )
    }.min { $0.gap < $1.gap }
    if let least { statuses.remove(at: least.index) }
  }
}

extension TransactionRecord {
  /// An answer of which every fact is known.
  fileprivate init(
    repeating known: StoreTransaction, _ form: RepeatedEvidence.Form, asOf: Timestamp
  ) {
    self.init(
      key: known.key, asOf: asOf, kind: known.kind,
      purchaseDate: max(known.purchaseDate, known.chargedAt),
      expiresDate: form.hasExpiry ? known.expiresDate?.value : nil, quantity: known.quantity,
      appAccountToken: form.hasToken ? known.appAccountToken?.value : nil,
      ownershipType: known.ownershipType, periodType: known.periodType, revocation: form.revocation)
  }

  fileprivate var form: RepeatedEvidence.Form {
    RepeatedEvidence.Form(
      hasExpiry: expiresDate != nil, hasToken: appAccountToken != nil, revocation: revocation)
  }
}

extension StoreTransaction {
  /// The form of an answer that says nothing new except for its date; nil if it does.
  func form(ofRepetition record: TransactionRecord) -> RepeatedEvidence.Form? {
    var (merged, repeated) = (self, self)
    merged.merge(record)
    repeated.merge(TransactionRecord(repeating: self, record.form, asOf: record.asOf))
    return merged == repeated && merged.statesTheSame(as: self) ? record.form : nil
  }
}

extension EvidenceHistory {
  /// The history with the repetitions, as if every answer had its item.
  package func adding(_ repeated: [OriginalTransactionKey: RepeatedEvidence]) -> EvidenceHistory {
    guard repeated.contains(where: { !$0.value.isEmpty }) else { return self }
    var copy = self
    for (line, repeated) in repeated where !repeated.isEmpty {
      for (position, transaction) in transactions(of: line).enumerated() {
        for record in repeated.records(of: transaction, at: position) {
          copy.add(record, recorded: transaction.recorded)
        }
      }
      for status in repeated.statuses { copy.add(status) }
    }
    return copy
  }

  var positionsInLines: [TransactionKey: Int] {
    var counts: [OriginalTransactionKey: Int] = [:]
    return transactions.reduce(into: [:]) { positions, transaction in
      positions[transaction.key] = counts[transaction.key.line, default: 0]
      counts[transaction.key.line, default: 0] += 1
    }
  }

  func transactions(of line: OriginalTransactionKey) -> [StoreTransaction] {
    transactions.filter { $0.key.line == line }
  }

  /// Whether the rule gives the same with and without a status: the one before says the same, and
  /// between them lies no date from which the rule reads statuses again.
  func isRepeated(_ status: RenewalStatus, among charges: [Charge]) -> Bool {
    guard let previous = statuses.last(where: { $0.precedes(status) }),
      status.saysNothingMore(than: previous)
    else { return false }
    // Of different statuses of one date, each can settle something else.
    let isAlone = !statuses.contains {
      $0.asOf == status.asOf || $0.asOf == previous.asOf && $0 != previous
    }
    guard isAlone else { return false }
    // A billing retry lasts until its latest status, even beyond the usual time.
    if status.phase == .billingRetry {
      let before = charges.filter { $0.date <= status.asOf }
      let running = before.last { $0.isSubscription && !$0.neverBegan }?.date
      let retry = RuleConstants.standard.billingRetry
      let isLong = before.contains { charge in
        charge.date >= running ?? charge.date
          && charge.end.map { $0 + retry <= status.asOf } ?? false
      }
      if isLong { return false }
    }
    let between = charges.filter { charge in
      [charge.date - RuleConstants.standard.earlyCharge, charge.date, charge.end].compactMap(\.self)
        .contains { previous.asOf <= $0 && $0 <= status.asOf }
    }
    // Subscriptions renew unless Apple says otherwise.
    guard status.isOfUndisturbedRenewal else { return between.isEmpty }
    return between.allSatisfy {
      status.autoRenewProductID == nil || status.autoRenewProductID == $0.productID
    }
  }
}

extension RenewalStatus {
  fileprivate func saysTheSame(as other: RenewalStatus) -> Bool {
    var copy = self
    copy.asOf = other.asOf
    return copy == other
  }

  /// Whether it says the same, or only lacks the token, which is not in receipts.
  fileprivate func saysNothingMore(than other: RenewalStatus) -> Bool {
    var copy = self
    copy.appAccountToken = appAccountToken ?? other.appAccountToken
    return copy.saysTheSame(as: other)
  }

  fileprivate var isOfUndisturbedRenewal: Bool {
    autoRenews == true && (phase ?? .undisturbed) == .undisturbed && expirationIntent == nil
  }
}

// MARK: - Coding

extension RepeatedEvidence: Codable {
  /// One answer about transactions, whose positions are ranges, as most answers are about all.
  private struct Answer: Codable {
    var asOf: Timestamp
    var form: Form
    var transactions: [ClosedRange<Int>]
  }

  private struct Statuses: Codable {
    var first: RenewalStatus
    var asOf: [Timestamp]
  }

  private enum CodingKeys: CodingKey { case answers, statuses }

  package init(from decoder: any Decoder) throws {
    let values = try decoder.container(keyedBy: CodingKeys.self)
    for answer in try values.decode([Answer].self, forKey: .answers) {
      for position in answer.transactions.joined() {
        add(answer.form, about: position, asOf: answer.asOf)
      }
    }
    for group in try values.decode([Statuses].self, forKey: .statuses) {
      for asOf in group.asOf {
        var status = group.first
        status.asOf = asOf
        add(status)
      }
    }
  }

  package func encode(to encoder: any Encoder) throws {
    let answers = answers.flatMap { form, dates in
      Dictionary(grouping: dates, by: \.value).map { asOf, dates in
        Answer(asOf: asOf, form: form, transactions: dates.map(\.key).sorted().closedRanges)
      }
    }.sorted { ($0.asOf, $0.transactions[0].lowerBound) < ($1.asOf, $1.transactions[0].lowerBound) }
    var groups: [Statuses] = []
    for status in statuses {
      if let last = groups.indices.last, groups[last].first.saysTheSame(as: status) {
        groups[last].asOf.append(status.asOf)
      } else {
        groups.append(Statuses(first: status, asOf: [status.asOf]))
      }
    }
    var values = encoder.container(keyedBy: CodingKeys.self)
    try values.encode(answers, forKey: .answers)
    try values.encode(groups, forKey: .statuses)
  }
}

extension [Int] {
  /// Ascending numbers as ranges.
  fileprivate var closedRanges: [ClosedRange<Int>] {
    reduce(into: []) { ranges, number in
      if let last = ranges.last, last.upperBound + 1 == number {
        ranges[ranges.count - 1] = last.lowerBound...number
      } else {
        ranges.append(number...number)
      }
    }
  }
}
