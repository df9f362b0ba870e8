-- What each report says of ledger.sql, worked out by hand: a question, and after it the lines of its
-- answer, each behind "--= ", columns divided by "|", as row_to_json
-- writes values in UTC.

-- subscriptions
SELECT * FROM tenure.report_subscriptions(as_of => '2026-04-15 12:00Z');
--= month|active_renewing|1
--= month|expired|2
--= month|in_billing_retry|1
--= month|trial_renewing|1
--= week|active_renewing|1
--= year|active_renewing|1

-- subscriptions with grants, of a family, at an earlier moment
SELECT * FROM tenure.report_subscriptions(include_grants => true, include_family_shared => true, as_of => '2026-03-12Z');
--= month|active_renewing|4
--= month|expired|1
--= month|in_billing_retry|1
--= week|revoked|1
--= |granted|2

-- subscriptions as they were known then: without the third charge of s1
SELECT * FROM tenure.report_subscriptions(known_at => '2026-03-12Z');
--= month|active_renewing|2
--= month|expired|2
--= month|in_billing_retry|1
--= week|revoked|1

-- subscriptions granted, as they were known then, before and after one was recorded and was taken back, one by one too
SELECT (SELECT number FROM tenure.report_subscriptions(include_grants => true, known_at => t.at) WHERE state = 'granted'), (SELECT string_agg(right(transaction_id, 1), ',' ORDER BY transaction_id) FROM tenure.report_subscriptions_item(include_grants => true, known_at => t.at) WHERE state = 'granted') FROM (VALUES (timestamptz '2026-01-31Z'), ('2026-03-19Z'), ('2026-03-20Z'), ('2026-04-09Z'), ('2026-04-10Z'), ('2026-05-02Z')) AS t (at);
--= |
--= 1|2
--= 2|2,4
--= 2|2,4
--= 1|2
--= 1|2

-- subscriptions of a product, and of the sandbox
SELECT product_id, state, number FROM tenure.report_subscriptions('year', include_grants => true, as_of => '2026-04-15 12:00Z') UNION ALL SELECT product_id, state, number FROM tenure.report_subscriptions(environment => 'sandbox', include_grants => true, as_of => '2025-06-30 23:59Z');
--= year|active_renewing|1
--= edge|active_renewing|1

-- subscriptions, one by one
SELECT product_id, state, original_transaction_id, transaction_id, since, number, account_id FROM tenure.report_subscriptions_item(as_of => '2026-04-15 12:00Z') ORDER BY 3;
--= month|expired|s1|t13|2026-04-10T10:00:00+00:00|1|a
--= year|active_renewing|s2|t25|2026-03-25T10:00:00+00:00|1|b
--= month|expired|s3|t31|2026-02-04T10:00:00+00:00|1|
--= month|in_billing_retry|s4|t42|2026-03-11T10:00:00+00:00|1|c
--= week|active_renewing|s5|t53|2026-04-02T10:00:00+00:00|1|b
--= month|active_renewing|s8|t81|2026-01-20T10:00:00+00:00|1|c
--= month|trial_renewing|s9|t91|2026-04-12T10:00:00+00:00|1|c

-- active
SELECT * FROM tenure.report_active('2026-01-01', '2026-04-30', as_of => '2026-04-15 12:00Z');
--= 2026-01-01|2026-01-31||0|4|0|0|0|0|0|0|4
--= 2026-02-01|2026-02-28||4|1|0|0|0|0|0|0|5
--= 2026-03-01|2026-03-31||5|0|0|1|1|2|1|1|3
--= 2026-04-01|2026-04-15||3|0|1|1|0|1|0|0|3

-- active with trials and grants
SELECT * FROM tenure.report_active('2026-01-01', '2026-04-30', include_trials => true, include_grants => true, as_of => '2026-04-15 12:00Z');
--= 2026-01-01|2026-01-31||0|5|0|0|0|0|0|0|5
--= 2026-02-01|2026-02-28||5|2|0|1|0|1|0|0|6
--= 2026-03-01|2026-03-31||6|2|0|2|1|3|1|1|5
--= 2026-04-01|2026-04-15||5|1|1|2|0|2|0|0|5

-- active with grants as known then: that one would be taken back was not known
SELECT from_day, new, expired, active FROM tenure.report_active('2026-04-01', '2026-04-30', include_grants => true, known_at => '2026-04-09 23:59:59.999Z') UNION ALL SELECT from_day, new, expired, active FROM tenure.report_active('2026-04-01', '2026-04-30', include_grants => true, known_at => '2026-04-10Z');
--= 2026-04-01|0|0|6
--= 2026-04-01|0|1|5

-- active as known then, and of a later moment nothing
SELECT * FROM tenure.report_active('2026-03-01', '2026-04-30', known_at => '2026-03-12Z', as_of => '2026-04-15 12:00Z');
--= 2026-03-01|2026-03-12||5|0|0|2|1|3|0|0|2

-- active by product, by the week, in the weeks around a change
SELECT * FROM tenure.report_active('2026-03-18', '2026-03-31', 'week', by => 'product', as_of => '2026-04-15 12:00Z');
--= 2026-03-18|2026-03-22|month|3|0|0|0|0|0|0|0|3
--= 2026-03-18|2026-03-22|week|0|0|0|0|0|0|0|0|0
--= 2026-03-18|2026-03-22|year|0|0|0|0|0|0|0|0|0
--= 2026-03-23|2026-03-29|month|3|0|0|0|0|0|0|1|2
--= 2026-03-23|2026-03-29|week|0|0|0|0|0|0|0|0|0
--= 2026-03-23|2026-03-29|year|0|0|0|0|0|0|1|0|1
--= 2026-03-30|2026-03-31|month|2|0|0|0|0|0|0|0|2
--= 2026-03-30|2026-03-31|week|0|0|0|0|0|0|0|0|0
--= 2026-03-30|2026-03-31|year|1|0|0|0|0|0|0|0|1

-- active of the family and in the sandbox
SELECT (SELECT active FROM tenure.report_active('2026-01-01', '2026-01-31', include_family_shared => true)), (SELECT active FROM tenure.report_active('2026-01-01', '2026-01-31', environment => 'sandbox'));
--= 5|1

-- active, one by one
SELECT measure, from_day, original_transaction_id, transaction_id, number, account_id FROM tenure.report_active_item('2026-03-01', '2026-04-30', as_of => '2026-04-15 12:00Z') ORDER BY 1, 2, 3;
--= active|2026-04-01|s2|t25|1|b
--= active|2026-04-01|s5|t53|1|b
--= active|2026-04-01|s8|t81|1|c
--= changed_in|2026-03-01|s2|t25|1|b
--= changed_out|2026-03-01|s2|t24|1|b
--= expired|2026-03-01|s4|t42|1|c
--= expired|2026-04-01|s1|t13|1|a
--= refunded|2026-03-01|s5|t52|1|a
--= resubscribed|2026-04-01|s5|t53|1|b

-- trials
SELECT * FROM tenure.report_trials('2026-01-01', '2026-04-30', as_of => '2026-04-15 12:00Z');
--= 2026-01-01|2026-01-31||0|2|0|1|0|1|2|1|1|0.500000
--= 2026-02-01|2026-02-28||1|0|0|0|1|0|0|0|0|
--= 2026-03-01|2026-03-31||0|0|0|0|0|0|0|0|0|
--= 2026-04-01|2026-04-15||0|1|0|0|0|1|1|0|0|0.000000

-- trials, one by one
SELECT measure, from_day, original_transaction_id, number FROM tenure.report_trials_item('2026-01-01', '2026-04-30', as_of => '2026-04-15 12:00Z') ORDER BY 1, 2, 3;
--= cohort_converted|2026-01-01|s2|1
--= cohort_expired|2026-01-01|s3|1
--= cohort_started|2026-01-01|s2|1
--= cohort_started|2026-01-01|s3|1
--= cohort_started|2026-04-01|s9|1
--= converted|2026-01-01|s2|1
--= expired|2026-02-01|s3|1
--= started|2026-01-01|s2|1
--= started|2026-01-01|s3|1
--= started|2026-04-01|s9|1
--= trials|2026-04-01|s9|1

