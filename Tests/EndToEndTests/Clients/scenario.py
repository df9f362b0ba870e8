"""The scenario of ClientTests in Python."""

import json
import sys

from app_server import Problem, Tenure

stage = json.load(sys.stdin)
tenure = Tenure(stage["url"], stage["key"], timeout=stage["timeout_seconds"])


def report(name, value):
    text = str(value).lower() if isinstance(value, bool) else str(value)
    print(json.dumps({"step": name, "value": text}), flush=True)


tokens = {tenure.account("4711")["app_account_token"] for _ in range(2)}
report("tokens of one account", len(tokens))
order = tenure.open_order("4711", "monthly")
report("order", order["status"])

bought = tenure.submit("4711", signed=[stage["signed"]], order=order["order_id"])
report("submission", bought["status"])
report("order after submission", bought["order"]["status"])
owned = tenure.owned(bought, "4711")
report("deliverable", ",".join(one["product_id"] for one in owned))
transaction = owned[0]["transaction_id"]
# The first response is lost, so this is the second acknowledgement.
report("first acknowledgement", tenure.acknowledge(transaction, "4711"))

other = tenure.submit("4712", signed=[stage["signed"]])
report("warnings", ",".join(other["warnings"]))
report("deliverable to other account", len(tenure.owned(other, "4712")))
try:
    tenure.acknowledge(transaction, "4712")
except Problem as problem:
    report("acknowledged by other account", f"{problem.status} {problem.code}")
try:
    tenure.submit("4711", signed=["e.e.e"])
except Problem as problem:
    report("forged transaction", f"{problem.status} {problem.code}")

pending = tenure.submit("4711", receipt=stage["receipt"])
report("while Apple is unavailable", pending["status"])
report("after retries", tenure.settled(pending)["status"])

for account in ["4711", "4712", "unknown/ever"]:
    report(f"entitlements of {account}", ",".join(tenure.entitlements(account)))

seen = []


def apply(events, cursor):
    seen.extend(events)
    return not any(one["type"] == "order.fulfilled" for one in seen)


cursor = tenure.follow(None, apply)
report("events", sum(one["type"] == "transaction.recorded" for one in seen))
report("cursor", cursor.split("-")[0] == seen[-1]["id"])
for name, header in sorted(stage["headers"].items()):
    report(f"webhook {name}", "yes" if tenure.is_genuine(header, stage["body"].encode(), stage["secret"]) else "no")
