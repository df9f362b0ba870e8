import Subscriptions

/// Family Sharing: members have lines of their own, which nothing in Apple's data links to the
/// purchaser's.
extension AppStoreState {
  /// https://support.apple.com/en-us/108380: up to five members beside the organizer.
  private static let mostFamilyMembers = 5

  mutating func addFamilyMember(_ member: Int, of organizer: Int) throws {
    guard member != organizer, customers[member].organizer == nil,
      customers[member].familyMembers.isEmpty, customers[organizer].organizer == nil
    else { throw SimulationError(.notPossible, "Somebody of them is in a family already.") }
    guard customers[member].environment == customers[organizer].environment else {
      throw SimulationError(.notPossible, "Sandbox and production do not mix.")
    }
    guard customers[organizer].familyMembers.count < Self.mostFamilyMembers else {
      throw SimulationError(.notPossible, "A family has at most five members to share with.")
    }
    customers[member].organizer = organizer
    customers[organizer].familyMembers.append(member)
    for line in customers[organizer].lines {
      guard let charge = standingCharge(of: line), charges[charge].product.isFamilyShareable,
        charges[charge].expiresDate.map({ $0 > now }) ?? true
      else { continue }
      share(charge, with: member, joins: true)
    }
  }

  /// Takes a member out of the family: what still runs of the shares ends now.
  mutating func removeFamilyMember(_ member: Int) throws -> [SimulatedEvent] {
    guard let organizer = customers[member].organizer else {
      throw SimulationError(
        .notPossible, "\(customers[member].appleID) is no member of a family.")
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

  /// Books a member's share of a purchaser's charge, on the member's own line.
  ///
  /// `joins`: not because of a new charge, but of a new member.
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