-- mrr: opening, new, reactivated, expansion, contraction, churned, currency_changed, exchange, mrr
SELECT from_day, currency, opening_milliunits, new_milliunits, reactivated_milliunits, expansion_milliunits, contraction_milliunits, churned_milliunits, currency_changed_milliunits, exchange_milliunits, mrr_milliunits, mrr_twelfths FROM tenure.report_mrr('2026-01-01', '2026-04-30', as_of => '2026-04-15 12:00Z');
--= 2026-01-01|EUR|0|39960|0|0|0|0|0|0|39960|479520
--= 2026-02-01|EUR|39960|0|0|1000|0|0|0|0|40960|491520
--= 2026-02-01|USD|0|3960|0|0|0|0|0|0|3960|47520
--= 2026-03-01|EUR|40960|0|0|0|-5991|-9990|-9990|0|14989|179870
--= 2026-03-01|USD|3960|0|0|4000|0|-7960|10490|0|10490|125880
--= 2026-04-01|EUR|14989|0|0|0|0|-9990|0|0|4999|59990
--= 2026-04-01|USD|10490|0|7960|0|0|0|0|0|18450|221400

-- mrr in euros, by the operator's rates
SELECT from_day, currency, opening_milliunits, new_milliunits, reactivated_milliunits, expansion_milliunits, contraction_milliunits, churned_milliunits, currency_changed_milliunits, exchange_milliunits, mrr_milliunits FROM tenure.report_mrr('2026-01-01', '2026-04-30', reporting_currency => 'EUR', as_of => '2026-04-15 12:00Z');
--= 2026-01-01|EUR|0|39960|0|0|0|0|0|0|39960
--= 2026-02-01|EUR|39960|3564|0|1000|0|0|0|0|44524
--= 2026-03-01|EUR|44524|0|0|3600|-5991|-17154|-549|0|24430
--= 2026-04-01|EUR|24430|0|7562|0|0|-9990|0|525|22527

-- mrr of one product: what changes from it is a contraction
SELECT from_day, currency, opening_milliunits, contraction_milliunits, mrr_milliunits FROM tenure.report_mrr('2026-03-01', '2026-03-31', product => 'month', as_of => '2026-04-15 12:00Z');
--= 2026-03-01|EUR|40960|-10990|9990
--= 2026-03-01|USD|0|0|10490

-- mrr, one by one
SELECT measure, from_day, original_transaction_id, currency, mrr_twelfths FROM tenure.report_mrr_item('2026-03-01', '2026-04-30', as_of => '2026-04-15 12:00Z') ORDER BY 1, 2, 3, 5;
--= churned|2026-03-01|s4|EUR|-119880
--= churned|2026-03-01|s5|USD|-95520
--= churned|2026-04-01|s1|EUR|-119880
--= contraction|2026-03-01|s2|EUR|-131880
--= contraction|2026-03-01|s2|EUR|59990
--= currency_changed|2026-03-01|s8|EUR|-119880
--= currency_changed|2026-03-01|s8|USD|125880
--= expansion|2026-03-01|s5|USD|48000
--= mrr|2026-04-01|s2|EUR|59990
--= mrr|2026-04-01|s5|USD|95520
--= mrr|2026-04-01|s8|USD|125880
--= reactivated|2026-04-01|s5|USD|95520

-- churn
SELECT * FROM tenure.report_churn('2026-01-01', '2026-04-30', as_of => '2026-04-15 12:00Z');
--= 2026-01-01|2026-01-31||0|0|0|0|0|0|0|0|0|0||
--= 2026-02-01|2026-02-28||4|0|0|0|0|0|0|0|0|0|0.000000|0.000000
--= 2026-03-01|2026-03-31||5|0|0|1|0|0|1|1|2|0|0.400000|0.200000
--= 2026-04-01|2026-04-15||3|1|0|0|0|0|1|0|1|1|0.333333|0.333333

-- churn, one by one
SELECT measure, from_day, original_transaction_id, cause, number FROM tenure.report_churn_item('2026-03-01', '2026-04-30', as_of => '2026-04-15 12:00Z') ORDER BY 1, 2, 3;
--= active_at_start|2026-03-01|s1||1
--= active_at_start|2026-03-01|s2||1
--= active_at_start|2026-03-01|s4||1
--= active_at_start|2026-03-01|s5||1
--= active_at_start|2026-03-01|s8||1
--= expired|2026-03-01|s4|billing|1
--= expired|2026-04-01|s1|voluntary|1
--= involuntary|2026-03-01|s4|billing|1
--= refunded|2026-03-01|s5|refunded|1
--= resubscribed|2026-04-01|s5||1
--= voluntary|2026-04-01|s1|voluntary|1

-- renewals due, trials too
SELECT * FROM tenure.report_renewals_due(include_trials => true, as_of => '2026-04-15 12:00Z');
--= 2026-04-16|week|month|EUR|1|10990|10990
--= 2026-04-19|month|month|EUR|1|10990|10990
--= 2026-04-20|month|month|USD|1|10490|0

-- renewals due as known then: what was announced before the latest charge is about that one, but for a day before an automatic renewal
SELECT day, product_id, renews_as, currency, number, amount_milliunits FROM tenure.report_renewals_due(known_at => '2026-04-15 12:00Z');
--= 2026-04-16|week|month|EUR|1|10990
--= 2026-04-20|month|month|USD|1|10490

-- renewals due of a family: shared subscriptions cost nothing, whatever they renew as
SELECT day, product_id, renews_as, currency, number, amount_milliunits, from_catalogue_milliunits FROM tenure.report_renewals_due(include_family_shared => true, as_of => '2026-02-20 12:00Z');
--= 2026-03-05|month|month|EUR|1|9990|0
--= 2026-03-10|month|month|EUR|1|9990|0
--= 2026-03-10|month|year|EUR|1|0|0

-- renewals due in 3 days, one by one
SELECT * FROM tenure.report_renewals_due_item(3, as_of => '2026-04-15 12:00Z');
--= 2026-04-16|week|month|s5|t54|2026-04-16T10:00:00+00:00|1|EUR|10990|catalogue|b

-- billing issues
SELECT * FROM tenure.report_billing_issues('2026-01-01', '2026-04-30', as_of => '2026-04-15 12:00Z');
--= 2026-01-01|2026-01-31||0|0|0|0|0|0|0|
--= 2026-02-01|2026-02-28||0|0|1|1|0|1|0|1.000000
--= 2026-03-01|2026-03-31||0|1|1|0|0|0|0|0.000000
--= 2026-04-01|2026-04-15||0|1|0|0|0|0|0|

-- billing issues, one by one
SELECT measure, from_day, original_transaction_id, since, until, number FROM tenure.report_billing_issues_item('2026-01-01', '2026-04-30', as_of => '2026-04-15 12:00Z') ORDER BY 1, 2;
--= cohort_recovered|2026-02-01|s4|2026-02-05T10:00:00+00:00|2026-02-10T10:00:00+00:00|1
--= entered|2026-02-01|s4|2026-02-05T10:00:00+00:00|2026-02-10T10:00:00+00:00|1
--= entered|2026-03-01|s4|2026-03-05T10:00:00+00:00|2026-05-04T10:00:00+00:00|1
--= in_billing_retry|2026-04-01|s4|2026-03-11T10:00:00+00:00|2026-05-04T10:00:00+00:00|1
--= recovered|2026-02-01|s4|2026-02-05T10:00:00+00:00|2026-02-10T10:00:00+00:00|1

-- retention
SELECT * FROM tenure.report_retention('2026-01-01', '2026-02-28', as_of => '2026-04-15 12:00Z');
--= 2026-01-01|0|2026-01-31|4|4|1.000000
--= 2026-01-01|1|2026-02-28|4|4|1.000000
--= 2026-01-01|2|2026-03-31|4|3|0.750000
--= 2026-01-01|3|2026-04-15|4|2|0.500000
--= 2026-02-01|0|2026-02-28|1|1|1.000000
--= 2026-02-01|1|2026-03-31|1|0|0.000000
--= 2026-02-01|2|2026-04-15|1|1|1.000000

