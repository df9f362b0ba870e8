import HTTPAPI
import HTTPTypes
import Hummingbird
import HummingbirdCore
import LedgerStorage
import Reports
import Subscriptions

struct MergeController: ActionController {
  let api: API

  func perform(_ sent: SentForm, on account: Account) async throws -> Response {
    let administrator = try sent.context.actingAdministrator()
    let target = try await self.account(in: .into, of: sent.fields)
    let into = target.id
    do {
      guard sent.isConfirmed else {
        let preview = try await ledger.accounts.previewMerge(
          of: account.id, into: into, terms: terms, at: now())
        let owned = try await charges(of: account)
        return try await sent.confirm(
          consequences: Self.consequences(
            of: preview, from: account.id, into: into, described: try await inWords(target))
            + (try await endings(of: account, owning: owned, into: "“\(into)”")),
          warnings: Self.warnings
            + (try await doublePayments(of: account, owning: owned, and: target)))
      }
      let merger = try await ledger.accounts.merge(
        account.id, into: into, by: administrator, terms: terms, at: now())
      let rest =
        merger.completedAt == nil
        ? " A worker is moving its remaining charges." : ""
      return sent.done(
        "“\(account.id)” was merged into this account.\(rest)", then: AdminURL.account(into))
    } catch let error as LedgerError {
      throw Problem(.invalidRequest, error.description, field: TextField.into.name)
    }
  }

  private static let warnings = [
    "This cannot be undone. Merged charges can only be transferred one at a time."
  ]

  func form(for account: Account) async throws -> ActionForm {
    ActionForm(
      title: "Merge account", action: AdminURL.account(account.id, form: "merge"),
      lead: "Moves all charges, orders and grants of “\(account.id)” to another account, including "
        + "future ones.",
      properties: [
        Property("Account", account.id, isCode: true), Property("First seen", account.createdAt),
      ],
      fields: [
        .account(
          .into, "Merge into",
          hint: "The full account ID, exactly as your app uses it. This account remains.")
      ],
      buttonLabel: "Merge", isDanger: true, subject: .account(account.id),
      consequences: try await endings(
        of: account, owning: try await charges(of: account), into: "the other account"),
      warnings: Self.warnings)
  }

  private static let mostCounted = 1000

  private func charges(of account: Account) async throws -> [AccountCharge] {
    try await ledger.accounts.ties(of: account.key).charges.filter { $0.owner == account.key }
  }

  /// What becomes of what the merged account has.
  private func endings(of account: Account, owning charges: [AccountCharge], into target: String)
    async throws -> [String]
  {
    let open = try await ledger.accounts.latestOrders(of: account, limit: Self.mostCounted)
      .count { $0.answered(at: now()).order.status == .open }
    let pending = try await ledger.accounts.latestSubmissions(
      of: account.key, limit: Self.mostCounted
    ).count { $0.status == .pending }
    let consent = try await ledger.writeBacks.consumptionConsent(of: account)
    let id = account.id
    return [
      charges.isEmpty ? nil : "Moved charges stay with \(target) whatever Apple reports later.",
      open == 0
        ? nil
        : Count.text(open, "open order waits", "open orders wait")
          + " for a purchase by \(target) from then on.",
      pending == 0
        ? nil
        : Count.text(pending, "pending submission is", "pending submissions are")
          + " decided for \(target).",
      "The app account token of “\(id)” stays valid: purchases with it belong to \(target).",
      consent.isGiven
        ? "The consent of “\(id)” to sending consumption data to Apple ends; it does not move."
        : nil,
      "Afterwards “\(id)” keeps its submissions and history, has no entitlements, and can't "
        + "receive grants, charges or another merge. Erasing \(target) later erases “\(id)”, too.",
    ].compactMap(\.self)
  }

  /// The subscriptions of both accounts for the same, which Apple goes on charging.
  private func doublePayments(
    of account: Account, owning charges: [AccountCharge], and target: Account
  ) async throws -> [String] {
    let own = try await renewingSubscriptions(of: account, owning: charges)
    let others = try await renewingSubscriptions(of: target, owning: self.charges(of: target))
    return others.flatMap { other in
      own.filter { $0.gives(asMuchAs: other) }.map { subscription in
        "The customer pays twice: \(subscription.product.id) of “\(account.id)” renews on "
          + "\(subscription.renewsAt.dayName), and \(other.product.id) of “\(target.id)” on "
          + "\(other.renewsAt.dayName). The merge cancels neither; only the customer can."
      }
    }
  }

  private struct RenewingSubscription {
    var product: Product
    var renewsAt: Timestamp

    /// Whether both grant the same entitlement or are of one group.
    func gives(asMuchAs other: RenewingSubscription) -> Bool {
      !Set(product.entitlements).isDisjoint(with: other.product.entitlements)
        || product.subscriptionGroup != nil
          && product.subscriptionGroup == other.product.subscriptionGroup
    }
  }

  /// The subscriptions that Apple renews for an account, without those in the sandbox, which cost
  /// nothing.
  private func renewingSubscriptions(of account: Account, owning charges: [AccountCharge])
    async throws -> [RenewingSubscription]
  {
    let lines = charges.map(\.id.line).filter { $0.environment == .production }
    let originals = try await ledger.ownership.originals(of: Set(lines))
    return originals.sorted { $0.key < $1.key }.compactMap { line, original in
      // Linked original transactions are one subscription.
      guard let latest = original.rule.charges.latestCharge, latest.id.line == line,
        original.line.decisions[latest.id]?.decision.owner == account.key,
        let current = original.current(in: catalogue, at: now()), current.willRenew,
        let end = current.expiresAt, let product = catalogue[latest.productID]
      else { return nil }
      return RenewingSubscription(product: product, renewsAt: end)
    }
  }

