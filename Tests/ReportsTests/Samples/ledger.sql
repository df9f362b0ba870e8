-- A small ledger of movements, worked out by hand: what each report says of it stands in answers.sql.
-- The moment is 2026-04-15 12:00 UTC. Accounts are a, b, c; times are UTC.

SET search_path TO tenure;

INSERT INTO product (product_id, valid_from, type, subscription_group, period, price_milliunits,
    currency)
VALUES ('month', '2025-01-01Z', 'auto_renewable', 'g', 'P1M', 10990, 'EUR'),
    ('year', '2025-01-01Z', 'auto_renewable', 'g', 'P1Y', 59990, 'EUR'),
    ('week', '2025-01-01Z', 'auto_renewable', 'h', 'P1W', 1990, 'USD'),
    ('coins', '2025-01-01Z', 'consumable', NULL, NULL, 2500, 'EUR'),
    -- This price was not known at the moment.
    ('month', '2026-04-17Z', 'auto_renewable', 'g', 'P1M', 12990, 'EUR');

INSERT INTO account_by_key (account_key, account_id, app_account_token)
VALUES ('00000000-0000-0000-0000-00000000000a', 'a', gen_random_uuid()),
    ('00000000-0000-0000-0000-00000000000b', 'b', gen_random_uuid()),
    ('00000000-0000-0000-0000-00000000000c', 'c', gen_random_uuid());

CREATE TEMPORARY TABLE reported (
    line text, kind text, at timestamptz, transaction_id text, product_id text, cause text,
    origin_at timestamptz, number smallint, period_type text, currency text, amount bigint,
    source text, mrr bigint, account text, known_from timestamptz, known_until timestamptz);