-- retention, one by one
SELECT measure, cohort, product_id, original_transaction_id, number FROM tenure.report_retention_item('2026-01-01', '2026-01-31', period => 2, as_of => '2026-04-15 12:00Z') ORDER BY 1, 4;
--= cohort_size|2026-01-01|month|s1|1
--= cohort_size|2026-01-01|month|s2|1
--= cohort_size|2026-01-01|month|s4|1
--= cohort_size|2026-01-01|month|s8|1
--= retained|2026-01-01|month|s1|1
--= retained|2026-01-01|year|s2|1
--= retained|2026-01-01|month|s8|1

-- revenue: charges, offers, trials, family; charged, from_catalogue; refunds by their date; refunds of these charges; net by charge and by refund
SELECT * FROM tenure.report_revenue('2026-01-01', '2026-04-30', as_of => '2026-04-15 12:00Z');
--= 2026-01-01|2026-01-31||EUR|4|0|2|0|39960|0|0|0|0|0|39960|39960|27972
--= 2026-02-01|2026-02-28||EUR|5|0|0|0|43460|13490|0|0|1|-10990|32470|43460|30422
--= 2026-02-01|2026-02-28||USD|1|1|0|0|990|0|0|0|0|0|990|990|792
--= 2026-03-01|2026-03-31||EUR|3|0|0|0|80970|0|1|-10990|0|0|80970|69980|61132
--= 2026-03-01|2026-03-31||USD|2|0|0|0|12480|0|1|-1990|1|-1990|10490|10490|8917
--= 2026-04-01|2026-04-15||EUR|1|0|1|0|5000|5000|1|-5000|1|-5000|0|0|0
--= 2026-04-01|2026-04-15||USD|2|0|0|0|3980|0|0|0|0|0|3980|3980|3582
--= 2026-04-01|2026-04-15|||1|0|0|0|0|0|0|0|0|0|0|0|0

-- revenue in euros; before 2026 dollars had no rate
SELECT from_day, currency, charges, charged_milliunits, refunds, refunded_milliunits, refunded_of_charges_milliunits, net_by_charge_milliunits, net_by_refund_milliunits FROM tenure.report_revenue('2026-02-01', '2026-03-31', reporting_currency => 'EUR', as_of => '2026-04-15 12:00Z');
--= 2026-02-01|EUR|6|44351|0|0|-10990|33361|44351
--= 2026-03-01|EUR|5|92202|2|-12781|-1791|90411|79421

-- revenue by the days of Berlin: it was March when the coins were bought, and the 6th when the refund came
SELECT from_day, currency, charges, charged_milliunits, refunds FROM tenure.report_revenue('2026-02-01', '2026-03-31', time_zone => 'Europe/Berlin', product => 'coins', as_of => '2026-04-15 12:00Z') UNION ALL SELECT from_day, currency, charges, charged_milliunits, refunds FROM tenure.report_revenue('2026-03-05', '2026-03-06', 'day', time_zone => 'Europe/Berlin', product => 'month', as_of => '2026-04-15 12:00Z');
--= 2026-03-01|EUR|1|2500|0
--= 2026-03-06|EUR|0|0|1

-- revenue with the family
SELECT from_day, currency, charges, family_shared, charged_milliunits FROM tenure.report_revenue('2026-01-01', '2026-01-31', include_family_shared => true);
--= 2026-01-01|EUR|4|1|39960

-- revenue: a trial that was taken back is no refund, neither in the sums nor one by one
SELECT sum(trials), sum(charges), sum(refunds), sum(refunds_of_charges), (SELECT string_agg(measure, ',' ORDER BY measure) FROM tenure.report_revenue_item('2025-08-01', '2025-08-31', environment => 'sandbox', as_of => '2025-12-31Z') WHERE transaction_id = 'te12') FROM tenure.report_revenue('2025-08-01', '2025-08-31', environment => 'sandbox', as_of => '2025-12-31Z');
--= 1|0|0|0|trials

-- revenue as known then: the third charge of s1 and the change of product are missing
SELECT from_day, currency, charges, charged_milliunits, refunds FROM tenure.report_revenue('2026-03-01', '2026-03-31', known_at => '2026-03-12Z');
--= 2026-03-01|EUR|0|0|1
--= 2026-03-01|USD|1|1990|1

-- revenue, one by one
SELECT measure, from_day, transaction_id, number, currency, amount_milliunits, price_source, account_id FROM tenure.report_revenue_item('2026-02-01', '2026-03-31', as_of => '2026-04-15 12:00Z') WHERE measure <> 'charges' OR currency = 'USD' ORDER BY 1, 2, 3;
--= charges|2026-02-01|t51|1|USD|990|app_store|a
--= charges|2026-03-01|t52|1|USD|1990|app_store|a
--= charges|2026-03-01|t83|1|USD|10490|app_store|c
--= offers|2026-02-01|t51|1|USD|990|app_store|a
--= refunds|2026-03-01|t23|1|EUR|-10990|catalogue|b
--= refunds|2026-03-01|t52|1|USD|-1990|app_store|a
--= refunds_of_charges|2026-02-01|t23|1|EUR|-10990|catalogue|b
--= refunds_of_charges|2026-03-01|t52|1|USD|-1990|app_store|a

-- refunds, by the date of the refund
SELECT * FROM tenure.report_refunds('2026-01-01', '2026-04-30', by => 'product', as_of => '2026-04-15 12:00Z');
--= 2026-01-01|2026-01-31|month||||0|0|0|4|0.000000
--= 2026-02-01|2026-02-28|coins||||0|0|0|1|0.000000
--= 2026-02-01|2026-02-28|month||||0|0|0|4|0.000000
--= 2026-02-01|2026-02-28|week||||0|0|0|1|0.000000
--= 2026-03-01|2026-03-31|month|other|008-014|EUR|1|-10990|-10990|3|0.333333
--= 2026-03-01|2026-03-31|week|issue_with_app|002-003|USD|1|-1990|0|1|1.000000
--= 2026-03-01|2026-03-31|year||||0|0|0|1|0.000000
--= 2026-04-01|2026-04-15|coins|other|000|EUR|1|-5000|-5000|1|1.000000
--= 2026-04-01|2026-04-15|mystery||||0|0|0|1|0.000000
--= 2026-04-01|2026-04-15|week||||0|0|0|2|0.000000

-- refunds on a day without charges
SELECT from_day, segment, refunds, paid, refund_rate FROM tenure.report_refunds('2026-03-05', '2026-03-05', 'day', by => 'product', as_of => '2026-04-15 12:00Z');
--= 2026-03-05|month|1|0|

-- refunds, by the date of the charge
SELECT * FROM tenure.report_refunds('2026-01-01', '2026-04-30', by => 'product', date_of => 'charge', as_of => '2026-04-15 12:00Z');
--= 2026-01-01|2026-01-31|month||||0|0|0|4|0.000000
--= 2026-02-01|2026-02-28|coins||||0|0|0|1|0.000000
--= 2026-02-01|2026-02-28|month|other|008-014|EUR|1|-10990|-10990|4|0.250000
--= 2026-02-01|2026-02-28|week||||0|0|0|1|0.000000
--= 2026-03-01|2026-03-31|month||||0|0|0|3|0.000000
--= 2026-03-01|2026-03-31|week|issue_with_app|002-003|USD|1|-1990|0|1|1.000000
--= 2026-03-01|2026-03-31|year||||0|0|0|1|0.000000
--= 2026-04-01|2026-04-15|coins|other|000|EUR|1|-5000|-5000|1|1.000000
--= 2026-04-01|2026-04-15|mystery||||0|0|0|1|0.000000
--= 2026-04-01|2026-04-15|week||||0|0|0|2|0.000000

-- refunds, one by one
SELECT measure, product_id, reason, days_after, transaction_id, refunded_at, number, amount_milliunits FROM tenure.report_refunds_item('2026-02-01', '2026-02-28', product => 'month', date_of => 'charge', as_of => '2026-04-15 12:00Z') ORDER BY 1, 5;
--= paid|month|||t12||1|9990
--= paid|month|||t23||1|10990
--= paid|month|||t42||1|9990
--= paid|month|||t82||1|9990
--= refunds|month|other|008-014|t23|2026-03-05T23:30:00+00:00|1|-10990