  private static func consequences(
    of preview: MergePreview, from id: String, into other: String, described target: String
  ) -> [String] {
    let held = Set(preview.held.map(\.name))
    return [
      "\(Count.text(preview.charges, "charge")), \(Count.text(preview.orders, "order")) and "
        + "\(Count.text(preview.grants, "grant")) move from “\(id)” to \(target)."
    ]
      + preview.lost.map { entitlement in
        let gain = held.contains(entitlement.name) ? ", which already has it" : ""
        return "“\(entitlement.name)”\(entitlement.until) moves from “\(id)” to “\(other)”\(gain)."
      }
      + ["Later submissions and orders for “\(id)” count for “\(other)”."]
  }
}

struct ErasureController: ActionController {
  let api: API

  func perform(_ sent: SentForm, on account: Account) async throws -> Response {
    guard sent.fields["typed_account_id"] == ExactText(account.id) else {
      throw Problem(.invalidRequest, "This is not the account ID.", field: "typed_account_id")
    }
    let administrator = try sent.context.actingAdministrator()
    guard sent.isConfirmed else {
      return try await sent.confirm(
        consequences: sent.form.consequences,
        warnings: try await entitlements.entitlements(of: account.id, now: now())
          .filter(\.isActive).map { entitlement in
            "“\(account.id)” loses “\(entitlement.name)”\(entitlement.until)"
              + (entitlement.willRenew
                ? ", and Apple goes on charging: only the customer can cancel." : ".")
          } + ["This cannot be undone."])
    }
    let erasure = try await ledger.accounts.erase(account.id, by: administrator, at: now())
    // Shown without a redirect: the account's page no longer exists.
    return PageRenderer.response(
      (
        page: try await pages.frame("Customer data erased", sent.context),
        message: "The customer's data was erased.",
        properties: [
          Property(
            "Pseudonym", erasure.pseudonym, href: AdminURL.account(erasure.pseudonym), isCode: true)
        ],
        notes: sent.form.consequences.dropLast().map {
          $0.replacing("“\(account.id)” everywhere", with: "the account ID")
        },
        links: [
          PageLink(label: "Audit log", href: AdminURL.report(Report.audit.name)),
          PageLink(label: "Overview", href: AdminURL.overview),
        ]
      ), "done")
  }

  private static let mostCounted = 1000

  private func consequences(for account: Account) async throws -> [String] {
    func counted(_ number: Int, _ name: String) -> String {
      Count.text(number, name) + (number == Self.mostCounted ? " or more" : "")
    }
    let (key, most) = (account.key, Self.mostCounted)
    let charges = try await ledger.accounts.ties(of: key).charges.count { $0.owner == key }
    let orders = try await ledger.accounts.latestOrders(of: account, limit: most).count
    let grants = try await ledger.grants.storedGrants(of: account.id).count
    let submissions = try await ledger.accounts.latestSubmissions(of: key, limit: most).count
    let spent = Price.text(
      try await ledger.accounts.spent(by: [account], at: pages.now())[key] ?? [])
    let names = account.names.isEmpty ? "" : " (\(account.names.joined(separator: ", ")))"
    let money = spent.isEmpty ? "" : " (\(spent))"
    let kept = [
      charges == 0 ? nil : Count.text(charges, "charge") + money,
      orders == 0 ? nil : counted(orders, "order"),
      grants == 0 ? nil : Count.text(grants, "grant"), "the app account token",
    ].compactMap(\.self).joined(separator: ", ")
    return [
      "Deleted: the ID, label and email\(names), the reasons stored with grants, the data of "
        + "\(counted(submissions, "submission")), and Apple's responses.",
      "Kept\(charges == 0 ? "" : ", with dates and money,") under a pseudonym that replaces "
        + "“\(account.id)” everywhere: \(kept).",
      "Kept: the audit log, with the pseudonym instead of the ID. Other names in its reasons stay.",
      "Afterwards: "
        + (charges == 0 ? "" : "renewals are unclaimed until an app submits them, ")
        + "your app server receives one last event, and the ID, if it is used again, is a new "
        + "account.",
    ]
  }

  func form(for account: Account) async throws -> ActionForm {
    ActionForm(
      title: "Erase customer data", action: AdminURL.account(account.id, form: "erase"),
      lead: "Deletes personal data; keeps financial records under a pseudonym.",
      properties: [
        Property("Account", account.id, isCode: true), Property("First seen", account.createdAt),
      ],
      fields: [
        FormField(
          id: "typed-account-id", name: "typed_account_id",
          label: "Type the account ID to confirm", isInput: true, maximumLength: 255,
          isRequired: true)
      ],
      buttonLabel: "Erase", isDanger: true, subject: .account(account.id),
      consequences: try await consequences(for: account))
  }
}

struct ExportPageController: ActionController {
  let api: API

  func perform(_ sent: SentForm, on account: Account) async throws -> Response {
    var response = try await AccountExport(
      of: account, by: try sent.context.actingAdministrator(), from: ledger, terms: terms, at: now()
    ).response
    let name = "\(account.id.anchorName)-\(now().description.prefix(10)).json"
    response.headers[.contentDisposition] = "attachment; filename=\"account-\(name)\""
    sent.announce("Export done: the data of “\(account.id)” was downloaded.", with: &response)
    return response
  }

  func form(for account: Account) -> ActionForm {
    ActionForm(
      title: "Export account data", action: AdminURL.account(account.id, form: "export"),
      lead: "Downloads everything stored about this account as a JSON file, including submissions "
        + "and Apple's responses.",
      properties: [Property("Account", account.id, isCode: true)], buttonLabel: "Export",
      isFile: true, subject: .account(account.id))
  }
}