INSERT INTO reported VALUES
-- s1, account a: three months, then switched off, and it ended. On 10 March nothing was known of the third
-- charge until the 16th: until then it seemed to have ended.
('s1', 'charged', '2026-01-10 10:00Z', 't11', 'month', '', NULL, 1, 'normal', 'EUR', 9990, 'app_store', 0, 'a', '2026-01-10 11:00Z', 'infinity'),
('s1', 'charged', '2026-02-10 10:00Z', 't12', 'month', '', NULL, 1, 'normal', 'EUR', 9990, 'app_store', 0, 'a', '2026-02-10 11:00Z', 'infinity'),
('s1', 'charged', '2026-03-10 10:00Z', 't13', 'month', '', NULL, 1, 'normal', 'EUR', 9990, 'app_store', 0, 'a', '2026-03-16 00:00Z', 'infinity'),
('s1', 'started', '2026-01-10 10:00Z', 't11', 'month', '', '2026-01-10 10:00Z', 1, 'normal', 'EUR', 0, 'app_store', 119880, 'a', '2026-01-10 11:00Z', 'infinity'),
('s1', 'ended', '2026-03-10 10:00Z', 't12', 'month', 'unknown', '2026-01-10 10:00Z', -1, 'normal', 'EUR', 0, 'app_store', -119880, 'a', '2026-02-10 11:00Z', '2026-03-16 00:00Z'),
('s1', 'ended', '2026-04-10 10:00Z', 't13', 'month', 'voluntary', '2026-01-10 10:00Z', -1, 'normal', 'EUR', 0, 'app_store', -119880, 'a', '2026-03-16 00:00Z', 'infinity'),
('s1', 'auto_renew_off', '2026-03-20 08:00Z', 't13', 'month', '', NULL, 1, 'normal', NULL, 0, NULL, 0, 'a', '2026-03-20 09:00Z', 'infinity'),
('s1', 'state', '2026-01-10 10:00Z', 't11', 'month', 'active_renewing', NULL, 1, 'normal', NULL, 0, NULL, 0, 'a', '2026-01-10 11:00Z', 'infinity'),
('s1', 'state', '2026-03-10 10:00Z', 't12', 'month', 'active_renewing', NULL, -1, 'normal', NULL, 0, NULL, 0, 'a', '2026-02-10 11:00Z', '2026-03-16 00:00Z'),
('s1', 'state', '2026-03-10 10:00Z', 't12', 'month', 'expired', NULL, 1, 'normal', NULL, 0, NULL, 0, 'a', '2026-02-10 11:00Z', '2026-03-16 00:00Z'),
('s1', 'state', '2026-03-20 08:00Z', 't13', 'month', 'active_renewing', NULL, -1, 'normal', NULL, 0, NULL, 0, 'a', '2026-03-20 09:00Z', 'infinity'),
('s1', 'state', '2026-03-20 08:00Z', 't13', 'month', 'active_cancelled', NULL, 1, 'normal', NULL, 0, NULL, 0, 'a', '2026-03-20 09:00Z', 'infinity'),
('s1', 'state', '2026-04-10 10:00Z', 't13', 'month', 'active_cancelled', NULL, -1, 'normal', NULL, 0, NULL, 0, 'a', '2026-03-20 09:00Z', 'infinity'),
('s1', 'state', '2026-04-10 10:00Z', 't13', 'month', 'expired', NULL, 1, 'normal', NULL, 0, NULL, 0, 'a', '2026-03-20 09:00Z', 'infinity'),
-- s2, account b: a trial that converts, a higher price, a refund of that month, then a year.
('s2', 'charged', '2026-01-15 10:00Z', 't21', 'month', '', NULL, 1, 'trial', 'EUR', 0, 'app_store', 0, 'b', '2026-01-15 11:00Z', 'infinity'),
('s2', 'charged', '2026-01-22 10:00Z', 't22', 'month', '', NULL, 1, 'normal', 'EUR', 9990, 'app_store', 0, 'b', '2026-01-22 11:00Z', 'infinity'),
('s2', 'charged', '2026-02-22 10:00Z', 't23', 'month', '', NULL, 1, 'normal', 'EUR', 10990, 'catalogue', 0, 'b', '2026-02-22 11:00Z', 'infinity'),
('s2', 'charged', '2026-03-22 10:00Z', 't24', 'month', '', NULL, 1, 'normal', 'EUR', 10990, 'app_store', 0, 'b', '2026-03-22 11:00Z', 'infinity'),
('s2', 'charged', '2026-03-25 10:00Z', 't25', 'year', '', NULL, 1, 'normal', 'EUR', 59990, 'app_store', 0, 'b', '2026-03-25 11:00Z', 'infinity'),
('s2', 'refunded', '2026-03-05 23:30Z', 't23', 'month', 'other', '2026-02-22 10:00Z', -1, 'normal', 'EUR', -10990, 'catalogue', 0, 'b', '2026-03-06 11:00Z', 'infinity'),
('s2', 'trial_started', '2026-01-15 10:00Z', 't21', 'month', '', '2026-01-15 10:00Z', 1, 'trial', NULL, 0, NULL, 0, 'b', '2026-01-15 11:00Z', 'infinity'),
('s2', 'trial_ended', '2026-01-22 10:00Z', 't21', 'month', 'converted', '2026-01-15 10:00Z', -1, 'trial', NULL, 0, NULL, 0, 'b', '2026-01-22 11:00Z', 'infinity'),
('s2', 'started', '2026-01-22 10:00Z', 't22', 'month', '', '2026-01-22 10:00Z', 1, 'normal', 'EUR', 0, 'app_store', 119880, 'b', '2026-01-22 11:00Z', 'infinity'),
('s2', 'repriced', '2026-02-22 10:00Z', 't23', 'month', '', '2026-01-22 10:00Z', 0, 'normal', 'EUR', 0, 'app_store', 12000, 'b', '2026-02-22 11:00Z', 'infinity'),
('s2', 'changed_from', '2026-03-25 10:00Z', 't24', 'month', '', '2026-01-22 10:00Z', -1, 'normal', 'EUR', 0, 'app_store', -131880, 'b', '2026-03-25 11:00Z', 'infinity'),
('s2', 'changed_to', '2026-03-25 10:00Z', 't25', 'year', '', '2026-01-22 10:00Z', 1, 'normal', 'EUR', 0, 'app_store', 59990, 'b', '2026-03-25 11:00Z', 'infinity'),
('s2', 'ended', '2027-03-25 10:00Z', 't25', 'year', 'unknown', '2026-01-22 10:00Z', -1, 'normal', 'EUR', 0, 'app_store', -59990, 'b', '2026-03-25 11:00Z', 'infinity'),
('s2', 'state', '2026-01-15 10:00Z', 't21', 'month', 'trial_renewing', NULL, 1, 'trial', NULL, 0, NULL, 0, 'b', '2026-01-15 11:00Z', 'infinity'),
('s2', 'state', '2026-01-22 10:00Z', 't21', 'month', 'trial_renewing', NULL, -1, 'trial', NULL, 0, NULL, 0, 'b', '2026-01-15 11:00Z', 'infinity'),
('s2', 'state', '2026-01-22 10:00Z', 't22', 'month', 'active_renewing', NULL, 1, 'normal', NULL, 0, NULL, 0, 'b', '2026-01-22 11:00Z', 'infinity'),
('s2', 'state', '2026-03-25 10:00Z', 't24', 'month', 'active_renewing', NULL, -1, 'normal', NULL, 0, NULL, 0, 'b', '2026-03-25 11:00Z', 'infinity'),
('s2', 'state', '2026-03-25 10:00Z', 't25', 'year', 'active_renewing', NULL, 1, 'normal', NULL, 0, NULL, 0, 'b', '2026-03-25 11:00Z', 'infinity'),
('s2', 'state', '2027-03-25 10:00Z', 't25', 'year', 'active_renewing', NULL, -1, 'normal', NULL, 0, NULL, 0, 'b', '2026-03-25 11:00Z', 'infinity'),
('s2', 'state', '2027-03-25 10:00Z', 't25', 'year', 'expired', NULL, 1, 'normal', NULL, 0, NULL, 0, 'b', '2026-03-25 11:00Z', 'infinity'),
-- s3, unclaimed: a trial that lapses; and s9, account c: one that is still open.
('s3', 'charged', '2026-01-28 10:00Z', 't31', 'month', '', NULL, 1, 'trial', 'EUR', 0, 'app_store', 0, NULL, '2026-01-28 11:00Z', 'infinity'),
('s3', 'trial_started', '2026-01-28 10:00Z', 't31', 'month', '', '2026-01-28 10:00Z', 1, 'trial', NULL, 0, NULL, 0, NULL, '2026-01-28 11:00Z', 'infinity'),
('s3', 'trial_ended', '2026-02-04 10:00Z', 't31', 'month', 'unknown', '2026-01-28 10:00Z', -1, 'trial', NULL, 0, NULL, 0, NULL, '2026-01-28 11:00Z', 'infinity'),
('s3', 'state', '2026-01-28 10:00Z', 't31', 'month', 'trial_cancelled', NULL, 1, 'trial', NULL, 0, NULL, 0, NULL, '2026-01-28 11:00Z', 'infinity'),
('s3', 'state', '2026-02-04 10:00Z', 't31', 'month', 'trial_cancelled', NULL, -1, 'trial', NULL, 0, NULL, 0, NULL, '2026-01-28 11:00Z', 'infinity'),
('s3', 'state', '2026-02-04 10:00Z', 't31', 'month', 'expired', NULL, 1, 'trial', NULL, 0, NULL, 0, NULL, '2026-01-28 11:00Z', 'infinity'),
('s9', 'charged', '2026-04-12 10:00Z', 't91', 'month', '', NULL, 1, 'trial', 'EUR', 0, 'app_store', 0, 'c', '2026-04-12 11:00Z', 'infinity'),
('s9', 'trial_started', '2026-04-12 10:00Z', 't91', 'month', '', '2026-04-12 10:00Z', 1, 'trial', NULL, 0, NULL, 0, 'c', '2026-04-12 11:00Z', 'infinity'),
('s9', 'trial_ended', '2026-04-19 10:00Z', 't91', 'month', 'unknown', '2026-04-12 10:00Z', -1, 'trial', NULL, 0, NULL, 0, 'c', '2026-04-12 11:00Z', 'infinity'),
('s9', 'state', '2026-04-12 10:00Z', 't91', 'month', 'trial_renewing', NULL, 1, 'trial', NULL, 0, NULL, 0, 'c', '2026-04-12 11:00Z', 'infinity'),
('s9', 'state', '2026-04-19 10:00Z', 't91', 'month', 'trial_renewing', NULL, -1, 'trial', NULL, 0, NULL, 0, 'c', '2026-04-12 11:00Z', 'infinity'),
('s9', 'state', '2026-04-19 10:00Z', 't91', 'month', 'expired', NULL, 1, 'trial', NULL, 0, NULL, 0, 'c', '2026-04-12 11:00Z', 'infinity'),
-- s4, account c: saved in its grace period; then, after another grace period, Apple tries in vain.
('s4', 'charged', '2026-01-05 10:00Z', 't41', 'month', '', NULL, 1, 'normal', 'EUR', 9990, 'app_store', 0, 'c', '2026-01-05 11:00Z', 'infinity'),
('s4', 'charged', '2026-02-05 10:00Z', 't42', 'month', '', NULL, 1, 'normal', 'EUR', 9990, 'app_store', 0, 'c', '2026-02-10 11:00Z', 'infinity'),
('s4', 'started', '2026-01-05 10:00Z', 't41', 'month', '', '2026-01-05 10:00Z', 1, 'normal', 'EUR', 0, 'app_store', 119880, 'c', '2026-01-05 11:00Z', 'infinity'),
('s4', 'ended', '2026-03-11 10:00Z', 't42', 'month', 'billing', '2026-01-05 10:00Z', -1, 'normal', 'EUR', 0, 'app_store', -119880, 'c', '2026-03-05 11:00Z', 'infinity'),
('s4', 'grace_entered', '2026-02-05 10:00Z', 't41', 'month', '', NULL, 1, 'normal', NULL, 0, NULL, 0, 'c', '2026-02-05 11:00Z', 'infinity'),
('s4', 'billing_recovered', '2026-02-10 10:00Z', 't42', 'month', '', '2026-02-05 10:00Z', 1, 'normal', NULL, 0, NULL, 0, 'c', '2026-02-10 11:00Z', 'infinity'),
('s4', 'grace_entered', '2026-03-05 10:00Z', 't42', 'month', '', NULL, 1, 'normal', NULL, 0, NULL, 0, 'c', '2026-03-05 11:00Z', 'infinity'),
('s4', 'retry_entered', '2026-03-11 10:00Z', 't42', 'month', '', NULL, 1, 'normal', NULL, 0, NULL, 0, 'c', '2026-03-05 11:00Z', 'infinity'),
('s4', 'billing_lost', '2026-05-04 10:00Z', 't42', 'month', '', '2026-03-05 10:00Z', 1, 'normal', NULL, 0, NULL, 0, 'c', '2026-03-05 11:00Z', 'infinity'),
('s4', 'state', '2026-01-05 10:00Z', 't41', 'month', 'active_renewing', NULL, 1, 'normal', NULL, 0, NULL, 0, 'c', '2026-01-05 11:00Z', 'infinity'),
('s4', 'state', '2026-02-05 10:00Z', 't41', 'month', 'active_renewing', NULL, -1, 'normal', NULL, 0, NULL, 0, 'c', '2026-01-05 11:00Z', 'infinity'),
('s4', 'state', '2026-02-05 10:00Z', 't41', 'month', 'in_grace_period', NULL, 1, 'normal', NULL, 0, NULL, 0, 'c', '2026-02-05 11:00Z', 'infinity'),
('s4', 'state', '2026-02-10 10:00Z', 't42', 'month', 'in_grace_period', NULL, -1, 'normal', NULL, 0, NULL, 0, 'c', '2026-02-10 11:00Z', 'infinity'),
('s4', 'state', '2026-02-10 10:00Z', 't42', 'month', 'active_renewing', NULL, 1, 'normal', NULL, 0, NULL, 0, 'c', '2026-02-10 11:00Z', 'infinity'),
('s4', 'state', '2026-03-05 10:00Z', 't42', 'month', 'active_renewing', NULL, -1, 'normal', NULL, 0, NULL, 0, 'c', '2026-02-10 11:00Z', 'infinity'),
('s4', 'state', '2026-03-05 10:00Z', 't42', 'month', 'in_grace_period', NULL, 1, 'normal', NULL, 0, NULL, 0, 'c', '2026-03-05 11:00Z', 'infinity'),
('s4', 'state', '2026-03-11 10:00Z', 't42', 'month', 'in_grace_period', NULL, -1, 'normal', NULL, 0, NULL, 0, 'c', '2026-03-05 11:00Z', 'infinity'),
('s4', 'state', '2026-03-11 10:00Z', 't42', 'month', 'in_billing_retry', NULL, 1, 'normal', NULL, 0, NULL, 0, 'c', '2026-03-05 11:00Z', 'infinity'),
('s4', 'state', '2026-05-04 10:00Z', 't42', 'month', 'in_billing_retry', NULL, -1, 'normal', NULL, 0, NULL, 0, 'c', '2026-03-05 11:00Z', 'infinity'),
('s4', 'state', '2026-05-04 10:00Z', 't42', 'month', 'expired', NULL, 1, 'normal', NULL, 0, NULL, 0, 'c', '2026-03-05 11:00Z', 'infinity'),
-- s5, account a and, from the last charge on, b: weeks in dollars, refunded, bought again, switched off
-- and on again, and due on 16 April.
('s5', 'charged', '2026-02-27 10:00Z', 't51', 'week', '', NULL, 1, 'intro', 'USD', 990, 'app_store', 0, 'a', '2026-02-27 11:00Z', 'infinity'),
('s5', 'charged', '2026-03-06 10:00Z', 't52', 'week', '', NULL, 1, 'normal', 'USD', 1990, 'app_store', 0, 'a', '2026-03-06 11:00Z', 'infinity'),
('s5', 'refunded', '2026-03-08 10:00Z', 't52', 'week', 'issue_with_app', '2026-03-06 10:00Z', -1, 'normal', 'USD', -1990, 'app_store', 0, 'a', '2026-03-08 11:00Z', 'infinity'),
('s5', 'charged', '2026-04-02 10:00Z', 't53', 'week', '', NULL, 1, 'normal', 'USD', 1990, 'app_store', 0, 'b', '2026-04-02 11:00Z', 'infinity'),
('s5', 'charged', '2026-04-09 10:00Z', 't54', 'week', '', NULL, 1, 'normal', 'USD', 1990, 'app_store', 0, 'b', '2026-04-09 11:00Z', 'infinity'),
('s5', 'started', '2026-02-27 10:00Z', 't51', 'week', '', '2026-02-27 10:00Z', 1, 'intro', 'USD', 0, 'app_store', 47520, 'a', '2026-02-27 11:00Z', 'infinity'),
('s5', 'repriced', '2026-03-06 10:00Z', 't52', 'week', '', '2026-02-27 10:00Z', 0, 'intro', 'USD', 0, 'app_store', 48000, 'a', '2026-03-06 11:00Z', 'infinity'),
('s5', 'ended', '2026-03-08 10:00Z', 't52', 'week', 'refunded', '2026-02-27 10:00Z', -1, 'intro', 'USD', 0, 'app_store', -95520, 'a', '2026-03-08 11:00Z', 'infinity'),
('s5', 'resumed', '2026-04-02 10:00Z', 't53', 'week', '', '2026-02-27 10:00Z', 1, 'normal', 'USD', 0, 'app_store', 95520, 'b', '2026-04-02 11:00Z', 'infinity'),
('s5', 'ended', '2026-04-16 10:00Z', 't54', 'week', 'unknown', '2026-02-27 10:00Z', -1, 'normal', 'USD', 0, 'app_store', -95520, 'b', '2026-04-09 11:00Z', 'infinity'),
('s5', 'auto_renew_off', '2026-04-03 10:00Z', 't53', 'week', '', NULL, 1, 'normal', NULL, 0, NULL, 0, 'b', '2026-04-03 11:00Z', 'infinity'),
('s5', 'auto_renew_on', '2026-04-04 10:00Z', 't53', 'week', '', NULL, 1, 'normal', NULL, 0, NULL, 0, 'b', '2026-04-04 11:00Z', 'infinity'),
('s5', 'state', '2026-02-27 10:00Z', 't51', 'week', 'active_renewing', NULL, 1, 'intro', NULL, 0, NULL, 0, 'a', '2026-02-27 11:00Z', 'infinity'),
('s5', 'state', '2026-03-06 10:00Z', 't51', 'week', 'active_renewing', NULL, -1, 'intro', NULL, 0, NULL, 0, 'a', '2026-03-06 11:00Z', 'infinity'),
('s5', 'state', '2026-03-06 10:00Z', 't52', 'week', 'active_renewing', NULL, 1, 'normal', NULL, 0, NULL, 0, 'a', '2026-03-06 11:00Z', 'infinity'),
('s5', 'state', '2026-03-08 10:00Z', 't52', 'week', 'active_renewing', NULL, -1, 'normal', NULL, 0, NULL, 0, 'a', '2026-03-08 11:00Z', 'infinity'),
('s5', 'state', '2026-03-08 10:00Z', 't52', 'week', 'revoked', NULL, 1, 'normal', NULL, 0, NULL, 0, 'a', '2026-03-08 11:00Z', 'infinity'),
('s5', 'state', '2026-04-02 10:00Z', 't53', 'week', 'revoked', NULL, -1, 'normal', NULL, 0, NULL, 0, 'b', '2026-04-02 11:00Z', 'infinity'),
('s5', 'state', '2026-04-02 10:00Z', 't53', 'week', 'active_renewing', NULL, 1, 'normal', NULL, 0, NULL, 0, 'b', '2026-04-02 11:00Z', 'infinity'),
('s5', 'state', '2026-04-16 10:00Z', 't54', 'week', 'active_renewing', NULL, -1, 'normal', NULL, 0, NULL, 0, 'b', '2026-04-09 11:00Z', 'infinity'),
('s5', 'state', '2026-04-16 10:00Z', 't54', 'week', 'expired', NULL, 1, 'normal', NULL, 0, NULL, 0, 'b', '2026-04-09 11:00Z', 'infinity'),
-- s8, account c: moves from euros to dollars; renews on 20 April.
('s8', 'charged', '2026-01-20 10:00Z', 't81', 'month', '', NULL, 1, 'normal', 'EUR', 9990, 'app_store', 0, 'c', '2026-01-20 11:00Z', 'infinity'),
('s8', 'charged', '2026-02-20 10:00Z', 't82', 'month', '', NULL, 1, 'normal', 'EUR', 9990, 'app_store', 0, 'c', '2026-02-20 11:00Z', 'infinity'),
('s8', 'charged', '2026-03-20 10:00Z', 't83', 'month', '', NULL, 1, 'normal', 'USD', 10490, 'app_store', 0, 'c', '2026-03-20 11:00Z', 'infinity'),
('s8', 'started', '2026-01-20 10:00Z', 't81', 'month', '', '2026-01-20 10:00Z', 1, 'normal', 'EUR', 0, 'app_store', 119880, 'c', '2026-01-20 11:00Z', 'infinity'),
('s8', 'repriced', '2026-03-20 10:00Z', 't83', 'month', 'from', '2026-01-20 10:00Z', 0, 'normal', 'EUR', 0, 'app_store', -119880, 'c', '2026-03-20 11:00Z', 'infinity'),
('s8', 'repriced', '2026-03-20 10:00Z', 't83', 'month', 'to', '2026-01-20 10:00Z', 0, 'normal', 'USD', 0, 'app_store', 125880, 'c', '2026-03-20 11:00Z', 'infinity'),
('s8', 'ended', '2026-04-20 10:00Z', 't83', 'month', 'unknown', '2026-01-20 10:00Z', -1, 'normal', 'USD', 0, 'app_store', -125880, 'c', '2026-03-20 11:00Z', 'infinity'),
('s8', 'state', '2026-01-20 10:00Z', 't81', 'month', 'active_renewing', NULL, 1, 'normal', NULL, 0, NULL, 0, 'c', '2026-01-20 11:00Z', 'infinity'),
('s8', 'state', '2026-04-20 10:00Z', 't83', 'month', 'active_renewing', NULL, -1, 'normal', NULL, 0, NULL, 0, 'c', '2026-03-20 11:00Z', 'infinity'),
('s8', 'state', '2026-04-20 10:00Z', 't83', 'month', 'expired', NULL, 1, 'normal', NULL, 0, NULL, 0, 'c', '2026-03-20 11:00Z', 'infinity'),
-- Unclaimed coins, one of them without a known price; at midnight in Berlin it is March.
('c1', 'charged', '2026-02-28 23:30Z', 'tc1', 'coins', '', NULL, 1, 'normal', 'EUR', 2500, 'catalogue', 0, NULL, '2026-03-01 00:00Z', 'infinity'),
('c2', 'charged', '2026-04-15 10:00Z', 'tc2', 'mystery', '', NULL, 1, 'normal', NULL, 0, NULL, 0, NULL, '2026-04-15 10:30Z', 'infinity'),
-- Two coins that account a ordered, and gave back within the hour.
('c1', 'charged', '2026-04-14 23:30Z', 'tc3', 'coins', '', NULL, 1, 'normal', 'EUR', 5000, 'catalogue', 0, 'a', '2026-04-15 00:00Z', 'infinity'),
('c1', 'refunded', '2026-04-14 23:45Z', 'tc3', 'coins', 'other', '2026-04-14 23:30Z', -1, 'normal', 'EUR', -5000, 'catalogue', 0, 'a', '2026-04-15 00:10Z', 'infinity');