-- reactivations
SELECT * FROM tenure.report_reactivations('2026-03-01', '2026-04-30', as_of => '2026-04-15 12:00Z');
--= 2026-03-01|2026-03-31||1|0|0
--= 2026-04-01|2026-04-15||1|1|1

-- reactivations, one by one
SELECT measure, from_day, original_transaction_id, at, number, account_id FROM tenure.report_reactivations_item('2026-03-01', '2026-04-30', as_of => '2026-04-15 12:00Z') ORDER BY 4;
--= switched_off|2026-03-01|s1|2026-03-20T08:00:00+00:00|1|a
--= resubscribed|2026-04-01|s5|2026-04-02T10:00:00+00:00|1|b
--= switched_off|2026-04-01|s5|2026-04-03T10:00:00+00:00|1|b
--= switched_on|2026-04-01|s5|2026-04-04T10:00:00+00:00|1|b

-- ownership
SELECT from_day, measure, rule, number FROM tenure.report_ownership('2026-01-01', '2026-04-30', as_of => '2026-04-15 12:00Z');
--= 2026-01-05|decided|submitter|1
--= 2026-01-10|decided|submitter|1
--= 2026-01-15|decided|submitter|1
--= 2026-01-20|decided|submitter|1
--= 2026-01-22|decided|submitter|1
--= 2026-01-28|decided|unclaimed|1
--= 2026-02-10|decided|submitter|2
--= 2026-02-20|decided|submitter|1
--= 2026-02-22|decided|submitter|1
--= 2026-02-27|decided|submitter|1
--= 2026-03-01|decided|unclaimed|1
--= 2026-03-06|decided|submitter|1
--= 2026-03-16|decided|submitter|1
--= 2026-03-20|decided|submitter|1
--= 2026-03-22|decided|submitter|1
--= 2026-03-25|decided|submitter|1
--= 2026-04-02|decided|submitter|1
--= 2026-04-02|moved|submitter|1
--= 2026-04-02|shared|submitter|1
--= 2026-04-09|decided|actively_auto_renewing|1
--= 2026-04-10|corrected|actively_auto_renewing|1
--= 2026-04-12|decided|submitter|1
--= 2026-04-15|decided|submitter|1
--= 2026-04-15|decided|unclaimed|1

-- ownership, one by one
SELECT measure, rule, original_transaction_id, transaction_id, amount_milliunits, currency, account_id, from_account_id FROM tenure.report_ownership_item('2026-04-01', '2026-04-05', as_of => '2026-04-15 12:00Z') ORDER BY 1, 3;
--= decided|submitter|s5|t53|1990|USD|b|
--= moved|submitter|s5|t53|1990|USD|b|a
--= shared|submitter|s5|t53|1990|USD|b|a

-- ownership of what a family shares as well
SELECT measure, number FROM tenure.report_ownership('2026-04-02', '2026-04-02', include_family_shared => true, as_of => '2026-04-15 12:00Z');
--= decided|2
--= moved|2
--= shared|2

-- unclaimed
SELECT * FROM tenure.report_unclaimed(as_of => '2026-04-15 12:00Z');
--= false|false|5: 30 days and more|coins|EUR|1|2500|2500|2026-03-01T00:00:00+00:00
--= true|true|2: under a day|mystery||1|0|0|2026-04-15T10:30:00+00:00

-- unclaimed with trials, as known then, one by one
SELECT was_over, has_ended, age, product_id, transaction_id, number, amount_milliunits FROM tenure.report_unclaimed_item(include_trials => true, known_at => '2026-03-01 00:30Z') ORDER BY 5;
--= false|true|5: 30 days and more|month|t31|1|0
--= false|false|1: under an hour|coins|tc1|1|2500

-- orders: opened, open, expired, paid, refunded; waits; paid without an order, not delivered
SELECT * FROM tenure.report_orders('2026-02-01', '2026-04-30', as_of => '2026-04-15 12:00Z');
--= 2026-02-01|2026-02-28||1|0|0|1|0|3600000|3600000|0|0
--= 2026-03-01|2026-03-31||1|0|0|1|0|176400000|176400000|0|0
--= 2026-04-01|2026-04-15||3|1|1|1|1|1800000|1800000|1|0

-- orders at a moment: before it was paid, before it was delivered, and before the other was given back
SELECT r.from_day, r.opened, r.open, r.paid, r.refunded, r.not_delivered FROM (VALUES (timestamptz '2026-03-31 12:00Z'), ('2026-04-05 09:00Z'), ('2026-04-06 09:00Z'), ('2026-04-14 23:40Z')) AS t (at) CROSS JOIN LATERAL tenure.report_orders('2026-03-01', '2026-04-30', as_of => t.at) AS r;
--= 2026-03-01|1|1|0|0|0
--= 2026-03-01|1|0|1|0|0
--= 2026-04-01|1|0|0|0|1
--= 2026-03-01|1|0|1|0|0
--= 2026-04-01|1|0|0|0|0
--= 2026-03-01|1|0|1|0|0
--= 2026-04-01|2|0|1|0|1

-- orders at such a moment, one by one, and by the days of another time zone
SELECT measure, right(order_id::text, 2), transaction_id FROM tenure.report_orders_item('2026-03-01', '2026-04-30', as_of => '2026-03-31 12:00Z') UNION ALL SELECT measure, right(order_id::text, 2), transaction_id FROM tenure.report_orders_item('2026-03-01', '2026-04-30', as_of => '2026-04-05 09:00Z') WHERE measure = 'not_delivered' UNION ALL SELECT 'there', not_delivered::text, NULL FROM tenure.report_orders('2026-04-01', '2026-04-30', time_zone => 'Europe/Berlin', as_of => '2026-04-05 09:00Z') ORDER BY 1, 2;
--= not_delivered|15|tc4
--= open|15|
--= opened|15|
--= there|1|

-- orders, one by one
SELECT measure, right(order_id::text, 2), transaction_id, wait_ms, currency, amount_milliunits, price_source, account_id FROM tenure.report_orders_item('2026-04-01', '2026-04-30', as_of => '2026-04-15 12:00Z') ORDER BY 1, 2;
--= expired|14||||||b
--= open|13||||||b
--= opened|12|tc3|1800000|EUR|5000|catalogue|a
--= opened|13||||||b
--= opened|14||||||b
--= paid|12|tc3|1800000|EUR|5000|catalogue|a
--= paid_without_order||t53||USD|1990|app_store|b
--= refunded|12|tc3|1800000|EUR|5000|catalogue|a

-- orders as known then: before anything was paid or had expired
SELECT from_day, opened, open, expired, paid FROM tenure.report_orders('2026-02-01', '2026-02-28', known_at => '2026-02-27 10:30Z');
--= 2026-02-01|1|1|0|0

-- orders as known then: paid on the 14th, recorded at midnight, and given back, as was recorded ten minutes later
SELECT r.open, r.paid, r.refunded FROM (VALUES (timestamptz '2026-04-14 23:59Z'), ('2026-04-15 00:05Z'), ('2026-04-15 00:10Z')) AS t (at) CROSS JOIN LATERAL tenure.report_orders('2026-04-14', '2026-04-14', 'day', known_at => t.at) AS r;
--= 1|0|0
--= 0|1|0
--= 0|1|1

-- audit
SELECT * FROM tenure.report_audit('2026-04-01', '2026-04-30', as_of => '2026-04-15 12:00Z');
--= 2026-04-14|ops|transfer|2|2026-04-14T11:00:00+00:00

-- audit, one by one: to whom, and why, by the names of now
SELECT from_day, subject, account_id, previous_account_id, reason, number FROM tenure.report_audit_item('2026-04-01', '2026-04-30', as_of => '2026-04-15 12:00Z');
--= 2026-04-14|t54|b||The same.|1
--= 2026-04-14|t53|b|a|b wrote that a paid.|1

-- audit as known when only the first act was
SELECT number, last_at FROM tenure.report_audit('2026-04-01', '2026-04-30', known_at => '2026-04-14 10:30Z');
--= 1|2026-04-14T10:00:00+00:00

