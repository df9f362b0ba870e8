"""A Tenure client to copy into your app server. It needs only Python's standard library.

Calls without a response, or with status 429 or 5xx, are retried with exponential backoff. That is safe:
each call identifies its subject, so a retry finds the result of the first attempt.
"""

import hashlib
import hmac
import http.client
import json
import random
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid


class Problem(Exception):
    """A rejected request. Retrying it does not help."""

    def __init__(self, status, problem):
        super().__init__(f"{status} {problem.get('code')}: {problem.get('detail')}")
        self.status = status
        self.code = problem.get("code")
        self.request_id = problem.get("request_id")


class Unavailable(Exception):
    """No response after all attempts. The request may have taken effect."""


class Tenure:
    ATTEMPTS = 6
    # In seconds; doubled after each attempt.
    FIRST_PAUSE = 0.2
    LONGEST_PAUSE = 10
    # Seconds for which the feed waits for new events.
    WAIT = 20

    def __init__(self, url, key, timeout=15):
        """The timeout of one attempt is in seconds. Tenure waits up to 10 for Apple."""
        self.url = url
        self.key = key
        self.timeout = timeout

    # Before a purchase

    def account(self, account):
        """Returns the account, creating it if necessary, with the token to pass to StoreKit."""
        return self._call("PUT", f"/v1/accounts/{_quoted(account)}")

    def open_order(self, account, product):
        """Opens an order. If the response is lost, a retry opens another one, and the first expires."""
        return self._call("POST", "/v1/orders", {"account_id": account, "product_id": product})

    # After a purchase

    def submit(self, account, *, signed=None, receipt=None, order=None, transaction=None, restore=False):
        """Submits signed transactions or a receipt; "pending" if Apple is unavailable."""
        body = {"account_id": account}
        if signed is not None:
            body["signed_transactions"] = signed
        if receipt is not None:
            body["receipt_data"] = receipt
        if order is not None:
            body["order_id"] = order
        if transaction is not None:
            body["transaction_id"] = transaction
        if restore:
            body["restore"] = True
        return self._call("POST", "/v1/receipts", body)

    def settled(self, submission, patience=60):
        """Waits until a pending submission is decided. For background jobs only."""
        end = time.monotonic() + patience
        pause = self.FIRST_PAUSE
        while submission["status"] == "pending" and time.monotonic() < end:
            time.sleep(pause)
            pause = min(2 * pause, self.LONGEST_PAUSE)
            submission = self._call("GET", f"/v1/receipts/{submission['submission_id']}")
        return submission

    @staticmethod
    def owned(submission, account):
        """Returns the transactions to deliver, unless your database has their transaction_id already.

        Don't rely on `newly_owned`: only one response has it set, and that one may be lost.
        """
        transactions = submission.get("transactions", [])
        return [one for one in transactions if one["owner_account_id"] == account and not one["revoked_at"]]

    def acknowledge(self, transaction, account):
        """Acknowledges the delivery of a transaction. Returns whether this is the first time."""
        path = f"/v1/transactions/{_quoted(transaction)}/delivery"
        return self._call("POST", path, {"account_id": account})["first"]

    # At any time

    def entitlements(self, account):
        """Returns the active entitlements by name. Cache for minutes, and never beyond access_ends_at."""
        answer = self._call("GET", f"/v1/accounts/{_quoted(account)}/entitlements?active=true")
        return {one["entitlement"]: one for one in answer["entitlements"]}

    def follow(self, cursor, apply):
        """Reads all events after a cursor (None: from the oldest), until `apply` returns False.

        `apply(events, next)` must store `next` in the database transaction that applies the events,
        so that none is skipped or applied twice. On a `cursor_expired` problem (unread events were
        deleted) or `cursor_unknown` (the server was restored from a backup), read all entitlements
        and follow from None.
        """
        while True:
            after = "" if cursor is None else f"&after={_quoted(cursor)}"
            path = f"/v1/events?limit=500&wait={self.WAIT}{after}"
            answer = self._call("GET", path, timeout=self.timeout + self.WAIT)
            cursor = answer["next"]
            if apply(answer["events"], cursor) is False:
                return cursor

    @staticmethod
    def is_genuine(header, body, secret, now=None):
        """Returns whether Tenure sent this webhook within the last five minutes (Tenure-Signature)."""
        fields = [field.partition("=") for field in header.split(",")]
        sent = next((value for name, _, value in fields if name == "t"), "")
        code = hmac.new(secret.encode(), sent.encode() + b"." + body, hashlib.sha256).hexdigest().encode()
        if not any(name == "v1" and hmac.compare_digest(value.encode(), code) for name, _, value in fields):
            return False
        return abs((time.time() if now is None else now) - int(sent)) <= 300

    # The call itself

    def _call(self, method, path, body=None, timeout=None):
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Authorization": f"Bearer {self.key}",
                "Content-Type": "application/json",
                # The same for all attempts, to find them together in Tenure's log.
                "X-Request-ID": str(uuid.uuid4()),
            },
        )
        pause = self.FIRST_PAUSE
        for attempt in range(1, self.ATTEMPTS + 1):
            later = 0
            try:
                with urllib.request.urlopen(request, timeout=timeout or self.timeout) as answer:
                    return json.loads(answer.read())
            except urllib.error.HTTPError as error:
                if error.code != 429 and error.code < 500:
                    raise Problem(error.code, _problem(error)) from None
                reason = f"status {error.code}"
                later = _seconds(error.headers.get("Retry-After"))
            except (OSError, http.client.HTTPException, json.JSONDecodeError) as error:
                reason = repr(error)
            if attempt == self.ATTEMPTS:
                raise Unavailable(f"{method} {path}: {reason}")
            # With 50% jitter, so that servers that failed together don't retry together.
            time.sleep(max(min(later, self.LONGEST_PAUSE), pause * random.uniform(0.5, 1)))
            pause = min(2 * pause, self.LONGEST_PAUSE)


def _quoted(name):
    return urllib.parse.quote(name, safe="")


def _seconds(text):
    return int(text) if text and text.isdigit() else 0


def _problem(error):
    try:
        return json.loads(error.read())
    except (OSError, http.client.HTTPException, json.JSONDecodeError):
        return {}
