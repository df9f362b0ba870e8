"""What every client has to come to: the scenario of ClientTests, in Python."""

import json
import sys

from app_server import Problem, Tenure

stage = json.load(sys.stdin)
tenure = Tenure(stage["url"], stage["key"], timeout=stage["timeout_seconds"])


def tell(name, value):
    text = str(value).lower() if isinstance(value, bool) else str(value)
    print(json.dumps({"step": name, "value": text}), flush=True)


tokens = {tenure.account("4711")["app_account_token"] for _ in range(2)}
tell("tokens of one account", len(tokens))
order = tenure.open_order("4711", "monthly")
tell("order", order["status"])

bought = tenure.submit("4711", signed=[stage["signed"]], order=order["order_id"])
tell("submission", bought["status"])
tell("order after it", bought["order"]["status"])
owned = tenure.owned(bought, "4711")
tell("to deliver", ",".join(one["product_id"] for one in owned))
transaction = owned[0]["transaction_id"]
# The answer to the first one is lost, so that only the ledger knows of it.
tell("first", tenure.acknowledge(transaction, "4711"))

other = tenure.submit("4712", signed=[stage["signed"]])
tell("warnings", ",".join(other["warnings"]))
tell("to deliver to the other", len(tenure.owned(other, "4712")))
try:
    tenure.acknowledge(transaction, "4712")
except Problem as problem:
    tell("delivery to the other", f"{problem.status} {problem.code}")
try:
    tenure.submit("4711", signed=["e.e.e"])
except Problem as problem:
    tell("forgery", f"{problem.status} {problem.code}")

pending = tenure.submit("4711", receipt=stage["receipt"])
tell("while Apple is down", pending["status"])
tell("in the end", tenure.settled(pending)["status"])

for account in ["4711", "4712", "nobody/ever"]:
    tell(f"entitlements of {account}", ",".join(tenure.entitlements(account)))

seen = []


def apply(events, cursor):
    seen.extend(events)
    return not any(one["type"] == "order.fulfilled" for one in seen)


cursor = tenure.follow(None, apply)
tell("events", sum(one["type"] == "transaction.recorded" for one in seen))
tell("cursor", cursor.split("-")[0] == seen[-1]["id"])
for name, header in sorted(stage["headers"].items()):
    tell(f"webhook {name}", "yes" if tenure.is_genuine(header, stage["body"].encode(), stage["secret"]) else "no")
