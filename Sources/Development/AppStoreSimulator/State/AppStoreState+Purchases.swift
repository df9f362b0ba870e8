import struct Foundation.UUID
import Subscriptions

struct PurchaseOrder {
  let customer: Int
  let app: Int
  let product: SimulatedProduct
  var device: DeviceID?  // Nil in Settings
  var account: AppAccountID?
  var appAccountToken: UUID?
  var quantity = 1
  var offer: SimulatedOffer?
}

extension AppStoreState {
  /// When a purchase within an active subscription group takes effect.
  ///
  /// App Store Connect help, "Overview of subscription levels": an upgrade immediately, a downgrade
  /// at the next renewal, a crossgrade immediately if the durations are equal, otherwise at the
  /// next renewal.
  private enum PlanChange {
    case none
    case atOnce
    case atRenewal

    init(from old: SimulatedProduct, to new: SimulatedProduct) {
      if old.id == new.id {
        self = .none
      } else if new.level != old.level {
        self = new.level < old.level ? .atOnce : .atRenewal
      } else {
        self = new.period == old.period ? .atOnce : .atRenewal
      }
    }
  }

  mutating func buy(_ order: PurchaseOrder) throws -> SimulatedEvent {
    guard customers[order.customer].cardWorks else {
      throw SimulationError(.paymentDeclined, "The card of this Apple ID is declined.")
    }
    guard (1...10).contains(order.quantity),
      order.quantity == 1 || order.product.type == .consumable
    else {
      throw SimulationError(.notPossible, "The quantity must be 1, or up to 10 for a consumable.")
    }
    switch order.product.type {
    case .autoRenewable: return try subscribe(order)
    case .consumable, .nonRenewing: return buyOnce(order)
    case .nonConsumable:
      if let owned = ownedCharge(of: order) { return redownload(owned, order) }
      return buyOnce(order)
    }
  }

  // MARK: Once

  private mutating func buyOnce(_ order: PurchaseOrder) -> SimulatedEvent {
    let line = openLine(customer: order.customer, app: order.app, group: nil)
    let charge = record(
      Terms(
        line: line, product: order.product, kind: .purchase, start: now.wholeSecond,
        quantity: order.quantity, periodType: order.offer == nil ? .normal : .offer,
        offer: order.offer, priceMilliunits: order.product.priceMilliunits,
        appAccountToken: order.appAccountToken, account: order.account))
    return note(.boughtOnce, charge: charge, by: order.account)
  }

  /// The customer's existing charge for a non-consumable.
  private func ownedCharge(of order: PurchaseOrder) -> Int? {
    customers[order.customer].lines.lazy
      .flatMap { lines[$0].charges }
      .first { charges[$0].product.id == order.product.id && charges[$0].stands }
  }

  /// Buying an owned product again is free and assigns another transaction ID, like a restore.
  private mutating func redownload(_ charge: Int, _ order: PurchaseOrder) -> SimulatedEvent {
    let name = rename(charge)
    if let device = order.device { adopt([charge: name], on: device, app: order.app) }
    return note(.restored, charge: charge, as: name, by: order.account)
  }

  // MARK: Subscriptions

  private mutating func subscribe(_ order: PurchaseOrder) throws -> SimulatedEvent {
    guard let line = ownLine(of: order) else {
      let line = openLine(
        customer: order.customer, app: order.app, group: order.product.group)
      return beginRun(of: line, order, as: .subscribed)
    }
    guard let current = validCharge(of: line), let end = charges[current].expiresDate,
      end > now, let renewal = lines[line].renewal
    else { return beginRun(of: line, order, as: .resubscribed) }

    switch PlanChange(from: charges[current].product, to: order.product) {
    case .atOnce:
      supersede(line, by: order.product)
      return beginRun(
        of: line, order, as: order.offer == nil ? .upgraded : .offerRedeemed(.upgrade),
        inherits: true)
    case .none where order.offer != nil:
      return changeRenewal(of: line, order, as: .offerRedeemed(.renewal))
    case .none where renewal.isOn && renewal.product.id == order.product.id:
      throw SimulationError(
        .notPossible, "This Apple ID is already subscribed to \(order.product.id).")
    case .none, .atRenewal:
      return changeRenewal(
        of: line, order,
        as: order.offer == nil
          ? .renewalProductChanged(order.product.id) : .offerRedeemed(.downgrade))
    }
  }

