import Subscriptions

/// One Apple ID, as Apple knows it.
struct Customer: Sendable {
  /// The names under which one device knows charges, where they are not the charges' own.
  struct Restoration: Sendable {
    struct Name: Sendable {
      let id: TransactionID
      let givenAt: Timestamp
    }

    /// By the charge's number.
    var names: [Int: Name] = [:]
  }

  let appleID: AppleID
  let environment: Environment
  let since: Timestamp
  var cardWorks = true
  var isDeleted = false
  /// Who pays for this family member.
  var organizer: Int?
  var familyMembers: [Int] = []
  var lines: [Int] = []
  /// Groups in which the introductory offer was used up.
  var introducedGroups: Set<String> = []
  var restorations: [Restoration] = []
}

struct Device: Sendable {
  var customer: Int
  var account: AppAccountID?
  /// For each app the restoration whose names its receipts use.
  var restorations: [Int: Int] = [:]
}

/// Something that Apple will do at a moment, unless the line is scheduled anew before.
struct Due: Comparable, Sendable {
  enum Step: Sendable {
    case renewalAttempt
    case periodEnd
    case graceEnd
    case retryEnd
  }

  let at: Timestamp
  /// Breaks ties in the order of planning.
  let sequence: Int
  let step: Step
  let line: Int
  let schedule: Int

  static func < (lhs: Due, rhs: Due) -> Bool {
    (lhs.at, lhs.sequence) < (rhs.at, rhs.sequence)
  }

  static func == (lhs: Due, rhs: Due) -> Bool { lhs.sequence == rhs.sequence }
}
