package import Foundation
import JSONText
import Postgres
package import Subscriptions

package struct Administrator: Hashable, Sendable {
  /// The name of the API key, or `cli:` and the operating system user for commands.
  package let name: String
  package let reason: String?

  package static let maximumReasonLength = 1000
  /// The column's width.
  private static let maximumNameLength = 255

  /// Truncates the name to the column's width.
  package init(name: String, reason: String? = nil) {
    self.name = String(name.prefix(Self.maximumNameLength))
    self.reason = reason
  }

  package static var commandLine: Administrator {
    let user = NSUserName()
    return Administrator(name: user.isEmpty ? "cli" : "cli:\(user)")
  }
}

/// An entry of the audit log.
package struct AdministratorAction: Sendable {
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
    case setExchangeRate = "set_exchange_rate"
    case setCommission = "set_commission"
    case setProduct = "set_product"
  }

  package let id: Int64
  package let actedAt: Timestamp
  package let administrator: String
  /// An ``Action``, or the name of one that a newer version added.
  package let action: String
  /// The affected account's key, grant ID, transaction, event, job or product.
  package let subject: String
  package let reason: String?
  let account: AccountKey?
  package let accountID: String?
  let previousAccount: AccountKey?
  /// The earlier owner of a transferred or released charge, or the account that was merged.
  package let previousAccountID: String?
  /// Details as a JSON object.
  package let data: String

  static func subject(_ charge: TransactionKey) -> String {
    NewAdministratorAction.subject("\(charge.line)/\(charge.transactionID)")
  }

  /// Whether this action may have recorded an item; of several matching ones, the latest did.
  package func brought(_ item: LedgerItem, from source: EntrySource) -> Bool {
    // Recording dates never decrease within an original transaction, so it can't be earlier.
    guard source.kind == .administrator, actedAt <= item.recordedAt,
      source.id.map(ExactText.init(_:))
        == ExactText(Administrator(name: administrator).entrySourceID)
    else { return false }
    switch (Action(rawValue: action), item.content) {
    case (.transfer, .action(.ownerOverride(let ownerOverride))),
      (.release, .action(.ownerOverride(let ownerOverride))):
      return subject == Self.subject(ownerOverride.transaction) && account == ownerOverride.account
    case (.transfer, .ownership(let change)), (.release, .ownership(let change)):
      return subject == Self.subject(change.charge)
    case (.mergeAccount, .action(.ownerOverride(let ownerOverride))):
      return account == ownerOverride.account
    case (.mergeAccount, .ownership(let change)):
      return account == change.decision.owner && previousAccount == change.previousOwner
    default: return false
    }
  }
}

/// An action to insert in the database transaction that carries it out.
struct NewAdministratorAction: Sendable {
  var action: AdministratorAction.Action
  var subject: String
  var administrator: Administrator
  var account: AccountKey?
  var previousAccount: AccountKey?
  /// The accounts' IDs, which ``KeyedText`` replaces in the reason.
  var names: [AccountKey: String] = [:]
  /// A JSON object without account IDs.
  var data = "{}"

  private static let maximumSubjectLength = 255

  /// The insertion as a seal, because it appends an entry to the account's chain.
  func seal(at now: Timestamp) -> AccountChain.Seal {
    AccountChain.Seal(account: account ?? AccountChain.common, statement: insert(at: now))
  }

  func insert(at now: Timestamp) -> SQL {
    let reason = administrator.reason.map { KeyedText.withKeys($0, of: names) }
    return """
      SELECT tenure.record_action(\(now), \(administrator.name), \(action),
        \(Self.subject(subject)), \(reason), \(data), \(account), \(previousAccount))
      """
  }

  static func subject(_ text: String) -> String { String(text.prefix(maximumSubjectLength)) }
}

extension Administrator {
  /// An action, with the members of its data.
  func action(
    _ action: AdministratorAction.Action, on subject: String, of account: Account? = nil,
    data members: (inout JSONWriter) -> Void = { _ in }
  ) -> NewAdministratorAction {
    var json = JSONWriter(capacity: 128)
    json.object(members)
    return NewAdministratorAction(
      action: action, subject: subject, administrator: self, account: account?.key,
      names: account.map { [$0.key: $0.id] } ?? [:], data: json.text)
  }
}

extension AdministratorAction.Action: PostgresEncodable {}

/// Text with account keys for IDs: the log is append-only, and an erasure must not change it.
///
/// Readers see each account's current ID, or its pseudonym.
enum KeyedText {
  /// Replaces account IDs by keys where they are whole words.
  static func withKeys(_ text: String, of names: [AccountKey: String]) -> String {
    // Longest first, because one ID may be part of another.
    let names = names.filter { !$0.value.isEmpty }.sorted {
      ($0.value.utf8.count, AccountID($0.value)) > ($1.value.utf8.count, AccountID($1.value))
    }
    // By scalars: comparing characters would use canonical equivalence.
    var (result, rest, isInWord) = ("", text.unicodeScalars[...], false)
    while let next = rest.first {
      let found = names.first { _, name in
        let name = name.unicodeScalars
        let isWhole = !(rest.dropFirst(name.count).first.map(isPartOfWord) ?? false)
        return !isInWord && isWhole && rest.starts(with: name)
      }
      if let found {
        result += "{account:\(found.key.rawValue.text)}"
      } else {
        result.unicodeScalars.append(next)
      }
      let replaced = rest.prefix(found?.value.unicodeScalars.count ?? 1)
      isInWord = replaced.last.map(isPartOfWord) ?? false
      rest = rest.dropFirst(replaced.count)
    }
    return result
  }

