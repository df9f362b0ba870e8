package import Foundation
import JSONText
import Postgres
package import Subscriptions

/// Who acts on the ledger by hand, and why.
package struct Administrator: Hashable, Sendable {
  /// The name of the API key; of commands, `cli:` and the name of the system's user.
  package let name: String
  /// In the administrator's own words; nil where nobody asks for it.
  package let reason: String?

  /// The longest reason: a few sentences.
  package static let maximumReasonLength = 1000
  /// What the record of acts has room for.
  private static let maximumNameLength = 255

  /// A name of any length is made fit for storing.
  package init(name: String, reason: String? = nil) {
    self.name = String(name.prefix(Self.maximumNameLength))
    self.reason = reason
  }

  /// Whoever runs a command.
  package static var commandLine: Administrator {
    let user = NSUserName()
    return Administrator(name: user.isEmpty ? "cli" : "cli:\(user)")
  }
}

/// What an administrator did, as the record of acts has it.
package struct AdministratorAct: Sendable {
  /// What administrators can do.
  package enum Action: String, CaseIterable, Sendable {
    case transfer
    case release
    case grant
    case revokeGrant = "revoke_grant"
    case mergeAccount = "merge_account"
    case eraseAccount = "erase_account"
    case exportAccount = "export_account"
    case redeliverEvent = "redeliver_event"
    case redeliverParkedEvents = "redeliver_parked_events"
    case retryJobs = "retry_jobs"
    case verifySubmissions = "verify_submissions"
  }

  package let id: Int64
  package let actedAt: Timestamp
  package let administrator: String
  /// An ``Action``, or what a newer version calls one.
  package let action: String
  /// What was acted on: the account's pseudonymous key, a grant's id, a transaction, an event.
  package let subject: String
  package let reason: String?
  let account: AccountKey?
  /// Whom it concerns; nil: no account.
  package let accountID: String?
  let previousAccount: AccountKey?
  /// Of a charge that was transferred or released, who had it before; of a merge, the account that
  /// was merged.
  package let previousAccountID: String?
  /// What more there is to say of it, as an object of JSON.
  package let data: String

  /// What is acted on where it is a charge.
  static func subject(_ charge: TransactionKey) -> String {
    NewAct.subject("\(charge.line)/\(charge.transactionID)")
  }

  /// Tells whether an entry of the ledger may have been recorded by it.
  ///
  /// - Parameters:
  ///   - entry: The entry.
  ///   - source: Where it comes from.
  /// - Returns: Whether it may; of several acts it is the last one.
  package func brought(_ entry: LedgerEntry, from source: EntrySource) -> Bool {
    // What is recorded later on a line has a later date: never an earlier one than the act.
    guard source.kind == .administrator, actedAt <= entry.recordedAt,
      source.id.map(ExactText.init(_:))
        == ExactText(Administrator(name: administrator).entrySourceID)
    else { return false }
    switch (Action(rawValue: action), entry.content) {
    case (.transfer, .act(.placement(let placement))), (.release, .act(.placement(let placement))):
      return subject == Self.subject(placement.transaction) && account == placement.account
    case (.transfer, .ownership(let change)), (.release, .ownership(let change)):
      return subject == Self.subject(change.charge)
    case (.mergeAccount, .act(.placement(let placement))):
      return account == placement.account
    case (.mergeAccount, .ownership(let change)):
      return account == change.decision.owner && previousAccount == change.previousOwner
    default: return false
    }
  }
}

/// An act that is to be recorded, in the database transaction that carries it out.
struct NewAct: Sendable {
  var action: AdministratorAct.Action
  var subject: String
  var administrator: Administrator
  /// Whom it concerns.
  var account: AccountKey?
  /// Who had what is transferred.
  var previousAccount: AccountKey?
  /// The app's names for the accounts, so that the reason is kept without them.
  var names: [AccountKey: String] = [:]
  /// An object of JSON that names no account.
  var data = "{}"

  private static let maximumSubjectLength = 255

  func insert(at now: Timestamp) -> SQL {
    let reason = administrator.reason.map { KeyedText.withKeys($0, of: names) }
    return """
      INSERT INTO tenure.administrator_action (acted_at, administrator, action, subject, reason,
        data, account_key, previous_account_key)
      VALUES (\(now), \(administrator.name), \(action), \(Self.subject(subject)), \(reason),
        \(data), \(account), \(previousAccount))
      """
  }

  /// A subject as the record has room for it.
  static func subject(_ text: String) -> String { String(text.prefix(maximumSubjectLength)) }

