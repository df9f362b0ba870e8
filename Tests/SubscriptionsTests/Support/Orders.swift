import Subscriptions

/// Another order of arrival: evidence in any order, people's actions in their own, and
/// each act only after its transactions are known.
func rearranged(_ items: [Item], using generator: inout some RandomNumberGenerator) -> [Item] {
  var actions = items.compactMap { item -> [OwnershipAction]? in
    if case .actions(let actions) = item { actions } else { nil }
  }[...]
  var evidence = items.filter { if case .evidence = $0 { true } else { false } }
    .shuffled(using: &generator)
  var known: Set<TransactionKey> = []
  var result: [Item] = []
  while !evidence.isEmpty || !actions.isEmpty {
    if let next = actions.first, next.allSatisfy({ $0.isPossible(knowing: known) }),
      evidence.isEmpty || Bool.random(using: &generator)
    {
      actions.removeFirst()
      result.append(.actions(next))
    } else if let item = evidence.popLast() {
      if case .evidence(.transaction(let record)) = item { known.insert(record.key) }
      result.append(item)
    } else {
      actions.removeFirst()
    }
  }
  return result
}

/// Divides items into batches that are recorded together, in order.
func batches(_ items: [Item], using generator: inout some RandomNumberGenerator) -> [[Item]] {
  var batches: [[Item]] = []
  for item in items {
    // Acts follow the evidence of their recording, and what people do is recorded apart.
    let lastIsAction = if case .actions = batches.last?.last { true } else { false }
    if batches.isEmpty || lastIsAction || Bool.random(using: &generator) {
      batches.append([item])
    } else {
      batches[batches.count - 1].append(item)
    }
  }
  return batches
}

extension OwnershipAction {
  /// Whether it can be recorded: its transaction is known, or it concerns a whole line.
  func isPossible(knowing known: Set<TransactionKey>) -> Bool {
    transaction.map(known.contains) ?? true
  }
}