-- The same month for another member of the family, and in the sandbox.
INSERT INTO movement (environment, original_transaction_id, kind, at, transaction_id,
    charge_original_transaction_id, product_id, product_type, cause, origin_at, number, ownership_type, period_type, quantity, currency, amount_milliunits, price_source,
    mrr_twelfths, account_key, rule, decided_at, has_moved, is_renewal, expires_at, known_from,
    known_until)
SELECT e.environment, e.prefix || line, kind, at, e.prefix || transaction_id, e.prefix || line,
    product_id, 'auto_renewable', cause, origin_at, number, e.ownership_type, period_type, 1,
    currency, CASE e.prefix WHEN 'f' THEN 0 ELSE amount END, source,
    CASE e.prefix WHEN 'f' THEN 0 ELSE mrr END,
    CASE WHEN account IS NOT NULL
        THEN ('00000000-0000-0000-0000-00000000000' || account)::uuid END,
    CASE WHEN kind <> 'charged' THEN NULL WHEN account IS NULL THEN 'unclaimed'
        ELSE 'submitter' END,
    CASE kind WHEN 'charged' THEN known_from END, CASE kind WHEN 'charged' THEN false END,
    CASE kind WHEN 'charged' THEN false END, CASE kind WHEN 'charged' THEN timestamptz 'infinity' END,
    known_from, known_until