  static func data(_ value: some JSONWritable) -> String {
    var json = JSONWriter(capacity: 128)
    value.write(to: &json)
    return json.text
  }

  /// Makes the object of JSON.
  static func data(_ members: (inout JSONWriter) -> Void) -> String {
    var json = JSONWriter(capacity: 128)
    json.object(members)
    return json.text
  }
}

extension AdministratorAct.Action: PostgresEncodable {}

/// Text that names accounts, kept without their names.
///
/// The record of acts is only ever appended to; so what it says of a person must not need to be
/// changed when the person is erased. Where a reason names an account that it concerns, there
/// stands the account's key instead, and whoever reads it is told the name that the account has
/// now: its own, or a pseudonym.
enum KeyedText {
  private enum Piece {
    case text(Substring)
    case account(AccountKey)
  }

  /// Puts keys in the place of names where these stand as words.
  static func withKeys(_ text: String, of names: [AccountKey: String]) -> String {
    var pieces = [Piece.text(text[...])]
    // The longest first, because one name may be a part of another.
    let names = names.filter { !$0.value.isEmpty }.sorted {
      ($0.value.utf8.count, AccountID($0.value)) > ($1.value.utf8.count, AccountID($1.value))
    }
    for (key, name) in names {
      pieces = pieces.flatMap { piece -> [Piece] in
        guard case .text(let text) = piece else { return [piece] }
        return split(text, at: name, key)
      }
    }
    return pieces.map { piece in
      switch piece {
      case .text(let text): String(text)
      case .account(let key): "{account:\(key.rawValue.uuidString.lowercased())}"
      }
    }.joined()
  }

  /// Puts names in the place of keys.
  static func withNames(_ text: String, of names: [AccountKey: String]) -> String {
    text.replacing(/\{account:([0-9a-f\-]{36})\}/) { match in
      UUID(uuidString: String(match.1)).flatMap { names[AccountKey(rawValue: $0)] } ?? "erased"
    }
  }

  private static func split(_ text: Substring, at name: String, _ key: AccountKey) -> [Piece] {
    var (pieces, rest): ([Piece], Substring) = ([], text)
    // By scalars: as characters, a text would be compared by its canonical form.
    for range in text.unicodeScalars.ranges(of: name.unicodeScalars) {
      let (before, after) = (
        text.unicodeScalars[..<range.lowerBound].last,
        text.unicodeScalars[range.upperBound...].first
      )
      let isWord = !(before.map(isPartOfWord) ?? false) && !(after.map(isPartOfWord) ?? false)
      guard isWord else { continue }
      pieces += [.text(text[rest.startIndex..<range.lowerBound]), .account(key)]
      rest = text[range.upperBound...]
    }
    return pieces + [.text(rest)]
  }

  private static func isPartOfWord(_ scalar: Unicode.Scalar) -> Bool {
    switch scalar.properties.generalCategory {
    case .decimalNumber, .letterNumber, .otherNumber, .nonspacingMark, .spacingMark, .enclosingMark:
      true
    default: scalar.properties.isAlphabetic
    }
  }
}

/// The record of what administrators did.
extension Ledger {
  /// Reads acts, the last one first.
  ///
  /// - Parameters:
  ///   - account: Only those that concern this account; nil: all.
  ///   - namesOthers: Whether accounts beside it are named; else each is `another_account`.
  ///   - last: Only those before this one; nil: from the last one on.
  ///   - limit: How many at the most.
  /// - Returns: The acts.
  /// - Throws: What the database says.
  package func administratorActs(
    on account: AccountKey? = nil, namingOthers namesOthers: Bool = true,
    before last: Int64? = nil, limit: Int
  ) async throws -> [AdministratorAct] {
    let condition =
      account.map { "(account_key = \($0) OR previous_account_key = \($0))" as SQL } ?? "true"
    return try await acts(
      "\(condition) AND action_id < \(last ?? .max)", limit: limit,
      as: namesOthers ? nil : account)
  }

  /// Reads acts on an account that changed no charge's owner, the last one first: those that did
  /// are entries of the ledger, too.
  ///
  /// - Parameters:
  ///   - account: The account.
  ///   - last: Only those before this one; nil: from the last one on.
  ///   - limit: How many at the most.
  /// - Returns: The acts.
  /// - Throws: What the database says.
  package func actsBesidesPlacing(on account: AccountKey, before last: Int64?, limit: Int)
    async throws -> [AdministratorAct]
  {
    let placing = [AdministratorAct.Action.transfer, .release].map(\.rawValue)
    return try await acts(
      """
      (account_key = \(account) OR previous_account_key = \(account))
        AND action <> ALL (\(placing)) AND action_id < \(last ?? .max)
      """, limit: limit)
  }

