import Subscriptions

/// What came of extending every active subscription to a product.
struct MassExtension: Sendable {
  let app: Int
  let environment: Environment
  let identifier: String
  let product: ProductID
  let completedAt: Timestamp
  let succeeded: Int
  let failed: Int
}

/// More time without a charge, and another name for a line.
extension AppStoreState {
  /// https://developer.apple.com/documentation/appstoreserverapi/extendbydays
  static let extensionDays = 1...90
  /// Apple's documentation of StoreKit, "Extending the renewal date for auto-renewable
  /// subscriptions".
  private static let mostExtensions = 2
  private static let extensionYear = Duration.days(365)

  /// Why Apple does not extend; nil where it does.
  func refusal(toExtend number: Int, days: Int) -> ServerAPIError? {
    let line = lines[number]
    guard Self.extensionDays.contains(days) else { return .invalidExtendByDays }
    guard line.ownership == .purchased else { return .familySharedExtensionIneligible }
    guard let renewal = line.renewal, renewal.phase == .paid,
      let current = standingCharge(of: number), let end = charges[current].expiresDate, end > now,
      charges[current].priceMilliunits > 0
    else { return .extensionIneligible }
    let recent = customers[line.customer].lines.filter { lines[$0].app == line.app }
      .flatMap { lines[$0].renewal?.extensions ?? [] }
      .filter { now - $0 < Self.extensionYear }
    return recent.count < Self.mostExtensions ? nil : .maxExtensions
  }

  /// Moves the end of what is paid last, for the family too.
  mutating func extend(_ line: Int, days: Int) -> SimulatedEvent {
    if let current = standingCharge(of: line), let end = charges[current].expiresDate {
      let extended = end + .days(days)
      for number in [current] + charges[current].shares where charges[number].stands {
        charges[number].expiresDate = extended
        touch(number)
      }
      lines[line].renewal?.anchor = extended
      lines[line].renewal?.periodsSinceAnchor = 0
      lines[line].renewal?.extensions.append(now)
      scheduleRenewal(of: line)
    }
    return note(.renewalExtended(days: days), line: line)
  }

  /// Extends every subscription to a product that runs, as far as Apple allows it.
  mutating func extendAll(
    of product: ProductID, days: Int, in countries: [String]?, identifier: String, app: Int,
    environment: Environment
  ) {
    var succeeded = 0
    var failed: [Subject] = []
    for number in lines.indices {
      let line = lines[number]
      guard line.app == app, line.environment == environment, line.renewal?.phase == .paid,
        let charge = standingCharge(of: number), charges[charge].product.id == product,
        countries?.contains(Storefront(currency: charges[charge].product.currency).country)
          ?? true
      else { continue }
      if refusal(toExtend: number, days: days) == nil {
        _ = extend(number, days: days)
        succeeded += 1
      } else {
        failed.append(Subject(charge: charge, line: number))
      }
    }
    let result = MassExtension(
      app: app, environment: environment, identifier: identifier, product: product,
      completedAt: now, succeeded: succeeded, failed: failed.count)
    massExtensions.append(result)
    settle()
    for subject in failed { writeExtensionFailure(subject) }
    writeSummary(of: result, countries: countries)
  }

  /// Continues a line that runs under a new original id.
  mutating func migrate(_ line: Int) throws -> SimulatedEvent {
    let old = lines[line]
    let running = old.charges.filter { number in
      charges[number].stands && (charges[number].expiresDate.map { $0 > now } ?? false)
    }
    guard let renewal = old.renewal, renewal.phase == .paid, !running.isEmpty else {
      throw SimulationError(.notPossible, "\(old.id) is no subscription that runs.")
    }
    let new = openLine(customer: old.customer, app: old.app, group: old.group)
    lines[new].previous = line
    lines[line].next = new
    lines[line].renewal = nil
    lines[new].renewal = renewal
    lines[line].charges.removeAll { running.contains($0) }
    lines[new].charges = running
    for number in running {
      charges[number].line = new
      touch(number)
    }
    for number in lines.indices where lines[number].sharedFrom == line {
      lines[number].sharedFrom = new
    }
    scheduleRenewal(of: new)
    return note(.migrated(from: old.id), line: new)
  }
}
