"""Calls every operation with the client that was generated from the OpenAPI document."""

import importlib
import json
import pkgutil
import sys
import time

import client.api
from client import AuthenticatedClient
from client import models as m

stage = json.load(sys.stdin)
tenure = AuthenticatedClient(
    stage["url"], stage["admin_key"], raise_on_unexpected_status=True, timeout=120
)

operations = {}
for group in pkgutil.iter_modules(client.api.__path__, "client.api."):
    package = importlib.import_module(group.name)
    for operation in pkgutil.iter_modules(package.__path__, group.name + "."):
        operations[operation.name.rsplit(".", 1)[1]] = importlib.import_module(operation.name)
called = set()


def call(name, *arguments, status=200, **more):
    called.add(name)
    answer = operations[name].sync_detailed(*arguments, client=tenure, **more)
    assert answer.status_code == status, (name, answer.status_code, answer.content[:500])
    assert answer.parsed is not None, name
    return answer.parsed


call("healthz")
call("readyz")
assert "tenure_" in call("show_metrics")
assert "openapi: 3.1.0" in call("show_open_api_document")

gold = m.ProductDescription(
    type_=m.ProductType.AUTO_RENEWABLE, entitlements=["gold"], price_milliunits=9990, currency="EUR"
)
assert call("describe_product", "gold", body=gold).currency == "EUR"
assert "gold" in [product.product_id for product in call("list_products").products]

token = call("put_account", "4711").app_account_token
assert call("show_account", "4711").app_account_token == token
order = call("open_order", status=201, body=m.OrderRequest("4711", "monthly"))
assert order.status == m.OrderStatus.OPEN

# Apple does not respond to the first requests.
pending = call("submit_receipt", status=202, body=m.ReceiptSubmission("4711", stage["receipt"]))
assert isinstance(pending, m.PendingSubmission)
bought = call(
    "submit_receipt", body=m.SignedSubmission("4711", [stage["signed"]], order_id=order.order_id)
)
assert isinstance(bought, m.VerifiedSubmission)
assert isinstance(call("show_submission", bought.submission_id), m.VerifiedSubmission)
# The worker tries the receipt again within seconds: decided later, it would claim the charge anew.
deadline = time.monotonic() + 60
show = operations["show_submission"].sync_detailed
while show(pending.submission_id, client=tenure).status_code == 202:
    assert time.monotonic() < deadline
    time.sleep(0.1)
assert isinstance(call("show_submission", pending.submission_id), m.VerifiedSubmission)
assert call("show_order", order.order_id).status == m.OrderStatus.FULFILLED
refused = call("submit_receipt", status=422, body=m.ReceiptSubmission("4711", "aGVsbG8gd29ybGQ="))
assert refused.code == m.ProblemCode.RECEIPT_REJECTED

charge = stage["transaction_id"]
[held] = call("show_entitlements", "4711").entitlements
assert (held.state, held.environment) == (m.State.ACTIVE, m.Environment.PRODUCTION)
batch = call("query_entitlements", body=m.EntitlementQuery(["4711", "4712"]))
assert [len(account.entitlements) for account in batch.accounts] == [1, 0]
[transaction] = call("list_account_transactions", "4711").transactions
assert transaction.decision.rule == m.Rule.SUBMITTER
assert call("acknowledge_delivery", charge, body=m.DeliveryRequest("4711")).first
explained = call("show_transaction", charge)
assert explained.evidence.kind == m.EvidenceKind.PURCHASE, explained.evidence
assert call("show_original_transaction", charge).bindings[0].account_id == "4711"
preview = call("preview_ownership", account_id="4712", original_transaction_id=charge)
assert preview.renewal.owner_account_id == "4711"

assert call("put_consumption_consent", "4711", body=m.ConsentDecision(True)).consented
assert call("show_consumption_consent", "4711").consented
assert not call("delete_consumption_consent", "4711").consented

call("put_account", "4712")
call("put_account", "guest")
moved = call("transfer_transaction", charge, body=m.OwnerAssignment("4712", "Ticket 1."))
assert moved.owner_account_id == "4712"
released = call("release_transaction", charge, reason="Ticket 2.")
assert released.owner_account_id is None
call("transfer_transaction", charge, body=m.OwnerAssignment("guest", "Ticket 3."))
merger = call("merge_account", "guest", body=m.MergeRequest("4711", "Ticket 4."))
assert merger.moved.charges == 1
grant = call("grant_entitlement", status=201, body=m.GrantRequest("4712", "gold", "Ticket 5."))
assert grant.expires_at is None
assert call("revoke_grant", grant.grant_id, reason="Ticket 6.").revoked_at
assert call("export_account", "4711").lines[0].transactions[0].transaction_id == charge
assert call("erase_account", "4712", reason="Ticket 7.").account_id.startswith("erased-")
actions = call("list_administrator_actions").actions
kinds = m.AdministratorActionAction
assert {action.action for action in actions} > {kinds.TRANSFER, kinds.GRANT}
assert call("list_checkpoints").checkpoints == []
evidence = call("show_evidence", charge)
assert evidence.entries and evidence.checkpoint is None

events = call("list_events", limit=1000).events
kinds = {type(event).__name__ for event in events}
assert {"TransactionClaimedEvent", "BindingOpenedEvent", "OrderFulfilledEvent"} < kinds, kinds
assert "OtherEvent" not in kinds
[claimed] = [event for event in events if isinstance(event, m.TransactionClaimedEvent)]
assert claimed.data.transaction_id == charge and claimed.data.owned
# No webhook is configured.
refused = call("redeliver_event", events[0].id, status=409)
assert refused.code == m.ProblemCode.WEBHOOKS_OFF

refused = call("receive_notification", status=401, body=m.NotificationVersion1("RENEWAL", "guessed"))
assert refused.code == m.ProblemCode.WRONG_SECRET
received = call("receive_notification", body=m.NotificationVersion2(stage["notification"]))
assert received.notification_id

reports = [report.name for report in call("list_reports").reports]
for name in reports:
    words = name.split("-")
    title = "".join(word.capitalize() for word in words)
    for items in (False, True):
        report = call(f"show_{'_'.join(words)}_report", items=items, prefer="wait=60")
        assert report.report == name
        expected = getattr(m, title + ("Item" if items else "Row"))
        for row in report.rows:
            assert isinstance(row, expected), row
            assert not row.additional_properties, row

policy = m.WhatIfRequestPolicy.PRESENT_RULE
compared = call("compare_ownership_policy", body=m.WhatIfRequest(policy))
assert compared.charges > 0 and compared.elsewhere.charges == 0 and not compared.cut_short
policy = m.WhatIfRequestPolicy.TOKEN_DECIDES
compared = call("compare_ownership_policy", body=m.WhatIfRequest(policy, account_id="4711"))
assert compared.elsewhere.charges == len(compared.differences)

assert called == operations.keys(), called ^ operations.keys()
print(len(called))