  /// Reads the acts by which administrators may have placed charges, the last one first;
  /// ``AdministratorAct/brought(_:from:)`` says which it was.
  ///
  /// - Parameters:
  ///   - charges: The charges.
  ///   - accounts: Whoever was given them or had them.
  /// - Returns: The acts.
  /// - Throws: What the database says.
  package func placingActs(of charges: Set<TransactionKey>, concerning accounts: Set<AccountKey>)
    async throws -> [AdministratorAct]
  {
    guard !charges.isEmpty, !accounts.isEmpty else { return [] }
    let (keys, subjects) = (accounts.sorted(), charges.map(AdministratorAct.subject).sorted())
    let merging = AdministratorAct.Action.mergeAccount
    return try await acts(
      """
      (account_key = ANY (\(keys)) OR previous_account_key = ANY (\(keys)))
        AND (subject = ANY (\(subjects)) OR action = \(merging))
      """, limit: Self.mostPlacingActs)
  }

  /// Reads the acts by which administrators gave an account grants and took them back, the last
  /// one first.
  ///
  /// - Parameters:
  ///   - account: Whose they are now; some may have been of an account that was merged into it.
  ///   - grants: Their ids.
  /// - Returns: The acts.
  /// - Throws: What the database says.
  package func grantActs(on account: AccountKey, _ grants: [UUID]) async throws
    -> [AdministratorAct]
  {
    guard !grants.isEmpty else { return [] }
    var (holders, newest): (Set<AccountKey>, [AccountKey]) = ([account], [account])
    // Nothing is ever merged in a circle.
    while !newest.isEmpty {
      newest = try await database.query(
        """
        SELECT account_key FROM tenure.account_by_key
        WHERE merged_into_key = ANY (\(newest)) ORDER BY account_key
        """
      ).decode(AccountKey.self).filter { holders.insert($0).inserted }
    }
    return try await acts(
      """
      account_key = ANY (\(holders.sorted()))
        AND subject = ANY (\(grants.map { $0.uuidString.lowercased() }))
      """, limit: 2 * grants.count)
  }

  /// Who placed so few charges so often is no person: the last acts say enough.
  private static let mostPlacingActs = 1000

  /// Reads acts, the last one first.
  ///
  /// - Parameters:
  ///   - condition: Which.
  ///   - limit: How many at the most.
  ///   - account: To whom they are told: others are not named; nil: to an administrator.
  /// - Returns: The acts.
  /// - Throws: What the database says.
  private func acts(_ condition: SQL, limit: Int, as account: AccountKey? = nil) async throws
    -> [AdministratorAct]
  {
    let rows = try await database.query(
      """
      SELECT action_id, acted_at, administrator, action, subject, reason, account_key,
        previous_account_key, data
      FROM tenure.administrator_action
      WHERE \(condition)
      ORDER BY action_id DESC LIMIT \(limit)
      """
    ).decode(
      Int64.self, Timestamp.self, String.self, String.self, String.self, String?.self,
      AccountKey?.self, AccountKey?.self, String.self)
    var names = try await accountIDs(of: Set(rows.flatMap { [$0.6, $0.7].compactMap(\.self) }))
    if let account {
      let other = EventData.Counterpart.anotherAccount.rawValue
      for key in names.keys where key != account { names[key] = other }
    }
    return rows.map {
      id, actedAt, administrator, action, subject, reason, account, previous, data in
      AdministratorAct(
        id: id, actedAt: actedAt, administrator: administrator, action: action, subject: subject,
        reason: reason.map { KeyedText.withNames($0, of: names) }, account: account,
        accountID: account.map { names[$0] ?? "erased" }, previousAccount: previous,
        previousAccountID: previous.map { names[$0] ?? "erased" }, data: data)
    }
  }

  /// Records that all that is known of an account was given out.
  ///
  /// - Parameters:
  ///   - account: The account.
  ///   - administrator: To whom.
  ///   - now: When.
  /// - Throws: What the database says.
  package func recordExport(
    of account: Account, by administrator: Administrator, at now: Timestamp
  ) async throws {
    let act = NewAct(
      action: .exportAccount, subject: account.key.rawValue.uuidString.lowercased(),
      administrator: administrator, account: account.key, names: [account.key: account.id])
    _ = try await database.execute(act.insert(at: now))
  }
}