FROM reported
JOIN (VALUES ('production', '', 'purchased'), ('production', 'f', 'family_shared'),
    ('sandbox', 'x', 'purchased')) AS e (environment, prefix, ownership_type)
    ON e.prefix = '' OR line = 's1';

-- The owner of t54 was corrected a day later.
UPDATE movement SET rule = 'actively_auto_renewing', corrected_at = '2026-04-10 11:00Z'
WHERE environment = 'production' AND kind = 'charged' AND transaction_id = 't54';

-- s5 went from account a to account b with t53, and so did what a family shares.
UPDATE movement SET has_moved = true, moved_from_key = '00000000-0000-0000-0000-00000000000a',
    shared_with_key = '00000000-0000-0000-0000-00000000000a'
WHERE environment = 'production' AND kind = 'charged' AND transaction_id = 't53';
INSERT INTO movement
SELECT r.* FROM movement AS m
CROSS JOIN LATERAL jsonb_populate_record(m, jsonb_build_object(
    'original_transaction_id', 'family', 'charge_original_transaction_id', 'family',
    'transaction_id', 'f' || m.transaction_id, 'ownership_type', 'family_shared',
    'amount_milliunits', 0)) AS r
WHERE m.environment = 'production' AND m.kind = 'charged' AND m.transaction_id IN ('t51', 't53');

