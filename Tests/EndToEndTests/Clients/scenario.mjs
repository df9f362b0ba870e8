// The scenario of ClientTests in JavaScript.

import { readFileSync } from "node:fs";
import { Problem, Tenure } from "./app-server.mjs";

const stage = JSON.parse(readFileSync(0, "utf8"));
const tenure = new Tenure(stage.url, stage.key, stage.timeout_seconds * 1000);
const report = (step, value) => console.log(JSON.stringify({ step, value: String(value) }));

const accounts = [await tenure.account("4711"), await tenure.account("4711")];
report("tokens of one account", new Set(accounts.map((one) => one.app_account_token)).size);
const order = await tenure.openOrder("4711", "monthly");
report("order", order.status);

const bought = await tenure.submit("4711", { signed: [stage.signed], order: order.order_id });
report("submission", bought.status);
report("order after submission", bought.order.status);
const owned = Tenure.owned(bought, "4711");
report("deliverable", owned.map((one) => one.product_id));
const transaction = owned[0].transaction_id;
// The first response is lost, so this is the second acknowledgement.
report("first acknowledgement", await tenure.acknowledge(transaction, "4711"));

const other = await tenure.submit("4712", { signed: [stage.signed] });
report("warnings", other.warnings);
report("deliverable to other account", Tenure.owned(other, "4712").length);
const refused = async (step, call) => {
  try {
    await call;
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
    report(step, `${problem.status} ${problem.code}`);
  }
};
await refused("acknowledged by other account", tenure.acknowledge(transaction, "4712"));
await refused("forged transaction", tenure.submit("4711", { signed: ["e.e.e"] }));

const pending = await tenure.submit("4711", { receipt: stage.receipt });
report("while Apple is unavailable", pending.status);
report("after retries", (await tenure.settled(pending)).status);

for (const account of ["4711", "4712", "unknown/ever"]) {
  report(`entitlements of ${account}`, [...(await tenure.entitlements(account)).keys()]);
}

const seen = [];
const cursor = await tenure.follow(null, (events) => {
  seen.push(...events);
  return !seen.some((one) => one.type === "order.fulfilled");
});
report("events", seen.filter((one) => one.type === "transaction.recorded").length);
report("cursor", cursor.split("-")[0] === seen.at(-1).id);
for (const name of Object.keys(stage.headers).sort()) {
  const isGenuine = Tenure.isGenuine(stage.headers[name], Buffer.from(stage.body), stage.secret);
  report(`webhook ${name}`, isGenuine ? "yes" : "no");
}