-- audit by the days of another time zone
SELECT from_day, number FROM tenure.report_audit('2026-04-14', '2026-04-15', time_zone => 'Pacific/Kiritimati', as_of => '2026-04-15 12:00Z');
--= 2026-04-15|2

-- a day later than the moment, in the month of the moment: nothing
SELECT from_day, to_day, active FROM tenure.report_active('2026-04-20', '2026-04-30', as_of => '2026-04-15 12:00Z');

-- the last day comes before the first one: nothing
SELECT from_day, to_day, active FROM tenure.report_active('2026-04-20', '2026-04-10', as_of => '2026-04-30 12:00Z');

-- without days, so many rows up to the moment: 28 days, 12 weeks from Monday, 12 months
SELECT (SELECT count(*) || ' from ' || min(from_day) || ' to ' || max(to_day) FROM tenure.report_active(bucket => t.bucket, as_of => '2026-04-15 12:00Z')) FROM (VALUES ('day'), ('week'), ('month')) AS t (bucket);
--= 28 from 2026-03-19 to 2026-04-15
--= 12 from 2026-01-26 to 2026-04-15
--= 12 from 2025-05-01 to 2026-04-15

-- grants: those that began or ended on these days, and those of the last one
SELECT measure, at, number, account_id FROM tenure.report_active_item('2026-03-10', '2026-03-31', include_grants => true, as_of => '2026-04-15 12:00Z') WHERE kind = 'grant' ORDER BY measure, at;
--= active|2026-03-01T00:00:00+00:00|1|b
--= active|2026-03-20T00:00:00+00:00|1|c
--= expired|2026-03-15T00:00:00+00:00|1|a
--= new|2026-03-20T00:00:00+00:00|1|c

-- an hour before a billing issue begins, and an hour after it has
SELECT (SELECT count(*) FROM tenure.report_billing_issues_item('2026-03-01', as_of => t.moment) AS i WHERE i.measure = 'entered') FROM (VALUES (timestamptz '2026-03-05 09:00Z'), ('2026-03-05 11:00Z')) AS t (moment);
--= 0
--= 1

-- the day of the moment is that of the time zone
SELECT max(to_day) FROM tenure.report_active(time_zone => 'Pacific/Kiritimati', as_of => '2026-04-15 12:00Z');
--= 2026-04-16

-- midnight: what begins with a month is of that month, and what ends with it is gone after it
SELECT * FROM tenure.report_active('2025-05-01', '2025-07-31', environment => 'sandbox', as_of => '2025-12-31Z');
--= 2025-05-01|2025-05-31||0|0|0|0|0|0|0|0|0
--= 2025-06-01|2025-06-30||0|2|0|0|0|0|0|0|2
--= 2025-07-01|2025-07-31||2|0|0|2|0|2|0|0|0

-- midnight, from the movements themselves
SELECT * FROM tenure.report_active('2025-05-01', '2025-07-31', environment => 'sandbox', time_zone => 'Etc/UTC', as_of => '2025-12-31Z');
--= 2025-05-01|2025-05-31||0|0|0|0|0|0|0|0|0
--= 2025-06-01|2025-06-30||0|2|0|0|0|0|0|0|2
--= 2025-07-01|2025-07-31||2|0|0|2|0|2|0|0|0

-- midnight, elsewhere: another month
SELECT * FROM tenure.report_active('2025-05-01', '2025-07-31', environment => 'sandbox', time_zone => 'America/New_York', as_of => '2025-12-31Z');
--= 2025-05-01|2025-05-31||0|1|0|0|0|0|0|0|1
--= 2025-06-01|2025-06-30||1|1|0|1|0|1|0|0|1
--= 2025-07-01|2025-07-31||1|0|0|1|0|1|0|0|0

-- midnight, one by one, here and elsewhere
SELECT measure, from_day, original_transaction_id FROM tenure.report_active_item('2025-06-01', '2025-06-30', environment => 'sandbox', as_of => '2025-12-31Z') UNION ALL SELECT 'there ' || measure, from_day, original_transaction_id FROM tenure.report_active_item('2025-06-01', '2025-06-30', environment => 'sandbox', time_zone => 'America/New_York', as_of => '2025-12-31Z') ORDER BY 1, 3;
--= active|2025-06-01|e1
--= active|2025-06-01|e3
--= new|2025-06-01|e1
--= new|2025-06-01|e3
--= there active|2025-06-01|e3
--= there expired|2025-06-01|e1
--= there new|2025-06-01|e3

-- the moment itself counts as past, and facts known from it on are known at it
SELECT (SELECT active FROM tenure.report_active('2025-06-01', '2025-06-01', environment => 'sandbox', as_of => '2025-06-01 00:00Z')), (SELECT active FROM tenure.report_active('2025-05-31', '2025-05-31', environment => 'sandbox', as_of => '2025-05-31 23:59:59.999Z')), (SELECT active FROM tenure.report_active('2025-06-01', '2025-06-01', environment => 'sandbox', known_at => '2025-06-01 06:00Z')), (SELECT active FROM tenure.report_active('2025-06-01', '2025-06-01', environment => 'sandbox', known_at => '2025-06-01 05:59:59.999Z'));
--= 1|0|1|0

-- facts known until a moment are not known at it
SELECT t.at, (SELECT string_agg(segment || charges, ',') FROM tenure.report_revenue('2025-09-01', '2025-09-30', environment => 'sandbox', by => 'product', known_at => t.at)) AS charges FROM (VALUES (timestamptz '2025-09-06 11:59:59.999Z'), ('2025-09-06 12:00Z')) AS t (at);
--= 2025-09-06T11:59:59.999+00:00|edgeold1
--= 2025-09-06T12:00:00+00:00|edge1

-- the hour between two midnights is of the day that both begin
SELECT to_char(t.day, 'DD'), r.charges, (SELECT count(*) FROM tenure.report_revenue_item(t.day, t.day, 'day', environment => 'sandbox', time_zone => 'Atlantic/Azores', as_of => '2025-12-31Z') WHERE measure = 'charges') AS items, (SELECT sum(paid) FROM tenure.report_refunds(t.day, t.day, 'day', environment => 'sandbox', time_zone => 'Atlantic/Azores', as_of => '2025-12-31Z')) AS paid, (SELECT count(*) FROM tenure.report_refunds_item(t.day, t.day, 'day', environment => 'sandbox', date_of => 'charge', time_zone => 'Atlantic/Azores', as_of => '2025-12-31Z') WHERE measure = 'refunds') AS refunded FROM (VALUES (date '2025-10-25'), ('2025-10-26'), ('2025-10-27')) AS t (day) LEFT JOIN LATERAL tenure.report_revenue(t.day, t.day, 'day', environment => 'sandbox', time_zone => 'Atlantic/Azores', as_of => '2025-12-31Z') AS r ON true;
--= 25|1|1|1|0
--= 26|2|2|2|1
--= 27||0||0

-- a day begins with its first midnight, or where there is none, with what comes in its place
SELECT t.day, t.time_zone, tenure.day_start(t.day, t.time_zone) FROM (VALUES (date '2025-10-26', 'Atlantic/Azores'), ('2025-10-27', 'Atlantic/Azores'), ('2026-11-01', 'America/Havana'), ('2026-03-08', 'America/Havana'), ('2018-02-18', 'America/Sao_Paulo'), ('2018-11-04', 'America/Sao_Paulo'), ('2025-10-26', 'Europe/Berlin'), ('2025-10-27', 'Europe/Berlin'), ('2026-01-01', 'UTC')) AS t (day, time_zone);
--= 2025-10-26|Atlantic/Azores|2025-10-26T00:00:00+00:00
--= 2025-10-27|Atlantic/Azores|2025-10-27T01:00:00+00:00
--= 2026-11-01|America/Havana|2026-11-01T04:00:00+00:00
--= 2026-03-08|America/Havana|2026-03-08T05:00:00+00:00
--= 2018-02-18|America/Sao_Paulo|2018-02-18T03:00:00+00:00
--= 2018-11-04|America/Sao_Paulo|2018-11-04T03:00:00+00:00
--= 2025-10-26|Europe/Berlin|2025-10-25T22:00:00+00:00
--= 2025-10-27|Europe/Berlin|2025-10-26T23:00:00+00:00
--= 2026-01-01|UTC|2026-01-01T00:00:00+00:00

