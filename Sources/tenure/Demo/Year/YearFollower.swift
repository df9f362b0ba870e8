import Subscriptions

/// What somebody knows of accounts' access who only follows the feed, from nothing on.
struct YearFollower {
  /// Until when each account may use what; nil: for ever.
  private(set) var access: [String: [String: Timestamp?]] = [:]
  private(set) var events = 0
  /// What cannot be right: something told twice, or that never began.
  private(set) var findings: [String] = []
  private var ids: Set<String> = []

  /// Follows the feed to its end.
  ///
  /// - Throws: What Tenure says.
  mutating func follow(_ tenure: TenureClient) async throws {
    var cursor: String?
    while true {
      let page = try await tenure.events(after: cursor)
      guard !page.events.isEmpty else { return }
      for event in page.events { try take(event) }
      cursor = page.next
    }
  }

  private mutating func take(_ event: TenureClient.Event) throws {
    events += 1
    if !ids.insert(event.id).inserted { findings.append("event \(event.id) is in the feed twice") }
    guard event.type.hasPrefix("entitlement.") else { return }
    guard let account = event.account, let entitlement = event.data.entitlement else {
      findings.append("\(event.type) \(event.id) names no account or no entitlement")
      return
    }
    let name = entitlement.name
    let isKnown = access[account]?[name] != nil
    let begins = event.type == "entitlement.granted"
    if isKnown == begins {
      findings.append(
        "the feed tells \(account) \(event.type) of \(name), which \(isKnown ? "is" : "is not") "
          + "known to be active")
    }
    switch event.type {
    case "entitlement.granted", "entitlement.extended", "entitlement.shortened":
      access[account, default: [:]][name] = .some(try entitlement.accessEnd)
    default:
      access[account, default: [:]].removeValue(forKey: name)
    }
  }
}