  private func ownLine(of order: PurchaseOrder) -> Int? {
    customers[order.customer].lines.first {
      lines[$0].app == order.app && lines[$0].group == order.product.group
        && lines[$0].ownership == .purchased && lines[$0].next == nil
    }
  }

  /// Charges a first period now; with `inherits`, a purchase without a token keeps the previous
  /// one.
  private mutating func beginRun(
    of line: Int, _ order: PurchaseOrder, as kind: SimulatedEvent.Kind, inherits: Bool = false
  ) -> SimulatedEvent {
    let token = order.appAccountToken ?? (inherits ? lines[line].renewal?.appAccountToken : nil)
    let previous = lines[line].renewal
    let start = now.wholeSecond
    lines[line].renewal = Renewal(
      switchedAt: previous.map { $0.isOn ? $0.switchedAt : now } ?? nil, product: order.product,
      appAccountToken: token, account: order.account, extensions: previous?.extensions ?? [],
      anchor: start, schedule: previous?.schedule ?? 0)

    var terms = Terms(
      line: line, product: order.product, kind: .purchase, start: start,
      priceMilliunits: order.product.priceMilliunits, appAccountToken: token,
      account: order.account)
    if let offer = order.offer {
      terms.offer = offer
      terms.periodType = .offer
      terms.priceMilliunits = offer.priceMilliunits
      terms.end = advancePeriod(of: line)
    } else if let introduction = introduction(for: order) {
      terms.periodType = introduction.priceMilliunits == 0 ? .trial : .intro
      terms.priceMilliunits = introduction.priceMilliunits
      let end = periodLengths(lines[line].environment)
        .end(of: introduction.period, count: 1, from: start)
      terms.end = end
      lines[line].renewal?.anchor = end
    } else {
      terms.end = advancePeriod(of: line)
    }
    if let group = order.product.group {
      customers[order.customer].introducedGroups.insert(group)
    }
    let charge = record(terms)
    scheduleRenewal(of: line)
    return note(kind, charge: charge, by: order.account)
  }

  /// The introductory offer, for Apple IDs that never subscribed in the group.
  private func introduction(for order: PurchaseOrder) -> SimulatedProduct.IntroductoryOffer? {
    guard let group = order.product.group,
      !customers[order.customer].introducedGroups.contains(group)
    else { return nil }
    return order.product.introductoryOffer
  }

  /// Marks all unexpired charges as upgraded, including a renewal charged early.
  private mutating func supersede(_ line: Int, by successor: SimulatedProduct) {
    for number in lines[line].charges where charges[number].stands {
      guard let end = charges[number].expiresDate, end > now else { continue }
      charges[number].upgradedAt = now.wholeSecond
      touch(number)
      for share in charges[number].shares where charges[share].stands {
        if successor.isFamilyShareable {
          charges[share].upgradedAt = now.wholeSecond
          touch(share)
        } else {
          revoke(share, reason: "0", as: .familyAccessRevoked)
        }
      }
    }
  }

  /// Turns auto-renew on with the requested product and offer, without a charge.
  private mutating func changeRenewal(
    of line: Int, _ order: PurchaseOrder, as kind: SimulatedEvent.Kind
  ) -> SimulatedEvent {
    let wasOn = lines[line].renewal?.isOn ?? false
    switchRenewal(of: line, on: true)
    lines[line].renewal?.product = order.product
    lines[line].renewal?.offer = order.offer
    lines[line].renewal?.account = order.account
    if let token = order.appAccountToken { lines[line].renewal?.appAccountToken = token }
    if !wasOn { note(.autoRenewTurnedOn, line: line, by: order.account) }
    return note(kind, line: line, by: order.account)
  }

  // MARK: Charging