-- a day of 25 hours
SELECT from_day, charges, charged_milliunits FROM tenure.report_revenue('2025-10-25', '2025-10-27', 'day', environment => 'sandbox', time_zone => 'Europe/Berlin', as_of => '2025-12-31Z');
--= 2025-10-26|3|780

-- the start of a trial, in May here and in June there
SELECT from_day, started, converted, trials, cohort_started, cohort_converted, cohort_expired, conversion_rate FROM tenure.report_trials('2025-05-01', '2025-06-30', environment => 'sandbox', as_of => '2025-12-31Z') UNION ALL SELECT from_day, started, converted, trials, cohort_started, cohort_converted, cohort_expired, conversion_rate FROM tenure.report_trials('2025-05-01', '2025-06-30', environment => 'sandbox', time_zone => 'Europe/Berlin', as_of => '2025-12-31Z');
--= 2025-05-01|1|0|1|1|1|0|1.000000
--= 2025-06-01|0|1|0|0|0|0|
--= 2025-05-01|0|0|0|0|0|0|
--= 2025-06-01|1|1|0|1|1|0|1.000000

-- billing issues: the start of the trouble, in May here and in June there
SELECT from_day, entered, recovered, cohort_recovered FROM tenure.report_billing_issues('2025-05-01', '2025-06-30', environment => 'sandbox', as_of => '2025-12-31Z') UNION ALL SELECT from_day, entered, recovered, cohort_recovered FROM tenure.report_billing_issues('2025-05-01', '2025-06-30', environment => 'sandbox', time_zone => 'Europe/Berlin', as_of => '2025-12-31Z');
--= 2025-05-01|1|0|1
--= 2025-06-01|0|1|0
--= 2025-05-01|0|0|0
--= 2025-06-01|1|1|1

-- retention: cohorts of another time zone, up to its day
SELECT cohort, period, to_day, cohort_size, retained FROM tenure.report_retention('2025-05-15', '2025-06-15', environment => 'sandbox', time_zone => 'America/New_York', as_of => '2025-07-15Z');
--= 2025-05-01|0|2025-05-31|1|1
--= 2025-05-01|1|2025-06-30|1|0
--= 2025-05-01|2|2025-07-14|1|0
--= 2025-06-01|0|2025-06-30|1|1
--= 2025-06-01|1|2025-07-14|1|0

-- refunds by the days of the time zone
SELECT from_day, days_after, refunds, paid FROM tenure.report_refunds('2025-06-01', '2025-07-31', environment => 'sandbox', product => 'edgecoins', date_of => 'charge', as_of => '2025-12-31Z') UNION ALL SELECT from_day, days_after, refunds, paid FROM tenure.report_refunds('2025-06-01', '2025-07-31', environment => 'sandbox', product => 'edgecoins', date_of => 'charge', time_zone => 'Europe/Berlin', as_of => '2025-12-31Z');
--= 2025-06-01|031-060|1|1
--= 2025-07-01|015-030|1|1

-- classes of days between a charge and its refund
SELECT string_agg(tenure.refund_delay(days), ' ' ORDER BY days) FROM unnest(ARRAY[-1, 0, 1, 2, 3, 4, 7, 8, 14, 15, 30, 31, 60, 61, 90, 91]) AS d (days);
--= 000 000 001 002-003 002-003 004-007 004-007 008-014 008-014 015-030 015-030 031-060 031-060 061-090 061-090 091-

-- mrr of which nothing stays: it came back in one currency and left in another
SELECT from_day, currency, opening_milliunits, new_milliunits, reactivated_milliunits, churned_milliunits, currency_changed_milliunits, mrr_milliunits FROM tenure.report_mrr('2025-02-01', '2025-03-31', environment => 'sandbox', as_of => '2025-12-31Z');
--= 2025-02-01|EUR|0|100|0|-100|0|0
--= 2025-03-01|EUR|0|0|100|0|-100|0
--= 2025-03-01|USD|0|0|0|-100|100|0

-- churn by cause, as far as no other sample has it
SELECT from_day, voluntary, involuntary, product_withdrawn, unknown, expired, resubscribed, churned FROM tenure.report_churn('2025-02-01', '2025-07-31', environment => 'sandbox', as_of => '2025-12-31Z');
--= 2025-02-01|0|0|0|1|1|0|1
--= 2025-03-01|0|0|1|0|1|1|1
--= 2025-04-01|2|0|0|0|2|0|2
--= 2025-05-01|0|0|0|0|0|0|0
--= 2025-06-01|0|0|0|0|0|0|0
--= 2025-07-01|1|1|0|0|2|0|2

-- trials: one that is paid for after Apple tried for a while has expired until then
SELECT t.at::date, r.started, r.recovered, r.converted, r.expired, r.trials, r.cohort_converted, r.cohort_expired FROM (VALUES (timestamptz '2025-12-07Z'), ('2025-12-15Z'), ('2025-12-31Z')) AS t (at) CROSS JOIN LATERAL tenure.report_trials('2025-12-01', '2025-12-31', environment => 'sandbox', as_of => t.at) AS r;
--= 2025-12-07|1|0|0|0|2|0|0
--= 2025-12-15|1|0|0|2|0|0|1
--= 2025-12-31|1|1|1|2|0|1|0

-- trials, each end of them, by its own day
SELECT measure, at, cause, number FROM tenure.report_trials_item('2025-12-01', '2025-12-31', 'day', environment => 'sandbox', as_of => '2025-12-31Z') WHERE measure IN ('recovered', 'converted', 'expired', 'cohort_expired') AND original_transaction_id = 'e14' ORDER BY 1, 2;
--= cohort_expired|2025-12-08T10:00:00+00:00|billing|1
--= cohort_expired|2025-12-20T10:00:00+00:00|recovered|-1
--= converted|2025-12-20T10:00:00+00:00|converted|1
--= expired|2025-12-08T10:00:00+00:00|billing|1
--= recovered|2025-12-20T10:00:00+00:00|recovered|1

-- active and churn with trials, by the week
SELECT a.from_day, a.opening, a.new, a.expired, a.resubscribed, a.active, c.active_at_start, c.voluntary, c.involuntary, c.expired AS churn_expired, c.churned, c.churn_rate FROM tenure.report_active('2025-12-01', '2025-12-21', 'week', environment => 'sandbox', include_trials => true, as_of => '2025-12-31Z') AS a JOIN tenure.report_churn('2025-12-01', '2025-12-21', 'week', environment => 'sandbox', include_trials => true, as_of => '2025-12-31Z') AS c USING (from_day);
--= 2025-12-01|1|1|0|0|2|1|0|0|0|0|0.000000
--= 2025-12-08|2|0|2|0|0|2|1|1|2|2|1.000000
--= 2025-12-15|0|0|0|1|1|0|0|0|0|0|

-- churn with trials, one by one, and without them
SELECT measure, original_transaction_id, cause, number FROM tenure.report_churn_item('2025-12-08', '2025-12-21', 'week', environment => 'sandbox', include_trials => true, as_of => '2025-12-31Z') UNION ALL SELECT 'without', original_transaction_id, cause, number FROM tenure.report_churn_item('2025-12-08', '2025-12-21', 'week', environment => 'sandbox', as_of => '2025-12-31Z') ORDER BY 1, 2, 4;
--= active_at_start|e14||1
--= active_at_start|e15||1
--= expired|e14|billing|1
--= expired|e15|voluntary|1
--= involuntary|e14|billing|1
--= resubscribed|e14|recovered|1
--= voluntary|e15|voluntary|1

-- reactivations: whom Apple was able to charge after all did not come back, though he was gone
SELECT r.resubscribed, (SELECT count(*) FROM tenure.report_reactivations_item('2025-11-01', '2025-11-30', environment => 'sandbox', as_of => '2025-12-31Z') WHERE measure = 'resubscribed') AS items, a.resubscribed AS active, c.resubscribed AS churn, c.refunded FROM tenure.report_reactivations('2025-11-01', '2025-11-30', environment => 'sandbox', as_of => '2025-12-31Z') AS r, tenure.report_active('2025-11-01', '2025-11-30', environment => 'sandbox', as_of => '2025-12-31Z') AS a, tenure.report_churn('2025-11-01', '2025-11-30', environment => 'sandbox', as_of => '2025-12-31Z') AS c;
--= 1|1|2|2|1

