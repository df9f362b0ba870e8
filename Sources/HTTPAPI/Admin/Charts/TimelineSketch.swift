import Subscriptions

/// What a timeline shows, in times and not yet in places.
struct TimelineSketch: Sendable {
  var id: String
  var title: String
  var description: String
  /// The ends of the axis.
  var from: Timestamp
  var until: Timestamp
  var now: Timestamp
  var lanes: [Lane]
  /// Moments that matter to all lanes.
  var rules: [Rule] = []
  var owners: [TimelineOwner] = []

  /// What is shown at one height.
  struct Lane: Sendable {
    var label: String
    /// In pixels.
    var height: Int
    var spans: [Span] = []
    var marks: [Mark] = []
  }

  /// Something that lasts.
  struct Span: Sendable {
    var from: Timestamp
    var until: Timestamp
    /// Names of the style sheet.
    var classNames: String
    /// What is laid over its colour.
    var pattern: Pattern?
    var label: String?
    var text: String
    var href: String?
    /// How much it is lower than its lane, above and below each.
    var inset = 0
  }

  /// A moment of a lane.
  struct Mark: Sendable {
    var at: Timestamp
    var symbol: Symbol
    var text: String
    var href: String?
    /// From the lane's top, in pixels.
    var offset: Int
  }

  /// A moment of all lanes.
  struct Rule: Sendable {
    var at: Timestamp
    var text: String
  }

  /// The patterns that the template `timeline` can draw.
  enum Pattern: String, CaseIterable, Sendable {
    case grace
    case retry
    case refunded

    /// For the legend.
    var label: String {
      switch self {
      case .grace: "grace period"
      case .retry: "billing retry"
      case .refunded: "refunded"
      }
    }
  }

  /// The signs that the template `timeline` can draw.
  enum Symbol: String, CaseIterable, Sendable {
    case refund = "mark-refund"
    case move = "mark-move"
    case off = "mark-off"
    case on = "mark-on"
    case notification = "mark-notification"
    case submission = "mark-submission"
    case poll = "mark-poll"
    case administrator = "mark-administrator"

    /// For the legend.
    var label: String {
      switch self {
      case .refund: "refund"
      case .move: "bound to another"
      case .off: "auto-renew off"
      case .on: "auto-renew on"
      case .notification: "notification"
      case .submission: "submission"
      case .poll: "poll"
      case .administrator: "administrator"
      }
    }
  }
}

extension TimelineOwner {
  /// The colour of an owner: 0 is nobody, then six colours, which begin again.
  static func ownerClass(_ owner: Int) -> String {
    owner > 0 ? "owner-\((owner - 1) % 6 + 1)" : "owner-0"
  }

  /// The letter of an owner, so that nothing rests on colours: – for nobody, A to Z, then A2 on.
  static func letter(_ owner: Int) -> String {
    guard owner > 0 else { return "–" }
    let (round, index) = (owner - 1).quotientAndRemainder(dividingBy: 26)
    let letter = String(UnicodeScalar(UInt8(ascii: "A") + UInt8(index)))
    return round > 0 ? "\(letter)\(round + 1)" : letter
  }
}
