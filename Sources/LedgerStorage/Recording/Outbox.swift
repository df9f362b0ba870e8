import JSONText
import Postgres
import Subscriptions

extension Recorder {
  /// Locks accounts and reads their holdings and published entitlements, without erased ones.
  ///
  /// The lock orders the events of an account, and makes each describe the difference from the one
  /// before.
  ///
  /// - Parameters:
  ///   - names: The known account ids, of accounts that are not erased.
  ///   - waits: Whether to wait for accounts that another transaction has locked; else they are
  ///     returned as busy.
  func lockPublished(
    _ keys: Set<AccountKey>, knowing names: [AccountKey: String] = [:], waits: Bool = true,
    in transaction: Transaction
  ) async throws -> (published: [PublishedEntitlements], busy: Set<AccountKey>) {
    var names = names.filter { keys.contains($0.key) }
    let known = try await transaction.read(KnownAccount.query(keys.subtracting(names.keys)))
    names.merge(known.filter { $0.value.erasedAt == nil }.mapValues(\.id)) { $1 }
    guard !names.isEmpty else { return ([], []) }
    let (locked, published) = try await transaction.read(
      Query.all(
        PublishedEntitlements.lock(names.values, waits: waits).map {
          Query($0) { try $0.decode(String.self) }
        }
      ), PublishedEntitlements.query(names))
    let ids = Set(locked.joined().map(AccountID.init))
    let busy = Set(names.filter { !ids.contains(AccountID($0.value)) }.keys)
    return (published.filter { !busy.contains($0.key) }, busy)
  }
}

/// The statements that write a change and publish it to accounts, and the channels to notify after
/// the commit.
struct Outbox: Sendable {
  /// Run in order; the seals follow.
  var writes: [SQL] = []
  var seals: [AccountChain.Seal] = []
  var channels: Set<ChangeNotifier.Channel> = []
  /// The new ends of original transactions' chains.
  var heads: [OriginalTransactionKey: OriginalTransactionRows.Head] = [:]

  var statements: [SQL] { writes + AccountChain.statements(seals) }

  /// Publishes a recording to locked accounts.
  init(
    _ newEvents: RecordingEvents, _ accounts: [PublishedEntitlements], terms: AccessTerms,
    at now: Timestamp
  ) {
    let published = accounts.map { AccountEvents($0, terms: terms, at: now) }
    self.init(
      events: newEvents.events(with: published), published,
      rescheduling: published.filter { newEvents.holders.contains($0.key) || $0.changesPublished },
      at: now)
  }

  /// - Parameter rescheduled: The accounts whose next change by time may have moved.
  init(
    events: [LedgerEvent] = [], _ newEvents: [AccountEvents],
    rescheduling rescheduled: [AccountEvents], at now: Timestamp
  ) {
    let events = events + newEvents.flatMap(\.events)
    writes =
      EventRow.insert(events) + AccountEvents.write(newEvents)
      + rescheduled.flatMap { $0.schedule(at: now) }
    if !events.isEmpty { channels.insert(.events) }
    if rescheduled.compactMap(\.nextChange).contains(where: {
      $0 < now + ChangeNotifier.pollInterval
    }) {
      channels.insert(.jobs)
    }
  }
}

extension ChangeNotifier {
  func notify(_ channels: Set<Channel>) {
    for channel in channels { notify(channel) }
  }
}

/// The events of a recording, and the accounts with new events or changed holdings.
struct RecordingEvents {
  /// In the order of publishing, without those of entitlements.
  private(set) var events: [LedgerEvent] = []
  private(set) var holders: Set<AccountKey> = []
  private(set) var names: [AccountKey: String] = [:]
  /// Nothing is published about erased accounts.
  private(set) var erased: Set<AccountKey> = []

  init(_ recording: Recording, orders: [LedgerEvent], at now: Timestamp) {
    for original in recording.distinctOriginals {
      names.merge(original.names) { first, _ in first }
      erased.formUnion(original.line.history.erasures.keys)
      guard !original.items.isEmpty else { continue }
      events +=
        OriginalTransactionEvents(
          before: original.before.line, ruleBefore: original.before.rule, after: original.line,
          rule: original.rule, items: original.items
        ).events(at: now)
      holders.formUnion(original.changedHolders)
    }
    events += orders
  }

  /// The accounts with new events or changed holdings.
  var accounts: Set<AccountKey> {
    holders.union(events.compactMap(\.account)).subtracting(erased)
  }

  /// The events without those of erased accounts; moved bindings get the account's entitlements.
  func events(with newEvents: [AccountEvents]) -> [LedgerEvent] {
    let newEvents = Dictionary(uniqueKeysWithValues: newEvents.map { ($0.key, $0) })
    return events.compactMap { event in
      guard let account = event.account else { return event }
      guard let published = newEvents[account] else { return nil }
      var event = event
      if [.bindingClosed, .bindingOpened].contains(event.kind) {
        event.data.entitlements = published.entitlements
      }
      return event
    }
  }
}

extension RecordedOriginalTransaction {
  fileprivate var changedHolders: Set<AccountKey> {
    // Newly linked original transactions were held separately.
    holdings.changedAccounts.union(holdings.isOfNewlyLinked ? before.accounts : [])
  }
}

/// The stored form of events: JSON with the names and formats of the HTTP API.
enum EventRow {
  /// Appends events in their order.
  static let insert = InsertStatement<LedgerEvent>(
    into: "event",
    columns: [
      Column("type", \.kind), Column("occurred_at", \.occurredAt),
      Column("account_key", \.account),
      // The stream of an event of no account is read from its data: see `SQL.eventStream`.
      Column("data") { CompressedText(text($0.data), isPlain: $0.account == nil) },
    ])

  static func text(_ data: EventData) -> String {
    var json = JSONWriter(capacity: 256)
    json.object { json in
      json.memberIfPresent("environment", data.line?.environment)
      json.memberIfPresent("original_transaction_id", data.line?.originalTransactionID)
      json.memberIfPresent("transaction_id", data.transactionID)
      json.memberIfPresent("product_id", data.productID)
      if let terms = data.terms {
        json.member("quantity", terms.quantity)
        json.member("ownership_type", terms.ownershipType)
        json.member("period_type", terms.periodType)
        json.memberIfPresent("offer_type", terms.offerType)
        json.memberIfPresent("offer_id", terms.offerID)
        json.memberIfPresent("storefront", terms.storefront)
        json.memberIfPresent("price_milliunits", terms.price?.amountMilliunits)
        json.memberIfPresent("currency", terms.price?.currency)
      }
      json.memberIfPresent("previous_product_id", data.previousProductID)
      json.memberIfPresent("order_id", data.orderID)
      json.memberIfPresent("purchased_at", data.purchasedAt)
      json.memberIfPresent("expires_at", data.expiresAt)
      json.memberIfPresent("revoked_at", data.revokedAt)
      json.memberIfPresent("grace_ends_at", data.graceEndsAt)
      json.memberIfPresent("auto_renewing", data.autoRenewing)
      json.memberIfPresent("auto_renew_product_id", data.autoRenewProductID)
      json.memberIfPresent("owned", data.isOwner)
      json.memberIfPresent("rule", data.rule)
      json.memberIfPresent("because", data.because)
      json.memberIfPresent("counterpart", data.counterpart?.rawValue)
      json.memberIfPresent("entitlement", data.entitlement)
      json.memberIfPresent("entitlements", data.entitlements)
      json.memberIfPresent("app_account_token", data.appAccountToken)
    }
    return json.text
  }
}