  struct Terms {
    let line: Int
    let product: SimulatedProduct
    let kind: SimulatedCharge.Kind
    let start: Timestamp
    var end: Timestamp?
    var quantity = 1
    var periodType = PeriodType.normal
    var offer: SimulatedOffer?
    var priceMilliunits: Int64
    var appAccountToken: UUID?
    var account: AppAccountID?
  }

  mutating func openLine(
    customer: Int, app: Int, group: String?, ownership: OwnershipType = .purchased,
    sharedFrom: Int? = nil
  ) -> Int {
    let environment = customers[customer].environment
    let id = OriginalTransactionID(String(nextNumber(environment)))
    lines.append(
      SimulatedSubscription(
        id: id, customer: customer, app: app, environment: environment, group: group,
        ownership: ownership, sharedFrom: sharedFrom))
    let number = lines.count - 1
    lineNumbers[id] = number
    customers[customer].lines.append(number)
    return number
  }

  /// Books a charge, and its shares for the family.
  mutating func record(_ terms: Terms) -> Int {
    let number = book(terms)
    let line = lines[terms.line]
    if line.ownership == .purchased, terms.product.isFamilyShareable {
      for member in customers[line.customer].familyMembers { share(number, with: member) }
    }
    return number
  }

  mutating func book(_ terms: Terms) -> Int {
    let line = lines[terms.line]
    // The first charge's ID is the original transaction ID.
    let transactionNumber =
      line.charges.isEmpty ? Int(line.id.rawValue) : nextNumber(line.environment)
    guard let transactionNumber else { preconditionFailure("Original IDs are numbers.") }
    let lineItem =
      terms.product.type == .autoRenewable ? nextNumber(line.environment) : nil
    charges.append(
      Charge(
        line: terms.line, product: terms.product, kind: terms.kind,
        transactionNumber: transactionNumber,
        webOrderLineItemID: lineItem.map { WebOrderLineItemID(String($0)) }, madeAt: now,
        purchaseDate: terms.start, expiresDate: terms.end, quantity: terms.quantity,
        periodType: terms.periodType, offer: terms.offer,
        priceMilliunits: terms.priceMilliunits, appAccountToken: terms.appAccountToken,
        account: terms.account))
    let number = charges.count - 1
    chargeNumbers[charges[number].transactionID] = number
    lines[terms.line].charges.append(number)
    touch(number)
    return number
  }
}

extension AppStoreState {
  /// A restored transaction ID is often close to the original one.
  private static let mostNeighbours = 4

  /// Assigns new transaction IDs to all charges of an app on one device, like a restore in the
  /// original StoreKit.
  ///
  /// As seen in real receipts: product, dates, original ID and web_order_line_item_id stay,
  /// transaction IDs and the original purchase date don't. Consumables and non-renewing
  /// subscriptions are not restored.
  mutating func restore(on id: DeviceID, app: Int) throws -> [SimulatedEvent] {
    let device = try device(id)
    let before = events.count
    var names: [Int: TransactionID] = [:]
    for line in customers[device.customer].lines where lines[line].app == app {
      for charge in lines[line].charges {
        switch charges[charge].product.type {
        case .consumable, .nonRenewing: continue
        case .autoRenewable, .nonConsumable: break
        }
        let name = rename(charge)
        names[charge] = name
        note(.restored, charge: charge, as: name, by: device.account)
      }
    }
    adopt(names, on: id, app: app)
    return Array(events[before...])
  }

  /// Makes a device's receipts use these IDs from now on.
  mutating func adopt(_ names: [Int: TransactionID], on id: DeviceID, app: Int) {
    guard let device = devices[id] else { return }
    var restoration =
      device.restorations[app].map { customers[device.customer].restorations[$0] }
      ?? Customer.Restoration()
    for (charge, name) in names {
      restoration.names[charge] = Customer.Restoration.Name(id: name, givenAt: now.wholeSecond)
    }
    customers[device.customer].restorations.append(restoration)
    devices[id]?.restorations[app] = customers[device.customer].restorations.count - 1
  }