  static func withNames(_ text: String, of names: [AccountKey: String]) -> String {
    text.replacing(/\{account:([0-9a-f\-]{36})\}/) { match in
      UUID(uuidString: String(match.1)).flatMap { names[AccountKey(rawValue: $0)] } ?? "erased"
    }
  }

  private static func isPartOfWord(_ scalar: Unicode.Scalar) -> Bool {
    switch scalar.properties.generalCategory {
    case .decimalNumber, .letterNumber, .otherNumber, .nonspacingMark, .spacingMark, .enclosingMark:
      true
    default: scalar.properties.isAlphabetic
    }
  }
}

package struct AdministrationStore: LedgerStore {
  package let core: LedgerCore

  /// Reads administrator actions, latest first, before `last`.
  ///
  /// - Parameter namesOthers: Whether other accounts are named; if not, each is `another_account`.
  package func administratorActions(
    on account: AccountKey? = nil, except omitted: [AdministratorAction.Action] = [],
    namingOthers namesOthers: Bool = true, before last: Int64? = nil, limit: Int
  ) async throws -> [AdministratorAction] {
    let condition =
      account.map { "(account_key = \($0) OR previous_account_key = \($0))" as SQL } ?? "true"
    return try await actions(
      """
      \(condition) AND action <> ALL (\(omitted.map(\.rawValue)))
        AND action_id < \(last ?? .max)
      """, limit: limit,
      as: namesOthers ? nil : account)
  }

  /// Reads transfers, releases and merges that may have overridden the owner of charges, latest
  /// first.
  ///
  /// ``AdministratorAction/brought(_:from:)`` matches them with items.
  package func overrideActions(
    of charges: Set<TransactionKey>, concerning accounts: Set<AccountKey>
  ) async throws -> [AdministratorAction] {
    guard !charges.isEmpty, !accounts.isEmpty else { return [] }
    let (keys, subjects) = (accounts.sorted(), charges.map(AdministratorAction.subject).sorted())
    let merging = AdministratorAction.Action.mergeAccount
    return try await actions(
      """
      (account_key = ANY (\(keys)) OR previous_account_key = ANY (\(keys)))
        AND (subject = ANY (\(subjects)) OR action = \(merging))
      """, limit: Self.mostOverrideActions)
  }

  /// Reads the actions on an account's grants, also of accounts merged into it, latest first.
  package func grantActions(on account: AccountKey, _ grants: [UUID]) async throws
    -> [AdministratorAction]
  {
    guard !grants.isEmpty else { return [] }
    var (holders, newest): (Set<AccountKey>, [AccountKey]) = ([account], [account])
    // Merges never form a cycle.
    while !newest.isEmpty {
      newest = try await database.query(
        """
        SELECT account_key FROM tenure.account_by_key
        WHERE merged_into_key = ANY (\(newest)) ORDER BY account_key
        """
      ).decode(AccountKey.self).filter { holders.insert($0).inserted }
    }
    return try await actions(
      """
      account_key = ANY (\(holders.sorted()))
        AND subject = ANY (\(grants.map { $0.text }))
      """, limit: 2 * grants.count)
  }

  /// Far more overrides of one page's charges than a person makes; the latest ones suffice.
  private static let mostOverrideActions = 1000

  /// Reads actions, latest first.
  ///
  /// - Parameter account: The account that will read them: others are not named. Nil for
  ///   administrators.
  private func actions(_ condition: SQL, limit: Int, as account: AccountKey? = nil) async throws
    -> [AdministratorAction]
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
    var names = try await ownership.accountIDs(
      of: Set(rows.flatMap { [$0.6, $0.7].compactMap(\.self) }))
    if let account {
      let other = EventData.Counterpart.anotherAccount.rawValue
      for key in names.keys where key != account { names[key] = other }
    }
    return rows.map {
      id, actedAt, administrator, action, subject, reason, account, previous, data in
      AdministratorAction(
        id: id, actedAt: actedAt, administrator: administrator, action: action, subject: subject,
        reason: reason.map { KeyedText.withNames($0, of: names) }, account: account,
        accountID: account.map { names[$0] ?? "erased" }, previousAccount: previous,
        previousAccountID: previous.map { names[$0] ?? "erased" }, data: data)
    }
  }

  package func recordExport(
    of account: Account, by administrator: Administrator, at now: Timestamp
  ) async throws {
    let action = administrator.action(.exportAccount, on: account.key.rawValue.text, of: account)
    _ = try await database.execute(action.insert(at: now))
  }

  // MARK: Sessions

  package func openSession(
    _ id: [UInt8], of administrator: String, until end: Timestamp, at now: Timestamp
  ) async throws {
    _ = try await database.execute(
      """
      WITH ended AS (DELETE FROM tenure.admin_session WHERE ends_at <= \(now))
      INSERT INTO tenure.admin_session (session_id, administrator, ends_at)
      VALUES (\(id), \(administrator), \(end))
      """)
  }

  /// Whether a session is open; the cookie holds its expiry.
  package func isOpen(session id: [UInt8]) async throws -> Bool {
    try await database.query(
      "SELECT EXISTS (SELECT FROM tenure.admin_session WHERE session_id = \(id))"
    ).decodeOnly(Bool.self)
  }

  package func closeSession(_ id: [UInt8]) async throws {
    _ = try await database.execute("DELETE FROM tenure.admin_session WHERE session_id = \(id)")
  }
}