-- Edges, in the sandbox and before all that: moments that are midnight in UTC, that are another day or
-- month elsewhere, or that are those of a report; days of 25 hours; and months in which nothing stays.
INSERT INTO movement (environment, original_transaction_id, kind, at, transaction_id,
    charge_original_transaction_id, product_id, cause, origin_at, number, ownership_type, period_type,
    quantity, currency, amount_milliunits, price_source, mrr_twelfths, rule, decided_at, has_moved,
    is_renewal, expires_at, known_from, known_until)
SELECT 'sandbox', line, kind, at::timestamptz, 't' || line, line, product, cause,
    origin_at::timestamptz, number, 'purchased', period_type, 1, currency, amount,
    CASE WHEN currency IS NOT NULL THEN CASE line WHEN 'e10' THEN 'catalogue' ELSE 'app_store' END END,
    mrr, CASE kind WHEN 'charged' THEN 'unclaimed' END,
    CASE kind WHEN 'charged' THEN known_from::timestamptz END,
    CASE kind WHEN 'charged' THEN false END, CASE kind WHEN 'charged' THEN false END,
    CASE kind WHEN 'charged' THEN timestamptz 'infinity' END,
    known_from::timestamptz, known_until::timestamptz
FROM (VALUES
    -- e1: June to the day, in UTC.
    ('e1', 'charged', '2025-06-01 00:00Z', 'edge', '', NULL, 1, 'normal', 'EUR', 1000, 0, '2025-06-01 06:00Z', 'infinity'),
    ('e1', 'started', '2025-06-01 00:00Z', 'edge', '', '2025-06-01 00:00Z', 1, 'normal', 'EUR', 0, 12000, '2025-06-01 06:00Z', 'infinity'),
    ('e1', 'ended', '2025-07-01 00:00Z', 'edge', 'billing', '2025-06-01 00:00Z', -1, 'normal', 'EUR', 0, -12000, '2025-06-01 06:00Z', 'infinity'),
    ('e1', 'state', '2025-06-01 00:00Z', 'edge', 'active_renewing', NULL, 1, 'normal', NULL, 0, 0, '2025-06-01 06:00Z', 'infinity'),
    ('e1', 'state', '2025-07-01 00:00Z', 'edge', 'active_renewing', NULL, -1, 'normal', NULL, 0, 0, '2025-06-01 06:00Z', 'infinity'),
    -- e2: coins, in Berlin of July and back within 30 days, in UTC of June and back after 31.
    ('e2', 'charged', '2025-06-30 23:00Z', 'edgecoins', '', NULL, 1, 'normal', 'EUR', 500, 0, '2025-06-30 23:00Z', 'infinity'),
    ('e2', 'refunded', '2025-07-31 21:30Z', 'edgecoins', 'other', '2025-06-30 23:00Z', -1, 'normal', 'EUR', -500, 0, '2025-07-31 21:30Z', 'infinity'),
    -- e3: a trial, begun in June in Berlin and in May in UTC, that converts.
    ('e3', 'trial_started', '2025-05-31 23:00Z', 'edge', '', '2025-05-31 23:00Z', 1, 'trial', NULL, 0, 0, '2025-05-31 23:00Z', 'infinity'),
    ('e3', 'trial_ended', '2025-06-07 23:00Z', 'edge', 'converted', '2025-05-31 23:00Z', -1, 'trial', NULL, 0, 0, '2025-05-31 23:00Z', 'infinity'),
    ('e3', 'auto_renew_off', '2025-06-02 10:00Z', 'edge', '', NULL, 1, 'trial', NULL, 0, 0, '2025-06-02 10:00Z', 'infinity'),
    ('e3', 'started', '2025-06-07 23:00Z', 'edge', '', '2025-06-07 23:00Z', 1, 'normal', 'EUR', 0, 12000, '2025-06-07 23:00Z', 'infinity'),
    ('e3', 'ended', '2025-07-07 23:00Z', 'edge', 'voluntary', '2025-06-07 23:00Z', -1, 'normal', 'EUR', 0, -12000, '2025-06-07 23:00Z', 'infinity'),
    -- e4: trouble, begun in June in Berlin and in May in UTC.
    ('e4', 'billing_recovered', '2025-06-10 00:00Z', 'edge', '', '2025-05-31 23:30Z', 1, 'normal', NULL, 0, 0, '2025-06-10 00:00Z', 'infinity'),
    -- e5: for a day it was thought to be of another product.
    ('e5', 'charged', '2025-09-05 10:00Z', 'edgeold', '', NULL, 1, 'normal', 'EUR', 100, 0, '2025-09-05 12:00Z', '2025-09-06 12:00Z'),
    ('e5', 'charged', '2025-09-05 10:00Z', 'edge', '', NULL, 1, 'normal', 'EUR', 100, 0, '2025-09-06 12:00Z', 'infinity'),
    -- e6 and e7: in Berlin both are of the long day on which summer time ends.
    ('e6', 'charged', '2025-10-25 22:10Z', 'edge', '', NULL, 1, 'normal', 'EUR', 50, 0, '2025-10-25 22:10Z', 'infinity'),
    ('e7', 'charged', '2025-10-26 22:30Z', 'edge', '', NULL, 1, 'normal', 'EUR', 700, 0, '2025-10-26 22:30Z', 'infinity'),
    -- e8: comes back in euros, goes on in dollars, and is gone within the month.
    ('e8', 'started', '2025-02-10 10:00Z', 'edge', '', '2025-02-10 10:00Z', 1, 'normal', 'EUR', 0, 1200, '2025-02-10 10:00Z', 'infinity'),
    ('e8', 'ended', '2025-02-20 10:00Z', 'edge', 'unknown', '2025-02-10 10:00Z', -1, 'normal', 'EUR', 0, -1200, '2025-02-20 10:00Z', 'infinity'),
    ('e8', 'resumed', '2025-03-02 10:00Z', 'edge', '', '2025-02-10 10:00Z', 1, 'normal', 'EUR', 0, 1200, '2025-03-02 10:00Z', 'infinity'),
    ('e8', 'repriced', '2025-03-20 10:00Z', 'edge', 'from', '2025-02-10 10:00Z', 0, 'normal', 'EUR', 0, -1200, '2025-03-20 10:00Z', 'infinity'),
    ('e8', 'repriced', '2025-03-20 10:00Z', 'edge', 'to', '2025-02-10 10:00Z', 0, 'normal', 'USD', 0, 1200, '2025-03-20 10:00Z', 'infinity'),
    ('e8', 'ended', '2025-03-25 10:00Z', 'edge', 'product_withdrawn', '2025-02-10 10:00Z', -1, 'normal', 'USD', 0, -1200, '2025-03-25 10:00Z', 'infinity'),
    -- e9: a month renews at a lower price, and is due twenty days of 24 hours after 25 March 12:00,
    -- less half an hour; with summer time in between, that is later by the clock of Berlin.
    ('e9', 'charged', '2026-03-14 11:30Z', 'edge', '', NULL, 1, 'normal', 'EUR', 900, 0, '2026-03-14 11:30Z', 'infinity'),
    ('e9', 'state', '2026-03-14 11:30Z', 'edge', 'active_renewing', NULL, 1, 'normal', NULL, 0, 0, '2026-03-14 11:30Z', 'infinity'),
    ('e9', 'state', '2026-04-14 11:30Z', 'edge', 'active_renewing', NULL, -1, 'normal', NULL, 0, 0, '2026-03-14 11:30Z', 'infinity'),
    ('e9', 'state', '2026-04-14 11:30Z', 'edge', 'expired', NULL, 1, 'normal', NULL, 0, 0, '2026-03-14 11:30Z', 'infinity'),
    -- e10: at the catalogue's price, which falls, to which the customer does not consent.
    ('e10', 'started', '2025-04-02 10:00Z', 'edge', '', '2025-04-02 10:00Z', 1, 'normal', 'EUR', 0, 2400, '2025-04-02 10:00Z', 'infinity'),
    ('e10', 'repriced', '2025-04-10 10:00Z', 'edge', '', '2025-04-02 10:00Z', 0, 'normal', 'EUR', 0, -1200, '2025-04-10 10:00Z', 'infinity'),
    ('e10', 'ended', '2025-04-20 10:00Z', 'edge', 'price_not_consented', '2025-04-02 10:00Z', -1, 'normal', 'EUR', 0, -1200, '2025-04-20 10:00Z', 'infinity'),
    -- e11: changes its product and its currency at once.
    ('e11', 'started', '2025-04-03 10:00Z', 'edge', '', '2025-04-03 10:00Z', 1, 'normal', 'EUR', 0, 1200, '2025-04-03 10:00Z', 'infinity'),
    ('e11', 'changed_from', '2025-04-05 10:00Z', 'edge', '', '2025-04-03 10:00Z', -1, 'normal', 'EUR', 0, -1200, '2025-04-05 10:00Z', 'infinity'),
    ('e11', 'changed_to', '2025-04-05 10:00Z', 'edgeyear', '', '2025-04-03 10:00Z', 1, 'normal', 'USD', 0, 3600, '2025-04-05 10:00Z', 'infinity'),
    ('e11', 'ended', '2025-04-25 10:00Z', 'edgeyear', 'voluntary', '2025-04-03 10:00Z', -1, 'normal', 'USD', 0, -3600, '2025-04-25 10:00Z', 'infinity'),
    -- e12: a trial that was taken back.
    ('e12', 'charged', '2025-08-01 10:00Z', 'edge', '', NULL, 1, 'trial', 'EUR', 0, 0, '2025-08-01 10:00Z', 'infinity'),
    ('e12', 'refunded', '2025-08-03 10:00Z', 'edge', '', '2025-08-01 10:00Z', -1, 'trial', 'EUR', 0, 0, '2025-08-03 10:00Z', 'infinity'),
    -- e13: on the Azores, in the hour between two midnights of the same day.
    ('e13', 'charged', '2025-10-26 00:30Z', 'edge', '', NULL, 1, 'normal', 'EUR', 30, 0, '2025-10-26 00:30Z', 'infinity'),
    ('e13', 'refunded', '2025-10-29 00:30Z', 'edge', '', '2025-10-26 00:30Z', -1, 'normal', 'EUR', -30, 0, '2025-10-29 00:30Z', 'infinity'),
    -- e14: a trial after which Apple tries to charge for twelve days; e15: one that is cancelled.
    ('e14', 'trial_started', '2025-12-01 10:00Z', 'edge', '', '2025-12-01 10:00Z', 1, 'trial', NULL, 0, 0, '2025-12-01 10:00Z', 'infinity'),
    ('e14', 'trial_ended', '2025-12-08 10:00Z', 'edge', 'billing', '2025-12-01 10:00Z', -1, 'trial', NULL, 0, 0, '2025-12-08 10:00Z', 'infinity'),
    ('e14', 'trial_ended', '2025-12-20 10:00Z', 'edge', 'recovered', '2025-12-01 10:00Z', 1, 'trial', NULL, 0, 0, '2025-12-20 10:00Z', 'infinity'),
    ('e14', 'trial_ended', '2025-12-20 10:00Z', 'edge', 'converted', '2025-12-01 10:00Z', -1, 'trial', NULL, 0, 0, '2025-12-20 10:00Z', 'infinity'),
    ('e14', 'started', '2025-12-20 10:00Z', 'edge', '', '2025-12-20 10:00Z', 1, 'normal', 'EUR', 0, 1200, '2025-12-20 10:00Z', 'infinity'),
    ('e14', 'ended', '2025-12-25 10:00Z', 'edge', 'voluntary', '2025-12-20 10:00Z', -1, 'normal', 'EUR', 0, -1200, '2025-12-25 10:00Z', 'infinity'),
    ('e15', 'trial_started', '2025-11-01 10:00Z', 'edge', '', '2025-11-01 10:00Z', 1, 'trial', NULL, 0, 0, '2025-11-01 10:00Z', 'infinity'),
    ('e15', 'trial_ended', '2025-12-09 10:00Z', 'edge', 'voluntary', '2025-11-01 10:00Z', -1, 'trial', NULL, 0, 0, '2025-12-09 10:00Z', 'infinity'),
    -- e16: Apple is able to charge after ten days; then the customer comes back after a lapse.
    ('e16', 'started', '2025-11-02 10:00Z', 'edge', '', '2025-11-02 10:00Z', 1, 'normal', 'EUR', 0, 1200, '2025-11-02 10:00Z', 'infinity'),
    ('e16', 'ended', '2025-11-10 10:00Z', 'edge', 'billing', '2025-11-02 10:00Z', -1, 'normal', 'EUR', 0, -1200, '2025-11-10 10:00Z', 'infinity'),
    ('e16', 'resumed', '2025-11-20 10:00Z', 'edge', 'recovered', '2025-11-02 10:00Z', 1, 'normal', 'EUR', 0, 1200, '2025-11-20 10:00Z', 'infinity'),
    ('e16', 'ended', '2025-11-25 10:00Z', 'edge', 'voluntary', '2025-11-02 10:00Z', -1, 'normal', 'EUR', 0, -1200, '2025-11-25 10:00Z', 'infinity'),
    ('e16', 'resumed', '2025-11-28 10:00Z', 'edge', '', '2025-11-02 10:00Z', 1, 'normal', 'EUR', 0, 1200, '2025-11-28 10:00Z', 'infinity'),
    ('e16', 'ended', '2025-11-29 10:00Z', 'edge', 'refunded', '2025-11-02 10:00Z', -1, 'normal', 'EUR', 0, -1200, '2025-11-29 10:00Z', 'infinity')
) AS edge (line, kind, at, product, cause, origin_at, number, period_type, currency, amount, mrr,
    known_from, known_until);