-- churn of those who did not consent to a price, which is voluntary
SELECT voluntary, price_not_consented, expired FROM tenure.report_churn('2025-04-01', '2025-04-30', environment => 'sandbox', as_of => '2025-12-31Z');
--= 2|1|2

-- mrr at the catalogue's price, and what changes its product and its currency at once
SELECT currency, opening_milliunits, new_milliunits, expansion_milliunits, contraction_milliunits, churned_milliunits, currency_changed_milliunits, mrr_milliunits, from_catalogue_milliunits, mrr_twelfths FROM tenure.report_mrr('2025-04-01', '2025-04-13', 'week', environment => 'sandbox', as_of => '2025-12-31Z');
--= EUR|0|300|0|0|0|-100|200|200|2400
--= USD|0|0|0|0|0|300|300|0|3600
--= EUR|200|0|0|-100|0|0|100|100|1200
--= USD|300|0|0|0|0|0|300|0|3600

-- mrr, where a product changes on the first day
SELECT currency, opening_milliunits, currency_changed_milliunits, mrr_milliunits FROM tenure.report_mrr('2025-04-05', '2025-04-05', 'day', environment => 'sandbox', as_of => '2025-12-31Z');
--= EUR|300|-100|200
--= USD|0|300|300

-- mrr by rates that change within the month: the opening by those before it, all else by those at its end
SELECT from_day, currency, opening_milliunits, new_milliunits, reactivated_milliunits, expansion_milliunits, contraction_milliunits, churned_milliunits, currency_changed_milliunits, exchange_milliunits, mrr_milliunits, mrr_twelfths FROM tenure.report_mrr('2026-03-01', '2026-03-31', reporting_currency => 'GBP', as_of => '2026-04-15 12:00Z') UNION ALL SELECT from_day, currency, opening_milliunits, new_milliunits, reactivated_milliunits, expansion_milliunits, contraction_milliunits, churned_milliunits, currency_changed_milliunits, exchange_milliunits, mrr_milliunits, from_catalogue_milliunits FROM tenure.report_mrr('2025-02-01', '2025-04-30', environment => 'sandbox', reporting_currency => 'GBP', as_of => '2025-04-08Z');
--= 2026-03-01|GBP|218660|0|0|15000|-35945|-89790|-20603|41950|129273|1551270.00
--= 2025-02-01|GBP|0|400|0|0|0|-400|0|0|0|0
--= 2025-03-01|GBP|0|0|500|0|0|-350|-150|0|0|0
--= 2025-04-01|GBP|0|1500|0|0|0|0|550|0|2050|1000

-- revenue by the rates of each day
SELECT currency, charges, charged_milliunits, refunded_milliunits, refunded_of_charges_milliunits, net_by_charge_milliunits, net_by_refund_milliunits FROM tenure.report_revenue('2026-03-01', '2026-03-31', reporting_currency => 'GBP', as_of => '2026-04-15 12:00Z');
--= GBP|5|522133|-61915|-6965|515168|460218

-- a rate holds from its day on
SELECT string_agg(coalesce(tenure.exchange_rate_on('EUR', 'USD', d)::text, 'none'), ' ' ORDER BY d), tenure.exchange_rate_on('EUR', 'EUR', '1999-01-01') FROM unnest(ARRAY['2025-12-31', '2026-01-01', '2026-03-31', '2026-04-01']::date[]) AS day (d);
--= none 0.9 0.9 0.95|1

-- each day alone has what was charged on it, and no other
SELECT string_agg(to_char(t.day, 'MM-DD') || ' ' || r.charges + r.trials, ', ' ORDER BY t.day) FROM generate_series(timestamp '2026-01-01', '2026-04-15', '1 day') AS t (day) CROSS JOIN LATERAL tenure.report_revenue(t.day::date, t.day::date, 'day', as_of => '2026-04-15 12:00Z') AS r;
--= 01-05 1, 01-10 1, 01-15 1, 01-20 1, 01-22 1, 01-28 1, 02-05 1, 02-10 1, 02-20 1, 02-22 1, 02-27 1, 02-28 1, 03-05 0, 03-06 1, 03-08 0, 03-10 1, 03-20 1, 03-22 1, 03-25 1, 04-02 1, 04-09 1, 04-12 1, 04-14 1, 04-15 1

-- what a trial does is counted where trials are included
SELECT (SELECT switched_off FROM tenure.report_reactivations('2025-06-01', '2025-06-30', environment => 'sandbox', as_of => '2025-12-31Z')), (SELECT switched_off FROM tenure.report_reactivations('2025-06-01', '2025-06-30', environment => 'sandbox', include_trials => true, as_of => '2025-12-31Z')), (SELECT count(*) FROM tenure.report_refunds('2025-08-01', '2025-08-31', environment => 'sandbox', as_of => '2025-12-31Z')), (SELECT sum(refunds) || ' of ' || sum(paid) FROM tenure.report_refunds('2025-08-01', '2025-08-31', environment => 'sandbox', include_trials => true, as_of => '2025-12-31Z'));
--= 0|1|0|1 of 1

-- trouble that begins on the day of the moment has begun from its moment on
SELECT (SELECT sum(entered) FROM tenure.report_billing_issues('2025-05-31', '2025-05-31', 'day', environment => 'sandbox', as_of => t.at)) AS entered FROM (VALUES (timestamptz '2025-05-31 23:29:59.999Z'), ('2025-05-31 23:30Z'), ('2025-06-01 00:00Z')) AS t (at);
--= 0
--= 1
--= 1

-- renewals due within days of 24 hours, whatever the session's own time zone is
SELECT r.day, r.original_transaction_id, r.number, r.amount_milliunits FROM (SELECT set_config('TimeZone', 'Europe/Berlin', true) AS name OFFSET 0) AS z CROSS JOIN LATERAL tenure.report_renewals_due_item(20, environment => 'sandbox', as_of => '2026-03-25 12:00Z'::timestamptz + length(z.name) * interval '0') AS r;
--= 2026-04-14|e9|1|900

-- active by what began it: the offer of the first charge of a paid time
SELECT segment, from_day, opening, new, resubscribed, churned, active FROM tenure.report_active('2026-02-01', '2026-04-30', by => 'offer_type', as_of => '2026-04-15 12:00Z');
--= introductory|2026-02-01|0|1|0|0|1
--= |2026-02-01|4|0|0|0|4
--= introductory|2026-03-01|1|0|0|1|0
--= |2026-03-01|4|0|0|1|3
--= introductory|2026-04-01|0|0|0|0|0
--= |2026-04-01|3|0|1|1|3

-- active by the storefront, with trials, of which some have none
SELECT segment, from_day, opening, new, resubscribed, churned, active FROM tenure.report_active('2026-03-01', '2026-04-30', by => 'storefront', include_trials => true, as_of => '2026-04-15 12:00Z');
--= DEU|2026-03-01|4|0|0|1|3
--= USA|2026-03-01|1|0|0|1|0
--= |2026-03-01|0|0|0|0|0
--= DEU|2026-04-01|3|0|0|1|2
--= USA|2026-04-01|0|0|1|0|1
--= |2026-04-01|0|1|0|0|1

-- active by the type of period, which the sums have, as from the movements
SELECT a.segment, a.from_day, a.opening, a.new, a.churned, a.active, m.active = a.active AS same FROM tenure.report_active('2026-02-01', '2026-03-31', by => 'period_type', as_of => '2026-04-15 12:00Z') AS a JOIN tenure.report_active('2026-02-01', '2026-03-31', by => 'period_type', time_zone => 'Etc/UTC', as_of => '2026-04-15 12:00Z') AS m USING (from_day, segment);
--= intro|2026-02-01|0|1|0|1|true
--= normal|2026-02-01|4|0|0|4|true
--= intro|2026-03-01|1|0|1|0|true
--= normal|2026-03-01|4|0|1|3|true