  /// Assigns an additional ID to a charge.
  mutating func rename(_ number: Int) -> TransactionID {
    let charge = charges[number]
    let neighbour = charge.aliases.count + 1
    let name: TransactionID
    if neighbour <= Self.mostNeighbours, life.chance(0.5) {
      name = TransactionID(String(charge.transactionNumber + neighbour))
    } else {
      name = TransactionID(String(nextNumber(lines[charge.line].environment)))
    }
    charges[number].aliases.append(name)
    chargeNumbers[name] = number
    return name
  }

  mutating func finish(_ number: Int) throws -> SimulatedCharge {
    guard charges[number].product.type == .consumable else {
      throw SimulationError(.notPossible, "Only consumables leave the receipts when finished.")
    }
    charges[number].finishedAt = charges[number].finishedAt ?? now
    return truth(of: number)
  }
}

// Family Sharing: members have their own original transactions, which nothing in Apple's data links
// to the purchaser's.
extension AppStoreState {
  /// https://support.apple.com/en-us/108380: up to five members in addition to the organizer.
  private static let mostFamilyMembers = 5

  mutating func addFamilyMember(_ member: Int, of organizer: Int) throws {
    guard member != organizer, customers[member].organizer == nil,
      customers[member].familyMembers.isEmpty, customers[organizer].organizer == nil
    else { throw SimulationError(.notPossible, "One of them is already in a family.") }
    guard customers[member].environment == customers[organizer].environment else {
      throw SimulationError(.notPossible, "Sandbox and production can't share a family.")
    }
    guard customers[organizer].familyMembers.count < Self.mostFamilyMembers else {
      throw SimulationError(.notPossible, "A family can share with at most five members.")
    }
    customers[member].organizer = organizer
    customers[organizer].familyMembers.append(member)
    for line in customers[organizer].lines {
      guard let charge = validCharge(of: line), charges[charge].product.isFamilyShareable,
        charges[charge].expiresDate.map({ $0 > now }) ?? true
      else { continue }
      share(charge, with: member, joins: true)
    }
  }

  /// Removes a member from the family and ends the active shares.
  mutating func removeFamilyMember(_ member: Int) throws -> [SimulatedEvent] {
    guard let organizer = customers[member].organizer else {
      throw SimulationError(
        .notPossible, "\(customers[member].appleID) is not a member of a family.")
    }
    let before = events.count
    customers[member].organizer = nil
    customers[organizer].familyMembers.removeAll { $0 == member }
    for line in customers[member].lines where lines[line].ownership == .familyShared {
      for charge in lines[line].charges where charges[charge].stands {
        guard charges[charge].expiresDate.map({ $0 > now }) ?? true else { continue }
        revoke(charge, reason: "0", as: .familyAccessRevoked)
      }
    }
    return Array(events[before...])
  }

  /// Books a member's share of a purchaser's charge, under the member's own original transaction.
  ///
  /// `joins`: the reason is a new member, not a new charge.
  mutating func share(_ number: Int, with member: Int, joins: Bool = false) {
    guard !customers[member].isDeleted else { return }
    let charge = charges[number]
    let source = lines[charge.line]
    let existing = customers[member].lines.first { lines[$0].sharedFrom == charge.line }
    let line =
      existing
      ?? openLine(
        customer: member, app: source.app, group: source.group, ownership: .familyShared,
        sharedFrom: charge.line)
    let share = book(
      Terms(
        line: line, product: charge.product, kind: charge.kind, start: charge.purchaseDate,
        end: charge.expiresDate, periodType: charge.periodType, priceMilliunits: 0))
    charges[number].shares.append(share)
    let kind: SimulatedEvent.Kind =
      switch charge.kind {
      case _ where source.group == nil: .boughtOnce
      case _ where existing == nil: .subscribed
      case .renewal where !joins: .renewed
      case .recovery where !joins: .recovered
      case .purchase where !joins && lines[line].charges.contains(where: wasReplacedNow): .upgraded
      case .purchase, .renewal, .recovery: .resubscribed
      }
    note(kind, charge: share)
  }

  private func wasReplacedNow(_ number: Int) -> Bool {
    charges[number].upgradedAt == now.wholeSecond
  }
}