-- Offers and storefronts, of which receipts had none for s3 and s9; s8 moves to America.
UPDATE movement SET offer_type = 'introductory' WHERE period_type IN ('intro', 'trial');
UPDATE movement SET storefront = CASE
    WHEN original_transaction_id = 's5' OR kind = 'charged' AND transaction_id = 't83' THEN 'USA'
    ELSE 'DEU' END
WHERE original_transaction_id IN ('s1', 's2', 's4', 's5', 's8');

-- The sums by day, some of them rolled up.
WITH delta AS (
    SELECT m.environment, b.basis, m.kind, b.day, b.cohort, b.summed_cause AS cause, m.product_id,
        m.ownership_type, m.period_type, coalesce(m.currency, '') AS currency,
        coalesce(m.price_source, '') AS price_source, m.number, m.amount_milliunits,
        m.mrr_twelfths, m.transaction_id
    FROM movement AS m
    CROSS JOIN LATERAL movement_basis(m.kind, m.at, m.origin_at, m.cause, m.mrr_twelfths,
        m.rule, m.decided_at, m.corrected_at) AS b
    WHERE m.known_until = 'infinity'
)
INSERT INTO movement_day
SELECT environment, basis, kind, day, cohort, cause, product_id, ownership_type, period_type,
    currency, price_source, sum(number), sum(amount_milliunits), sum(mrr_twelfths)
