// A Tenure client to copy into your app server. It needs only Node 18 or newer.
//
// Calls without a response, or with status 429 or 5xx, are retried with exponential backoff. That is safe:
// each call identifies its subject, so a retry finds the result of the first attempt.

import { createHmac, randomUUID, timingSafeEqual } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";

/** A rejected request. Retrying it does not help. */
export class Problem extends Error {
  constructor(status, problem) {
    super(`${status} ${problem.code}: ${problem.detail}`);
    this.status = status;
    this.code = problem.code;
    this.requestID = problem.request_id;
  }
}

/** No response after all attempts. The request may have taken effect. */
export class Unavailable extends Error {}

const attempts = 6;
// In milliseconds; doubled after each attempt.
const firstPause = 200;
const longestPause = 10_000;
// Seconds for which the feed waits for new events.
const wait = 20;

export class Tenure {
  #url;
  #key;
  #timeout;

  /** The timeout of one attempt is in milliseconds. Tenure waits up to 10,000 for Apple. */
  constructor(url, key, timeout = 15_000) {
    this.#url = url;
    this.#key = key;
    this.#timeout = timeout;
  }

  // Before a purchase

  /** Returns the account, creating it if necessary, with the token to pass to StoreKit. */
  account(account) {
    return this.#call("PUT", `/v1/accounts/${encodeURIComponent(account)}`);
  }

  /** Opens an order. If the response is lost, a retry opens another one, and the first expires. */
  openOrder(account, product) {
    return this.#call("POST", "/v1/orders", { account_id: account, product_id: product });
  }

  // After a purchase

  /** Submits signed transactions or a receipt; "pending" if Apple is unavailable. */
  submit(account, { signed, receipt, order, transaction, restore } = {}) {
    return this.#call("POST", "/v1/receipts", {
      account_id: account,
      signed_transactions: signed,
      receipt_data: receipt,
      order_id: order,
      transaction_id: transaction,
      restore,
    });
  }

  /** Waits until a pending submission is decided. For background jobs only. */
  async settled(submission, patience = 60_000) {
    const end = Date.now() + patience;
    let pause = firstPause;
    while (submission.status === "pending" && Date.now() < end) {
      await sleep(pause);
      pause = Math.min(2 * pause, longestPause);
      submission = await this.#call("GET", `/v1/receipts/${submission.submission_id}`);
    }
    return submission;
  }

  /**
   * Returns the transactions to deliver, unless your database has their transaction_id already.
   * Don't rely on `newly_owned`: only one response has it set, and that one may be lost.
   */
  static owned(submission, account) {
    const transactions = submission.transactions ?? [];
    return transactions.filter((one) => one.owner_account_id === account && !one.revoked_at);
  }

  /** Acknowledges the delivery of a transaction. Returns whether this is the first time. */
  async acknowledge(transaction, account) {
    const path = `/v1/transactions/${encodeURIComponent(transaction)}/delivery`;
    return (await this.#call("POST", path, { account_id: account })).first;
  }

  // At any time

  /** Returns the active entitlements by name. Cache for minutes, and never beyond access_ends_at. */
  async entitlements(account) {
    const path = `/v1/accounts/${encodeURIComponent(account)}/entitlements?active=true`;
    const answer = await this.#call("GET", path);
    return new Map(answer.entitlements.map((one) => [one.entitlement, one]));
  }

  /**
   * Reads all events after a cursor (null: from the oldest), until `apply` returns false.
   *
   * `apply(events, next)` must store `next` in the database transaction that applies the events, so that
   * none is skipped or applied twice. On a `cursor_expired` problem (unread events were deleted) or
   * `cursor_unknown` (the server was restored from a backup), read all entitlements and follow from null.
   */
  async follow(cursor, apply) {
    for (;;) {
      const after = cursor === null ? "" : `&after=${encodeURIComponent(cursor)}`;
      const path = `/v1/events?limit=500&wait=${wait}${after}`;
      const answer = await this.#call("GET", path, undefined, this.#timeout + wait * 1000);
      cursor = answer.next;
      if ((await apply(answer.events, cursor)) === false) return cursor;
    }
  }

  /** Returns whether Tenure sent this webhook within the last five minutes (Tenure-Signature). */
  static isGenuine(header, body, secret, now = Date.now() / 1000) {
    const fields = header.split(",").map((field) => field.split("="));
    const sent = fields.find(([name]) => name === "t")?.[1] ?? "";
    const code = createHmac("sha256", secret).update(`${sent}.`).update(body).digest();
    const isSigned = fields.some(([name, value]) => {
      const other = name === "v1" ? Buffer.from(value ?? "", "hex") : Buffer.alloc(0);
      return other.length === code.length && timingSafeEqual(other, code);
    });
    return isSigned && Math.abs(now - Number(sent)) <= 300;
  }

  // The call itself

  async #call(method, path, body, timeout = this.#timeout) {
    const headers = {
      Authorization: `Bearer ${this.#key}`,
      "Content-Type": "application/json",
      // The same for all attempts, to find them together in Tenure's log.
      "X-Request-ID": randomUUID(),
    };
    let pause = firstPause;
    for (let attempt = 1; ; attempt++) {
      let reason;
      let later = 0;
      try {
        const answer = await fetch(this.#url + path, {
          method,
          headers,
          body: body === undefined ? undefined : JSON.stringify(body),
          redirect: "error",
          signal: AbortSignal.timeout(timeout),
        });
        if (answer.ok) return await answer.json();
        if (answer.status !== 429 && answer.status < 500) {
          throw new Problem(answer.status, await answer.json().catch(() => ({})));
        }
        reason = `status ${answer.status}`;
        later = 1000 * (Number(answer.headers.get("Retry-After")) || 0);
      } catch (error) {
        if (error instanceof Problem) throw error;
        reason = String(error.cause ?? error);
      }
      if (attempt === attempts) throw new Unavailable(`${method} ${path}: ${reason}`);
      // With 50% jitter, so that servers that failed together don't retry together.
      await sleep(Math.max(Math.min(later, longestPause), pause * (0.5 + Math.random() / 2)));
      pause = Math.min(2 * pause, longestPause);
    }
  }
}
