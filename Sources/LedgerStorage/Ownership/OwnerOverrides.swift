import JSONText
import Postgres
package import Subscriptions

extension OwnershipStore {
  /// Assigns a charge to an account or releases it, overriding the ownership rule.
  ///
  /// The override, decisions, holdings, orders, events and the audit log are written in one
  /// database transaction.
  ///
  /// Charges of the original transaction dated before `effectiveFrom` keep their owners; for later
  /// ones, the account counts as this charge's owner. Repeating an override changes and records
  /// nothing, and returns false.
  ///
  /// - Parameters:
  ///   - transaction: The charge or an alias.
  ///   - accountID: The new owner; nil: releases the charge, which is unclaimed until it is
  ///     claimed.
  ///   - effectiveFrom: When the override starts to count for later charges; nil: now.
  /// - Throws: ``LedgerError/unknownTransaction(_:)``, ``LedgerError/unknownAccount(_:)``,
  ///   ``LedgerError/erasedAccount(_:)``, ``LedgerError/mergedAccount(_:into:)``.
  @discardableResult
  package func transfer(
    _ transaction: TransactionKey, to accountID: String?, effectiveFrom: Timestamp? = nil,
    by administrator: Administrator, terms: AccessTerms, at now: Timestamp
  ) async throws -> Bool {
    try await database.withTransaction { database in
      guard let original = try await database.originals([transaction.line], locking: true).first,
        let charge = original.rule.position(of: transaction).map({ original.rule.charges[$0] })
      else { throw LedgerError.unknownTransaction(transaction.transactionID) }
      // Locks the account against a concurrent erasure, and before it, in the usual order, its
      // orders that the charge may fulfil.
      var account: Account?
      if let accountID {
        if let receiver = try await accounts.account(accountID) {
          _ = try await database.query(
            OrderStore.lockOrdersAwaitingPayment(
              of: receiver.key, for: [charge.productID],
              opened: PurchaseOrder.OpeningTimes(purchasedAt: charge.date)))
        }
        account = try await lockAccount(accountID, in: database)
      }

      let last = original.ownerOverride(of: charge)
      let owner = original.line.decisions[charge.id]?.decision.owner
      let isAsPlaced =
        last.map { last in
          last.account == account?.key && owner == last.account
            && last.effectiveFrom == effectiveFrom ?? last.effectiveFrom
        } ?? (account == nil && owner == nil)
      if isAsPlaced {
        await database.rollBack()
        return false
      }
      let ownerOverride = OwnerOverride(
        account: account?.key, transaction: charge.id, effectiveFrom: effectiveFrom ?? now)
      let arrival = EvidenceBatch(
        ownerOverrides: [ownerOverride],
        source: EntrySource(.administrator, id: administrator.entrySourceID))
      let recording = try await recorder.load(arrival, on: [original], in: database)
        .decide(at: now)
      var plan = try await recorder.plan(recording, terms: terms, at: now, in: database)
      let id = charge.id
      var action = administrator.action(
        ownerOverride.isRelease ? .release : .transfer, on: AdministratorAction.subject(id),
        of: account
      ) { json in
        json.member("environment", id.line.environment)
        json.member("original_transaction_id", id.line.originalTransactionID)
        json.member("transaction_id", id.transactionID)
        json.member("product_id", id.productID)
        json.member("effective_from", ownerOverride.effectiveFrom)
      }
      action.previousAccount = owner
      if let owner { action.names[owner] = recording.originals[id.line]?.names[owner] }
      plan.seals.append(action.seal(at: now))
      announce(plan.channels, recording, after: database)
      try await database.commit(with: plan.statements)
      return true
    }
  }

  func lockAccount(_ id: String, in transaction: Transaction) async throws -> Account {
    let results = try await transaction.batch(
      PublishedEntitlements.lock([id]) + [AccountStore.select(account: id)])
    guard let account = try results[1].decode(into: Account.init).first else {
      throw LedgerError.unknownAccount(id)
    }
    guard !account.isErased else { throw LedgerError.erasedAccount(id) }
    if let into = account.mergedInto {
      throw LedgerError.mergedAccount(
        id, into: try await names(of: [into], in: transaction)[into] ?? "unknown")
    }
    return account
  }
}

extension StoredOriginalTransaction {
  fileprivate func ownerOverride(of charge: Charge) -> OwnerOverride? {
    line.history.actions.reversed().lazy.compactMap { recorded in
      if case .ownerOverride(let ownerOverride) = recorded.action { ownerOverride } else { nil }
    }.first { charge.transactions.contains($0.transaction) }
  }
}
