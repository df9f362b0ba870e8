CREATE OR REPLACE FUNCTION report_subscriptions(
    product text DEFAULT NULL, environment text DEFAULT 'production',
    include_family_shared boolean DEFAULT false, include_grants boolean DEFAULT false,
    known_at timestamptz DEFAULT NULL, as_of timestamptz DEFAULT now())
RETURNS TABLE (product_id text, state text, number bigint)
LANGUAGE sql STABLE PARALLEL SAFE BEGIN ATOMIC
    SELECT s.product_id, s.cause, sum(s.number)::bigint
    FROM movement_sum(ARRAY['state'], 'at', NULL, NULL, 'UTC', product, environment,
        include_family_shared, known_at, least(as_of, known_at)) AS s
    GROUP BY s.product_id, s.cause
    HAVING sum(s.number) <> 0
    UNION ALL
    SELECT NULL, 'granted', sum(g.number)::bigint
    FROM grant_item(include_grants, environment, product, least(as_of, known_at)) AS g
    HAVING sum(g.number) <> 0
    ORDER BY 1, 2;
END;
COMMENT ON FUNCTION report_subscriptions IS
    'Subscriptions to auto-renewable products by product and state at as_of. Original transactions '
    'that Apple links are one subscription. The state is that of its latest charge. '
    'active_renewing: paid, set to renew; active_cancelled: paid, set to end; trial_renewing and '
    'trial_cancelled: in a trial; in_grace_period: the renewal failed, access continues; '
    'in_billing_retry: access has ended, Apple keeps trying; revoked: Apple gave the money back; '
    'expired: ended. include_grants adds administrators'' grants, in the state granted and without '
    'a product. Production only and without family sharing, unless chosen otherwise.';

CREATE OR REPLACE FUNCTION report_subscriptions_item(
    product text DEFAULT NULL, environment text DEFAULT 'production',
    include_family_shared boolean DEFAULT false, include_grants boolean DEFAULT false,
    known_at timestamptz DEFAULT NULL, as_of timestamptz DEFAULT now())
RETURNS TABLE (product_id text, state text, original_transaction_id text, transaction_id text,
    since timestamptz, number bigint, account_id text)
LANGUAGE sql STABLE PARALLEL SAFE BEGIN ATOMIC
    SELECT s.product_id, s.state, s.original_transaction_id, s.transaction_id, s.since, s.number,
        s.account_id
    FROM movement_stock(ARRAY['state'], false, false, NULL, NULL, 'day', 'UTC', product,
        environment, include_family_shared, known_at, as_of) AS s
    UNION ALL
    SELECT NULL, 'granted', NULL, g.grant_id, max(g.at), sum(g.number)::bigint, g.account_id
    FROM grant_item(include_grants, environment, product, least(as_of, known_at)) AS g
    GROUP BY g.grant_id, g.account_id
    HAVING sum(g.number) <> 0;
END;
COMMENT ON FUNCTION report_subscriptions_item IS
    'The subscriptions that report_subscriptions counts, each with the charge that put it into its '
    'state, since when, and the account that owned its latest charge. The transaction_id of a '
    'grant is its ID.';
