import Subscriptions

import struct Foundation.Data

extension AppStoreState {
  mutating func add(_ app: SimulatedApp) throws {
    guard !apps.contains(where: { $0.bundleID == app.bundleID }) else {
      throw SimulationError(.alreadyExists, "There is an app \(app.bundleID) already.")
    }
    var ids = Set(shelf.keys)
    for product in app.products {
      guard ids.insert(product.id).inserted else {
        throw SimulationError(.alreadyExists, "There is a product \(product.id) already.")
      }
      let isSubscription = product.type == .autoRenewable
      guard isSubscription == (product.group != nil), isSubscription == (product.period != nil)
      else {
        throw SimulationError(
          .notPossible, "\(product.id): subscriptions have a group and a period, others neither.")
      }
    }
    apps.append(app)
    for product in app.products { shelf[product.id] = (product, apps.count - 1) }
  }

  mutating func addCustomer(_ id: AppleID, environment: Environment) throws {
    guard customerNumbers[id] == nil else {
      throw SimulationError(.alreadyExists, "There is an Apple ID \(id) already.")
    }
    customers.append(Customer(appleID: id, environment: environment, since: now))
    customerNumbers[id] = customers.count - 1
  }

  /// A receipt as the device would send it now.
  func receipt(on id: DeviceID, bundleID: String?, transaction: TransactionID?) throws -> String {
    let device = try device(id)
    let customer = customers[device.customer]
    let app: Int
    var style = SimulatedReceipt.Style.app
    var details: [(key: String, value: String)] = []
    if let transaction {
      let charge = try chargeNumber(transaction)
      guard lines[charges[charge].line].customer == device.customer else {
        throw SimulationError(
          .unknownTransaction, "\(customer.appleID) has no transaction \(transaction).")
      }
      app = lines[charges[charge].line].app
      style = .transaction(transaction)
      details = purchaseInfo(of: charge)
    } else {
      app = try appNumber(bundleID)
    }
    return encoded(
      SimulatedReceipt(
        style: style, environment: customer.environment, bundleID: apps[app].bundleID,
        appleID: customer.appleID, madeAt: now, restoration: device.restorations[app]),
      app: app, customer: device.customer, details: details)
  }

  /// A receipt as base64; `details` is what the property list of an iOS 6 receipt says beside its
  /// transaction id.
  func encoded(
    _ receipt: SimulatedReceipt, app: Int, customer: Int,
    details: [(key: String, value: String)] = []
  ) -> String {
    switch receipt.style {
    case .app: Data(appReceipt(receipt, app: app, customer: customer)).base64EncodedString()
    case .transaction(let id):
      receipt.transactionReceipt(id, details, seed: configuration.seed)
    }
  }
}