-- mrr by the storefront: who moves stays in the one with which the paid time began
SELECT segment, from_day, currency, opening_milliunits, new_milliunits, contraction_milliunits, churned_milliunits, currency_changed_milliunits, mrr_milliunits FROM tenure.report_mrr('2026-03-01', '2026-03-31', by => 'storefront', as_of => '2026-04-15 12:00Z');
--= DEU|2026-03-01|EUR|40960|0|-5991|-9990|-9990|14989
--= DEU|2026-03-01|USD|0|0|0|0|10490|10490
--= USA|2026-03-01|USD|3960|0|0|-7960|0|0

-- revenue by the storefront of the charge
SELECT segment, from_day, currency, charges, charged_milliunits, refunds, refunded_milliunits FROM tenure.report_revenue('2026-03-01', '2026-04-30', by => 'storefront', as_of => '2026-04-15 12:00Z');
--= DEU|2026-03-01|EUR|3|80970|1|-10990
--= USA|2026-03-01|USD|2|12480|1|-1990
--= USA|2026-04-01|USD|2|3980|0|0
--= |2026-04-01|EUR|1|5000|1|-5000
--= |2026-04-01||1|0|0|0

-- churn, trials, reactivations, refunds and billing issues by segments
SELECT 'churn', segment, churned::text FROM tenure.report_churn('2026-03-01', '2026-03-31', by => 'offer_type', as_of => '2026-04-15 12:00Z') UNION ALL SELECT 'trials', segment, started::text FROM tenure.report_trials('2026-01-01', '2026-01-31', by => 'storefront', as_of => '2026-04-15 12:00Z') UNION ALL SELECT 'reactivations', segment, switched_off::text FROM tenure.report_reactivations('2026-03-01', '2026-03-31', by => 'storefront', as_of => '2026-04-15 12:00Z') UNION ALL SELECT 'refunds', segment, refunds || ' of ' || paid FROM tenure.report_refunds('2026-03-01', '2026-03-31', by => 'storefront', as_of => '2026-04-15 12:00Z') UNION ALL SELECT 'billing issues', segment, in_billing_retry::text FROM tenure.report_billing_issues('2026-03-01', '2026-03-31', by => 'storefront', as_of => '2026-04-15 12:00Z');
--= churn|introductory|1
--= churn||1
--= trials|DEU|1
--= trials||1
--= reactivations|DEU|1
--= refunds|DEU|1 of 3
--= refunds|USA|1 of 2
--= billing issues|DEU|1

-- revenue: a refund gives back the commission of the day of its charge
SELECT from_day, currency, net_by_refund_milliunits, proceeds_milliunits FROM tenure.report_revenue('2026-01-01', '2026-04-30', as_of => '2026-04-15 12:00Z');
--= 2026-01-01|EUR|39960|27972
--= 2026-02-01|EUR|43460|30422
--= 2026-02-01|USD|990|792
--= 2026-03-01|EUR|69980|61132
--= 2026-03-01|USD|10490|8917
--= 2026-04-01|EUR|0|0
--= 2026-04-01|USD|3980|3582
--= 2026-04-01||0|0

-- a commission holds from its day on, and one of a product goes before that of all
SELECT string_agg(tenure.commission_on(p, d)::text, ' ' ORDER BY p, d), tenure.commission_on('month', '2026-04-01', '2026-01-01Z') FROM unnest(ARRAY['2025-12-31', '2026-02-28', '2026-03-01', '2026-04-01']::date[]) AS day (d), unnest(ARRAY['month', 'week']) AS product (p);
--= 30 30 15 15 30 20 20 10|30

-- lifetime value
SELECT * FROM tenure.report_lifetime_value('2026-01-01', '2026-02-28', as_of => '2026-04-15 12:00Z');
--= 2026-01-01|0|2026-01-31||EUR|4|39960|27972|9990|9990
--= 2026-01-01|0|2026-01-31||USD|0|0|0||
--= 2026-01-01|1|2026-02-28||EUR|4|40960|28672|10240|20230
--= 2026-01-01|1|2026-02-28||USD|0|0|0||
--= 2026-01-01|2|2026-03-31||EUR|4|69980|61132|17495|37725
--= 2026-01-01|2|2026-03-31||USD|0|10490|8917||
--= 2026-01-01|3|2026-04-15||EUR|4|0|0|0|37725
--= 2026-01-01|3|2026-04-15||USD|0|0|0||
--= 2026-02-01|0|2026-02-28||USD|1|990|792|990|990
--= 2026-02-01|1|2026-03-31||USD|1|0|0|0|990
--= 2026-02-01|2|2026-04-15||USD|1|3980|3582|3980|4970

-- lifetime value in euros, by the storefront in which it began
SELECT cohort, period, segment, currency, cohort_size, revenue_milliunits, arpu_milliunits, ltv_milliunits FROM tenure.report_lifetime_value('2026-01-01', '2026-02-28', by => 'storefront', reporting_currency => 'EUR', as_of => '2026-04-15 12:00Z');
--= 2026-01-01|0|DEU|EUR|4|39960|9990|9990
--= 2026-01-01|1|DEU|EUR|4|40960|10240|20230
--= 2026-01-01|2|DEU|EUR|4|79421|19855|40085
--= 2026-01-01|3|DEU|EUR|4|0|0|40085
--= 2026-02-01|0|USA|EUR|1|891|891|891
--= 2026-02-01|1|USA|EUR|1|0|0|891
--= 2026-02-01|2|USA|EUR|1|3781|3781|4672

-- lifetime value in francs: the rate does not cover all days of the second cohort
SELECT cohort, period, currency, cohort_size, revenue_milliunits, ltv_milliunits FROM tenure.report_lifetime_value('2026-01-01', '2026-02-28', reporting_currency => 'CHF', as_of => '2026-04-15 12:00Z');
--= 2026-01-01|0|CHF|0|0|
--= 2026-01-01|0|EUR|4|39960|9990
--= 2026-01-01|1|CHF|0|0|
--= 2026-01-01|1|EUR|4|40960|20230
--= 2026-01-01|2|CHF|0|20980|
--= 2026-01-01|2|EUR|4|69980|37725
--= 2026-01-01|3|CHF|0|0|
--= 2026-01-01|3|EUR|4|0|37725
--= 2026-02-01|0|USD|1|990|990
--= 2026-02-01|1|USD|1|0|990
--= 2026-02-01|2|USD|1|3980|4970

-- lifetime value of a product, as known then
SELECT cohort, period, to_day, currency, cohort_size, revenue_milliunits, ltv_milliunits FROM tenure.report_lifetime_value('2026-01-01', '2026-03-31', product => 'week', known_at => '2026-03-12Z');
--= 2026-02-01|0|2026-02-28|USD|1|990|990
--= 2026-02-01|1|2026-03-12|USD|1|0|990

-- lifetime value, one by one
SELECT measure, cohort, product_id, charged_product_id, transaction_id, currency, amount_milliunits, account_id FROM tenure.report_lifetime_value_item('2026-01-01', '2026-01-31', period => 2, as_of => '2026-04-15 12:00Z') ORDER BY 1, 5;
--= cohort_size|2026-01-01|month|month|t11|EUR|0|a
--= cohort_size|2026-01-01|month|month|t22|EUR|0|b
--= cohort_size|2026-01-01|month|month|t41|EUR|0|c
--= cohort_size|2026-01-01|month|month|t81|EUR|0|c
--= revenue|2026-01-01|month|month|t13|EUR|9990|a
--= revenue|2026-01-01|month|month|t23|EUR|-10990|b
--= revenue|2026-01-01|month|month|t24|EUR|10990|b
--= revenue|2026-01-01|month|year|t25|EUR|59990|b
--= revenue|2026-01-01|month|month|t83|USD|10490|c

-- What a charge renews as, before and after what Apple said of it was recorded
SELECT (SELECT renews_as FROM tenure.renews_as('production', 's8', 't82', 'month',
    '2026-02-20 10:00Z', false, known_at, '2026-04-01 00:00Z'))
FROM (VALUES ('2026-02-25 10:30Z'::timestamptz), ('2026-02-25 11:30Z')) AS known (known_at);
--= 
--= year
