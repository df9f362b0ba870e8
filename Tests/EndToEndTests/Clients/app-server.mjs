// Calls Tenure from an app's server, with nothing but Node (18 or newer). To be copied.
//
// A call that gets no answer, or one that says "later", is sent again with pauses that double. That is
// harmless: each call names what it is about, so the second one finds what the first one did.

import { createHmac, randomUUID, timingSafeEqual } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";

/** What Tenure refuses: sending it again would change nothing. */
export class Problem extends Error {
  constructor(status, problem) {
    super(`${status} ${problem.code}: ${problem.detail}`);
    this.status = status;
    this.code = problem.code;
    this.requestID = problem.request_id;
  }
}

/** No answer after all attempts. What was sent may have been done. */
export class Unavailable extends Error {}

const attempts = 6;
// Milliseconds before the second attempt; doubled before each further one.
const firstPause = 200;
const longestPause = 10_000;
// Seconds for which the feed holds a question to which there is no answer yet.
const wait = 20;

export class Tenure {
  #url;
  #key;
  #timeout;

  /** The time-out of one attempt is in milliseconds: Apple is given 10,000 of them. */
  constructor(url, key, timeout = 15_000) {
    this.#url = url;
    this.#key = key;
    this.#timeout = timeout;
  }

  // Before a purchase

  /** The account, with the token to pass to StoreKit; created if it is new. */
  account(account) {
    return this.#call("PUT", `/v1/accounts/${encodeURIComponent(account)}`);
  }

  /** One whose answer is lost is opened twice: the other one expires, unpaid. */
  openOrder(account, product) {
    return this.#call("POST", "/v1/orders", { account_id: account, product_id: product });
  }

  // After a purchase

  /** Submits what StoreKit 2 signed, or a receipt; "pending" if Apple can't be asked just now. */
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

  /** Waits until a pending submission is decided. For jobs, not while a customer waits. */
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
   * What to deliver, unless your database says that it was: remember each transaction_id.
   * `newly_owned` says it in one answer only, and that one may be lost.
   */
  static owned(submission, account) {
    const transactions = submission.transactions ?? [];
    return transactions.filter((one) => one.owner_account_id === account && !one.revoked_at);
  }

  /** Says that a transaction was delivered; whether nobody had said so before. */
  async acknowledge(transaction, account) {
    const path = `/v1/transactions/${encodeURIComponent(transaction)}/delivery`;
    return (await this.#call("POST", path, { account_id: account })).first;
  }

  // At any time

  /** What the account may use now, by name. Keep it for minutes, and never beyond access_ends_at. */
  async entitlements(account) {
    const path = `/v1/accounts/${encodeURIComponent(account)}/entitlements?active=true`;
    const answer = await this.#call("GET", path);
    return new Map(answer.entitlements.map((one) => [one.entitlement, one]));
  }

  /**
   * Reads every change from a cursor on (null: the oldest kept), until `apply` returns false.
   *
   * `apply(events, next)` stores `next` in the transaction in which it applies the events: then none
   * is skipped, and none is applied twice. Problem `cursor_expired` means that events were deleted
   * before they were read, `cursor_unknown` that the server was set back: in both cases ask for all
   * entitlements, and follow from null.
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

  /** Whether Tenure sent a webhook with this Tenure-Signature within the last five minutes. */
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
      // The same of all attempts: Tenure's log has them together.
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
      // Half of it left to chance, so that servers that failed together don't return together.
      await sleep(Math.max(Math.min(later, longestPause), pause * (0.5 + Math.random() / 2)));
      pause = Math.min(2 * pause, longestPause);
    }
  }
}
