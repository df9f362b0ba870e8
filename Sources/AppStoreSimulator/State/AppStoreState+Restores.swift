import Subscriptions

extension AppStoreState {
  /// A restored transaction id is often a neighbour of the charge's own.
  private static let mostNeighbours = 4

  /// Names all charges of an app anew for one device, as restoring in the old StoreKit does.
  ///
  /// Seen in real receipts: product, dates, original id and web_order_line_item_id stay,
  /// transaction ids and the original purchase date don't. Consumables and non-renewing
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

  /// Lets the receipts of a device use these names from now on.
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

  /// Gives a charge one more name.
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
