package import Subscriptions

extension AppStoreSimulation {
  /// What a simulation starts with.
  package struct Configuration: Sendable {
    /// The same seed and the same calls at the same simulated times give the same bytes, but for
    /// signatures: those of receipts are the same of the same signer.
    package var seed: UInt64
    /// The simulated time at the beginning.
    package var start: Timestamp
    /// Simulated time per real time; 0: the clock moves only by `advance`.
    package var speed: Double
    /// The apps there are; their product ids must all differ.
    package var apps: [SimulatedApp]
    /// How long before a period's end Apple charges for the next; drawn for each renewal.
    ///
    /// Equal bounds make it certain. At most 24 hours in reality.
    package var renewalLead: ClosedRange<Duration>
    /// Whether sandbox customers live on Apple's sandbox rates instead of by the calendar.
    ///
    /// A month is five minutes then, and renewals come some seconds late, as there.
    package var sandboxRates: Bool
    /// The peculiarities of answers.
    package var quirks: Set<Quirk>
    /// How long a charge exists before answers show it.
    package var answerLag: Duration
    /// What signs; nil: one with new keys.
    package var signer: SimulatedSigner?
    /// How many times Apple's number of requests the App Store Server API takes; nil: any number.
    package var rateLimitScale: Double?

    /// Describes a simulation; everything but the seed has a usual value.
    package init(
      seed: UInt64, start: Timestamp = Timestamp(CalendarDate(year: 2026, month: 1, day: 1)),
      speed: Double = 0, apps: [SimulatedApp] = [.sample],
      renewalLead: ClosedRange<Duration> = .zero ... .hours(24), sandboxRates: Bool = false,
      quirks: Set<Quirk> = [], answerLag: Duration = .zero, signer: SimulatedSigner? = nil,
      rateLimitScale: Double? = nil
    ) {
      self.seed = seed
      self.start = start
      self.speed = speed
      self.apps = apps
      self.renewalLead = renewalLead
      self.sandboxRates = sandboxRates
      self.quirks = quirks
      self.answerLag = answerLag
      self.signer = signer
      self.rateLimitScale = rateLimitScale
    }
  }
}
