"""Calls Tenure from an app's server, with nothing but Python's standard library. To be copied.

A call that gets no answer, or one that says "later", is sent again with pauses that double. That is
harmless: each call names what it is about, so the second one finds what the first one did.
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
    """What Tenure refuses: sending it again would change nothing."""

    def __init__(self, status, problem):
        super().__init__(f"{status} {problem.get('code')}: {problem.get('detail')}")
        self.status = status
        self.code = problem.get("code")
        self.request_id = problem.get("request_id")


class Unavailable(Exception):
    """No answer after all attempts. What was sent may have been done."""


class Tenure:
    ATTEMPTS = 6
    # Seconds before the second attempt; doubled before each further one.
    FIRST_PAUSE = 0.2
    LONGEST_PAUSE = 10
    # How long the feed holds a question to which there is no answer yet.
    WAIT = 20

    def __init__(self, url, key, timeout=15):
        """The time-out of one attempt is in seconds: Apple is given 10 of them."""
        self.url = url
        self.key = key
        self.timeout = timeout

    # Before a purchase

    def account(self, account):
        """The account, with the token to pass to StoreKit; created if it is new."""
        return self._call("PUT", f"/v1/accounts/{_quoted(account)}")

    def open_order(self, account, product):
        """One whose answer is lost is opened twice: the other one expires, unpaid."""
        return self._call("POST", "/v1/orders", {"account_id": account, "product_id": product})

    # After a purchase

    def submit(self, account, *, signed=None, receipt=None, order=None, transaction=None, restore=False):
        """Submits what StoreKit 2 signed, or a receipt; "pending" if Apple can't be asked just now."""
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
        """Waits until a pending submission is decided. For jobs, not while a customer waits."""
        end = time.monotonic() + patience
        pause = self.FIRST_PAUSE
        while submission["status"] == "pending" and time.monotonic() < end:
            time.sleep(pause)
            pause = min(2 * pause, self.LONGEST_PAUSE)
            submission = self._call("GET", f"/v1/receipts/{submission['submission_id']}")
        return submission

    @staticmethod
    def owned(submission, account):
        """What to deliver, unless your database says that it was: remember each transaction_id.

        `newly_owned` says it in one answer only, and that one may be lost.
        """
        transactions = submission.get("transactions", [])
        return [one for one in transactions if one["owner_account_id"] == account and not one["revoked_at"]]

    def acknowledge(self, transaction, account):
        """Says that a transaction was delivered; whether nobody had said so before."""
        path = f"/v1/transactions/{_quoted(transaction)}/delivery"
        return self._call("POST", path, {"account_id": account})["first"]

    # At any time

    def entitlements(self, account):
        """What the account may use now, by name. Keep it for minutes, and never beyond access_ends_at."""
        answer = self._call("GET", f"/v1/accounts/{_quoted(account)}/entitlements?active=true")
        return {one["entitlement"]: one for one in answer["entitlements"]}

    def follow(self, cursor, apply):
        """Reads every change from a cursor on (None: the oldest kept), until `apply` returns False.

        `apply(events, next)` stores `next` in the transaction in which it applies the events: then
        none is skipped, and none is applied twice. Problem `cursor_expired` means that events were
        deleted before they were read, `cursor_unknown` that the server was set back: in both cases
        ask for all entitlements, and follow from None.
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
        """Whether Tenure sent a webhook with this Tenure-Signature within the last five minutes."""
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
                # The same of all attempts: Tenure's log has them together.
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
            # Half of it left to chance, so that servers that failed together don't return together.
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