FROM delta WHERE hashtext(transaction_id) % 2 = 0
GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11;

-- One by one, because Citus takes no nextval in an UPDATE.
DO $$
DECLARE
    m movement;
    id bigint;
BEGIN
    FOR m IN SELECT * FROM movement
        WHERE known_until = 'infinity' AND hashtext(transaction_id) % 2 <> 0
    LOOP
        id := coalesce(id, 0) + 1;
        INSERT INTO movement_change (change_id, environment, original_transaction_id)
        VALUES (id, m.environment, m.original_transaction_id);
        UPDATE movement AS u SET opened_by = id
        WHERE (u.environment, u.kind, u.at, u.product_id, u.transaction_id, u.cause, u.known_from)
                = (m.environment, m.kind, m.at, m.product_id, m.transaction_id, m.cause, m.known_from)
            AND u.original_transaction_id = m.original_transaction_id;
    END LOOP;
END
$$;

DROP TABLE reported;

-- Rates of the operator: none before 2026.
INSERT INTO exchange_rate VALUES ('EUR', 'USD', '2026-01-01', 0.9), ('EUR', 'USD', '2026-04-01', 0.95);
-- And in something else, which change in the middle of months.
INSERT INTO exchange_rate VALUES ('GBP', 'EUR', '2025-01-01', 2), ('GBP', 'EUR', '2025-02-15', 4),
    ('GBP', 'EUR', '2025-03-10', 5), ('GBP', 'EUR', '2026-03-15', 6), ('GBP', 'USD', '2025-01-01', 1),
    ('GBP', 'USD', '2025-02-15', 3), ('GBP', 'USD', '2025-03-10', 3.5), ('GBP', 'USD', '2026-03-15', 3.75);
-- And in francs, in the middle of a cohort.
INSERT INTO exchange_rate VALUES ('CHF', 'USD', '2026-03-01', 2);

-- Apple's commission: 15 percent of everything from March on, 20 of the weekly product before.
INSERT INTO commission VALUES ('', '2026-03-01', 15), ('week', '2026-01-01', 20),
    ('week', '2026-04-01', 10);

-- Grants: one that ended, one that never ends, one that was taken back before its end, one
-- provisional, which is no grant.
INSERT INTO account_grant (account_id, grant_id, entitlement, source, starts_at, ends_at, reason,
    recorded_at, revoked_at)
VALUES ('a', '00000000-0000-0000-0000-000000000001', 'pro', 'grant', '2026-02-01Z', '2026-03-15Z', 'r', '2026-02-01Z', NULL),
    ('b', '00000000-0000-0000-0000-000000000002', 'pro', 'grant', '2026-03-01Z', NULL, 'r', '2026-03-01Z', NULL),
    ('c', '00000000-0000-0000-0000-000000000004', 'pro', 'grant', '2026-03-20Z', '2026-05-01Z', 'r', '2026-03-20Z', '2026-04-10Z');
INSERT INTO account_grant VALUES ('c', '00000000-0000-0000-0000-000000000003', 'pro', 'provisional',
    '2026-04-01Z', '2026-05-01Z', 'r', gen_random_uuid(), 'production', 's9');

-- The lines and transactions behind some of it, for ownership, unclaimed and orders.
INSERT INTO original_transaction (environment, original_transaction_id, auto_renew_product_id)
VALUES ('production', 's2', 'year'), ('production', 's5', 'week'), ('production', 's8', 'month'),
    ('production', 's9', 'month'), ('production', 'c1', NULL), ('production', 'c2', NULL),
    ('production', 's1', NULL), ('production', 's3', NULL), ('production', 'fs1', 'year'),
    ('production', 'c3', NULL), ('production', 'family', NULL);
INSERT INTO store_transaction (environment, original_transaction_id, transaction_id, product_id,
    number, recorded_at, kind, purchased_at, charged_at, expires_at, expires_as_of, product_type,
    quantity, ownership_type, period_type, price_milliunits, currency, is_commitment,
    charge_original_transaction_id, charge_transaction_id, charge_product_id, owner_account_key, rule,
    reason, is_provisional, decided_at, corrected_at, order_id, delivered_at)
