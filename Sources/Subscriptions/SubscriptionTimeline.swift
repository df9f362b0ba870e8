/// The whole life of a subscription: at every moment from its first charge on one state of one
/// charge.
///
/// It is a function of what Apple said, of the owners and of the catalogue, and not of the present:
/// what is expected, an end above all, stands in it at its date. Lines that Apple links are one
/// subscription, and so are the products of a line: Apple lets one of them run at a time. Should
/// paid periods overlap all the same, the charge that began last counts.
package struct SubscriptionTimeline: Hashable, Sendable {
  /// The states of a subscription, as reports count them.
  package enum State: String, Codable, CaseIterable, Sendable {
    case activeRenewing = "active_renewing"
    case activeCancelled = "active_cancelled"
    case trialRenewing = "trial_renewing"
    case trialCancelled = "trial_cancelled"
    /// Past the paid period, with access, while Apple tries to charge.
    case inGracePeriod = "in_grace_period"
    case inBillingRetry = "in_billing_retry"
    case expired
    /// What would be paid for was taken back; it has expired when that would be over.
    case revoked
  }

  /// Why a subscription ended.
  package enum EndCause: String, Codable, CaseIterable, Sendable {
    case voluntary
    case priceNotConsented = "price_not_consented"
    case billing
    case productWithdrawn = "product_withdrawn"
    case refunded
    case unknown
  }

  /// A stretch of time in which nothing changes.
  package struct Span: Hashable, Sendable {
    package var start: Timestamp
    /// Where the next one begins; nil: it is the last one, and lasts.
    package var end: Timestamp?
    package var state: State
    /// The charge that runs, or that ran last.
    package var terms: ChargeTerms
    /// Why what ran here ended; nil where it did not, or went on as something that is paid for.
    package var endCause: EndCause?

    /// Whether a charge runs that was paid for, its grace period included.
    package var isPaid: Bool {
      switch state {
      case .activeRenewing, .activeCancelled: true
      case .inGracePeriod: terms.periodType != .trial
      case .trialRenewing, .trialCancelled, .inBillingRetry, .expired, .revoked: false
      }
    }

    /// Whether a trial runs, its grace period included.
    package var isTrial: Bool {
      switch state {
      case .trialRenewing, .trialCancelled: true
      case .inGracePeriod: terms.periodType == .trial
      case .activeRenewing, .activeCancelled, .inBillingRetry, .expired, .revoked: false
      }
    }

    /// Whether Apple tries to charge for what should have followed.
    package var isInTrouble: Bool { state == .inGracePeriod || state == .inBillingRetry }
  }

  /// The customer switched auto-renew off, or on again.
  package struct Switch: Hashable, Sendable {
    package var at: Timestamp
    package var isOn: Bool
    /// The charge that ran.
    package var terms: ChargeTerms
  }

  /// Each ends where the next begins; none for a line without subscriptions.
  package private(set) var spans: [Span] = []
  /// By date.
  package private(set) var switches: [Switch] = []
}

extension SubscriptionTimeline {
  /// - Parameters:
  ///   - line: The line, or the lines that Apple links.
  ///   - rule: Its charges and decisions.
  ///   - all: The terms of the rule's charges, in their order.
  init(of line: Line, rule: OwnershipRule, terms all: [ChargeTerms]) {
    let course = rule.course
    let runs = Run.runs(of: rule.charges, course)
    let stretches = Stretch.stretches(of: runs)
    for (index, stretch) in stretches.enumerated() {
      let next = index + 1 < stretches.count ? stretches[index + 1] : nil
      let run = runs[stretch.run]
      let terms = all[run.position]
      guard stretch.isRunning, let end = next?.start else {
        spans += run.spans(afterwardsFrom: stretch.start, to: next?.start, terms)
        continue
      }
      spans += run.spans(from: stretch.start, to: end, terms, course)
      let following = next.flatMap { $0.isRunning ? all[runs[$0.run].position] : nil }
      if following.map({ $0.periodType == .trial }) ?? true {
        spans[spans.count - 1].endCause = run.endCause(course)
      }
    }
    switches = runs.flatMap { run in run.switches(all[run.position], course) }
  }

  /// The timeline of a line, or of the lines that Apple links.
  ///
  /// - Parameters:
  ///   - line: The line.
  ///   - rule: Its charges and decisions.
  ///   - catalogue: What products cost, and for how long.
  package init(of line: Line, rule: OwnershipRule, in catalogue: Catalogue) {
    self.init(of: line, rule: rule, terms: line.terms(rule, in: catalogue))
  }
}
