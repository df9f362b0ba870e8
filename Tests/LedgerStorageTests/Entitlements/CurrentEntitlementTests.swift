import Postgres
import ScratchDatabases
import Testing

@testable import LedgerStorage
@testable import Subscriptions

/// The view in SQL and the programs' code compute the same entitlements.
@Suite("The view current_entitlement")
struct CurrentEntitlementTests {
  private static let accounts = (1...400).map { "account \($0)" }

  /// In the last case, half of the accounts have sandbox access.
  @Test(arguments: ["all", "none", "some"])
  func `says what the code says`(sandbox: String) async throws {
    let access: SandboxAccess =
      switch sandbox {
      case "all": .all
      case "none": .none
      default: .accounts(Set(Self.accounts.prefix(200).map { AccountID($0) }))
      }
    let seed = Double.random(in: -1...1)
    try await withScratchDatabase { database in
      let ledger = Ledger(database: database)
      _ = try await ledger.products.publish(access, at: start)
      try await database.runScript(Self.randomRows(seed: seed))

      let (now, found) = try await database.withTransaction { transaction in
        let results = try await transaction.batch([
          "SELECT now()",
          """
          SELECT account_id, entitlement, active, state, product_id, expires_at, access_ends_at,
            will_renew, period_type, environment, original_transaction_id, transaction_id, source,
            ended_at, ended_because
          FROM tenure.current_entitlement
          """,
        ])
        return (try results[0].decodeOnly(Timestamp.self), try Self.rows(results[1]))
      }

      let catalogue = try await ledger.products.catalogue()
      var expected: Set<Row> = []
      let rows = try await ledger.core.holdingBatcher.read(Self.accounts)
      for account in Self.accounts {
        let held = try rows.holdings(of: account)
        let holdings = held.holdings.filter {
          access.grants($0.charge.line.environment, to: account)
        }
        let grants = held.grants.filter {
          access.grants($0.line?.environment ?? .production, to: account)
        }
        for entitlement in Entitlement.entitlements(
          holdings: holdings, grants: grants, catalogue: catalogue, at: now)
        {
          expected.insert(Row(account: account, entitlement: entitlement))
        }
      }
      #expect(Set(expected.map(\.entitlement.state)) == Set(Entitlement.State.allCases))
      #expect(
        Set(expected.compactMap(\.entitlement.endedBecause))
          == Set(Entitlement.EndReason.allCases))
      #expect(found.count == Set(found).count)
      let (missing, extra) = (
        expected.subtracting(found).map(\.description).sorted(),
        Set(found).subtracting(expected).map(\.description).sorted()
      )
      #expect(
        missing.isEmpty && extra.isEmpty,
        """
        seed \(seed), at \(now): of \(expected.count)
        only in code: \(missing.prefix(3).joined(separator: "\n"))
        only in SQL: \(extra.prefix(3).joined(separator: "\n"))
        """)
    }
  }

  private struct Row: Hashable, Sendable, CustomStringConvertible {
    var account: String
    var entitlement: Entitlement

    var description: String { "\(account): \(entitlement)" }
  }

  private static func rows(_ rows: Rows) throws -> [Row] {
    try rows.decode(
      String.self, String.self, Bool.self, String.self, ProductID?.self, Timestamp?.self,
      Timestamp?.self, Bool.self, PeriodType.self, Environment?.self,
      OriginalTransactionID?.self, TransactionID?.self, Entitlement.Source.self, Timestamp?.self,
      String?.self
    ).map {
      account, name, isActive, state, product, expiresAt, accessEndsAt, willRenew, period,
      environment, line, transaction, source, endedAt, because in
      let state = try #require(Entitlement.State(rawValue: state))
      #expect(state.isActive == isActive)
      let entitlement = Entitlement(
        name: name, state: state, productID: product, expiresAt: expiresAt,
        accessEndsAt: accessEndsAt, willRenew: willRenew, periodType: period,
        environment: environment, originalTransactionID: line, transactionID: transaction,
        source: source, endedBecause: because.flatMap(Entitlement.EndReason.init(rawValue:)))
      #expect(entitlement.endedAt == endedAt)
      return Row(account: account, entitlement: entitlement)
    }
  }

  /// A catalogue whose products changed, and holdings and grants of all kinds within hours of now.
  private static func randomRows(seed: Double) -> String {
    """
    SELECT setseed(\(seed));
    CREATE FUNCTION pg_temp.hour(h double precision) RETURNS timestamptz LANGUAGE sql
      AS $$ SELECT date_trunc('hour', now()) + floor(h) * interval '1 hour' $$;
    CREATE FUNCTION pg_temp.one(VARIADIC choices text[]) RETURNS text LANGUAGE sql VOLATILE
      AS $$ SELECT choices[1 + floor(random() * array_length(choices, 1))] $$;

    INSERT INTO tenure.product (product_id, valid_from, type, period) VALUES
      ('month', pg_temp.hour(-30), 'auto_renewable', NULL),
      ('month', pg_temp.hour(-9), 'auto_renewable', 'P1M'),
      ('quarter', pg_temp.hour(-30), 'auto_renewable', NULL),
      ('pass', pg_temp.hour(-12), 'non_renewing', 'P1D'),
      ('pass', pg_temp.hour(-4), 'non_renewing', 'P2D'),
      ('lifetime', pg_temp.hour(-30), 'non_consumable', NULL),
      ('coins', pg_temp.hour(-30), 'consumable', NULL);
    INSERT INTO tenure.product_entitlement (product_id, valid_from, entitlement) VALUES
      ('month', pg_temp.hour(-30), 'old'), ('month', pg_temp.hour(-9), 'basic'),
      ('quarter', pg_temp.hour(-30), 'basic'), ('quarter', pg_temp.hour(-30), 'gold'),
      ('pass', pg_temp.hour(-12), 'gold'), ('pass', pg_temp.hour(-4), 'gold'),
      ('pass', pg_temp.hour(-4), 'event'), ('lifetime', pg_temp.hour(-30), 'basic'),
      ('coins', pg_temp.hour(-30), 'basic');

    INSERT INTO tenure.holding (account_id, environment, original_transaction_id, transaction_id,
      product_id, linked_to, product_type, period_type, starts_at, ends_at, revoked_at,
      is_sharing_ended, superseded_at, moved_at, auto_renews, phase, grace_ends_at)
    SELECT account_id, environment, line, transaction, product,
      CASE WHEN line <> '9' AND linked < 0.3 THEN '9' END,
      product_type, period_type,
      CASE WHEN near < 0.1 THEN now() + near * interval '2 hours' - interval '4 minutes'
        ELSE pg_temp.hour(starts) + late::interval
      END,
      CASE WHEN ends < 12 THEN pg_temp.hour(starts + ends) END,
      CASE WHEN revoked < 6 THEN pg_temp.hour(starts + revoked) END, failed < 0.3,
      CASE WHEN superseded < 6 THEN pg_temp.hour(starts + superseded) END,
      CASE WHEN phase IS NULL AND moved < 6 THEN pg_temp.hour(starts + moved) END,
      CASE WHEN phase IS NOT NULL THEN renews < 0.7 END, phase,
      CASE WHEN phase = 'grace_period' OR failed < 0.2 THEN pg_temp.hour(grace) END
    FROM (
      SELECT 'account ' || account AS account_id,
        pg_temp.one('production', 'production', 'sandbox') AS environment,
        pg_temp.one('9', '10', '100') AS line,
        pg_temp.one('1', '2', '3', '10', '11', '100') AS transaction,
        pg_temp.one('month', 'month', 'month', 'quarter', 'quarter', 'pass', 'lifetime', 'coins',
          'unknown') AS product,
        random() AS linked,
        pg_temp.one(NULL, NULL, NULL, NULL, 'auto_renewable', 'non_consumable') AS product_type,
        pg_temp.one('normal', 'trial') AS period_type,
        random() * 16 - 12 AS starts, random() * 14 AS ends, random() * 20 AS revoked,
        random() * 24 AS superseded, random() * 10 AS moved, random() AS renews,
        pg_temp.one(NULL, 'undisturbed', 'undisturbed', 'grace_period', 'billing_retry', 'expired')
          AS phase,
        random() * 12 - 6 AS grace, random() AS failed, random() AS near,
        pg_temp.one('0 s', '0 s', '0 s', '-30 s', '20 s', '60 s', '60.001 s', '61 s') AS late
      FROM generate_series(1, \(accounts.count)) AS account,
        generate_series(1, 1 + (account % 6)) AS row
    ) AS random
    ON CONFLICT DO NOTHING;

    INSERT INTO tenure.account_grant (account_id, grant_id, entitlement, source, starts_at, ends_at,
      reason, recorded_at, revoked_at, submission_id, environment, original_transaction_id)
    SELECT 'account ' || account, gen_random_uuid(), pg_temp.one('basic', 'event', 'vip'), source,
      pg_temp.hour(starts),
      CASE WHEN source = 'provisional' OR ends < 8 THEN pg_temp.hour(starts + 1 + ends) END, 'test',
      pg_temp.hour(starts),
      CASE WHEN source = 'grant' AND revoked < 0.4 THEN pg_temp.hour(starts + revoked * ends) END,
      CASE WHEN source = 'provisional' THEN gen_random_uuid() END,
      CASE WHEN source = 'provisional' THEN pg_temp.one('production', 'sandbox') END,
      CASE WHEN source = 'provisional' THEN pg_temp.one('9', '10', '100') END
    FROM (
      SELECT account, pg_temp.one('grant', 'provisional') AS source, random() * 8 - 6 AS starts,
        random() * 10 AS ends, random() AS revoked
      FROM generate_series(1, \(accounts.count), 3) AS account, generate_series(1, 2)
    ) AS random;
    """
  }
}