SELECT 'production', line, id, product, 1, recorded, what, charged, charged, expires,
    CASE WHEN expires IS NOT NULL THEN recorded END,
    CASE product WHEN 'coins' THEN 'consumable' END, 1, 'purchased', period, price, currency, false,
    line, id, product, ('00000000-0000-0000-0000-00000000000' || account)::uuid, rule, 'g', false,
    decided, corrected, ordered, delivered
FROM (VALUES
    ('s5', 't51', 'week', 'purchase', '2026-02-27 10:00Z'::timestamptz, '2026-03-06 10:00Z'::timestamptz, '2026-02-27 11:00Z'::timestamptz, 'intro', 990, 'USD', 'a', 'submitter', '2026-02-27 11:00Z'::timestamptz, NULL::timestamptz, '00000000-0000-0000-0000-000000000011'::uuid, '2026-02-27 12:00Z'::timestamptz),
    ('s5', 't53', 'week', 'purchase', '2026-04-02 10:00Z', '2026-04-09 10:00Z', '2026-04-02 11:00Z', 'normal', 1990, 'USD', 'b', 'submitter', '2026-04-02 11:00Z', NULL, NULL, NULL),
    ('s5', 't54', 'week', 'renewal', '2026-04-09 10:00Z', '2026-04-16 10:00Z', '2026-04-09 11:00Z', 'normal', 1990, 'USD', 'b', 'actively_auto_renewing', '2026-04-09 11:00Z', '2026-04-10 11:00Z', NULL, NULL),
    ('s3', 't31', 'month', 'purchase', '2026-01-28 10:00Z', '2026-02-04 10:00Z', '2026-01-28 11:00Z', 'trial', 0, 'EUR', NULL, 'unclaimed', '2026-01-28 11:00Z', NULL, NULL, NULL),
    ('c1', 'tc1', 'coins', 'purchase', '2026-02-28 23:30Z', NULL, '2026-03-01 00:00Z', 'normal', NULL, NULL, NULL, 'unclaimed', '2026-03-01 00:00Z', NULL, NULL, NULL),
    ('c2', 'tc2', 'mystery', 'unknown', '2026-04-15 10:00Z', '2026-04-15 10:15Z', '2026-04-15 10:30Z', 'normal', NULL, NULL, NULL, 'unclaimed', '2026-04-15 10:30Z', NULL, NULL, NULL),
    ('c1', 'tc3', 'coins', 'purchase', '2026-04-14 23:30Z', NULL, '2026-04-15 00:00Z', 'normal', NULL, NULL, 'a', 'submitter', '2026-04-15 00:00Z', NULL, '00000000-0000-0000-0000-000000000012', NULL),
    -- Ordered two days before it was paid, and delivered four days after it.
    ('c3', 'tc4', 'coins', 'purchase', '2026-04-01 10:00Z', NULL, '2026-04-02 11:00Z', 'normal', 2500, 'EUR', 'b', 'submitter', '2026-04-02 11:00Z', NULL, '00000000-0000-0000-0000-000000000015', '2026-04-05 10:00Z')
) AS t (line, id, product, what, charged, expires, recorded, period, price, currency, account, rule,
    decided, corrected, ordered, delivered);
-- Given back a quarter of an hour after it was paid.
UPDATE store_transaction SET revoked_at = '2026-04-14 23:45Z', revocation_at = '2026-04-14 23:45Z',
    revocation_as_of = '2026-04-15 00:10Z', known_revocation_at = '2026-04-14 23:45Z',
    revocation_known_at = '2026-04-15 00:10Z'
WHERE transaction_id = 'tc3';
-- What a family shares moved from one account to another, too.
INSERT INTO store_transaction
SELECT r.* FROM store_transaction AS t
CROSS JOIN LATERAL jsonb_populate_record(t, jsonb_build_object(
    'original_transaction_id', 'family', 'charge_original_transaction_id', 'family',
    'transaction_id', 'f' || t.transaction_id, 'charge_transaction_id', 'f' || t.transaction_id,
    'ownership_type', 'family_shared', 'order_id', NULL)) AS r
WHERE t.transaction_id IN ('t51', 't53');
-- Apple's words on what the next period will be: long before a charge, and shortly before a renewal.
INSERT INTO renewal_status (environment, original_transaction_id, number, recorded_at, as_of,
    auto_renew_product_id, is_commitment)
VALUES ('production', 's8', 1, '2026-02-25 11:00Z', '2026-02-25 10:00Z', 'year', false),
    ('production', 's5', 1, '2026-04-09 11:00Z', '2026-04-08 20:00Z', 'month', false),
    ('production', 'fs1', 1, '2026-02-15 11:00Z', '2026-02-15 10:00Z', 'year', false);
INSERT INTO purchase_order (account_key, order_id, product_id, status, created_at, fulfilled_at,
    environment, original_transaction_id, transaction_id)
VALUES
    ('00000000-0000-0000-0000-00000000000a', '00000000-0000-0000-0000-000000000011', 'week', 'fulfilled', '2026-02-27 09:00Z', '2026-02-27 11:00Z', 'production', 's5', 't51'),
    ('00000000-0000-0000-0000-00000000000a', '00000000-0000-0000-0000-000000000012', 'coins', 'refunded', '2026-04-14 23:00Z', '2026-04-15 00:00Z', 'production', 'c1', 'tc3'),
    ('00000000-0000-0000-0000-00000000000b', '00000000-0000-0000-0000-000000000013', 'coins', 'open', '2026-04-15 09:00Z', NULL, NULL, NULL, NULL),
    ('00000000-0000-0000-0000-00000000000b', '00000000-0000-0000-0000-000000000014', 'coins', 'expired', '2026-04-01 09:00Z', NULL, NULL, NULL, NULL),
    ('00000000-0000-0000-0000-00000000000b', '00000000-0000-0000-0000-000000000015', 'coins', 'fulfilled', '2026-03-30 09:00Z', '2026-04-02 11:00Z', 'production', 'c3', 'tc4');
INSERT INTO administrator_action (acted_at, administrator, action, subject, reason, data, account_key,
    previous_account_key)
VALUES ('2026-04-14 10:00Z', 'ops', 'transfer', 't53',
        '{account:00000000-0000-0000-0000-00000000000b} wrote that {account:00000000-0000-0000-0000-00000000000a} paid.', '{}',
        '00000000-0000-0000-0000-00000000000b', '00000000-0000-0000-0000-00000000000a'),
    ('2026-04-14 11:00Z', 'ops', 'transfer', 't54', 'The same.', '{}',
        '00000000-0000-0000-0000-00000000000b', NULL),
    ('2026-04-15 13:00Z', 'ops', 'grant', 'a', 'Later than the moment.', '{}', NULL, NULL);
