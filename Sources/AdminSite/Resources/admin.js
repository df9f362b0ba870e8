// Optional helpers: every page works without JavaScript.
"use strict";

// The key / leads to the search.
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, textarea, select")) return;
  event.preventDefault();
  const field = document.getElementById("q");
  field?.focus();
  field?.select();
});

// Suggests accounts.
document.addEventListener("input", async ({ target }) => {
  const source = target.list?.dataset.source;
  if (!source) return;
  const answer = await fetch(source + encodeURIComponent(target.value));
  const accounts = answer.redirected ? [] : await answer.json();
  target.list.replaceChildren(...accounts.map(([id, name]) => new Option(name, id)));
});

// Shows a chart's values beside the pointer, or with the arrow keys.
for (const chart of document.querySelectorAll(".chart")) {
  const bands = [...chart.querySelectorAll(".band")];
  if (bands.length === 0) continue;
  const row = chart.querySelector(".plot-row");
  const readout = document.createElement("p");
  readout.className = "readout";
  readout.role = "status";
  row.append(readout);
  row.tabIndex = 0;
  row.role = "group";
  row.ariaLabel = `${chart.querySelector("h2").textContent}: values with the arrow keys`;
  const titles = bands.map((band) => band.querySelector("title"));
  for (const title of titles) title.remove();
  let place = -1;
  const show = (next) => {
    bands[place]?.classList.remove("at");
    place = next;
    const band = bands[place];
    readout.textContent = titles[place]?.textContent ?? "";
    if (!band) return;
    band.classList.add("at");
    const box = band.getBoundingClientRect(), frame = row.getBoundingClientRect();
    const isRight = place >= bands.length / 2;
    readout.style.left = isRight ? "auto" : `${box.right - frame.left + 8}px`;
    readout.style.right = isRight ? `${frame.right - box.left + 8}px` : "auto";
  };
  bands.forEach((band, index) => { band.onpointerenter = () => show(index); });
  row.onpointerleave = (event) => {
    if (event.pointerType === "mouse") show(-1);
  };
  row.onblur = () => show(-1);
  row.onkeydown = (event) => {
    const last = bands.length - 1;
    const next = {
      ArrowLeft: place < 0 ? last : Math.max(place - 1, 0), ArrowRight: Math.min(place + 1, last),
      Home: 0, End: last, Escape: -1,
    }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    show(next);
  };
}

for (const form of document.querySelectorAll("form.choose")) {
  const boxes = [...form.querySelectorAll("input[type=checkbox]")];
  // Enabled by a selection.
  const update = () => { form.elements.do.disabled = !form.querySelector(":checked"); };
  form.onchange = update;
  window.addEventListener("pageshow", update);
  if (boxes.length < 2) continue;
  const all = document.createElement("button");
  all.type = "button";
  all.textContent = "Select all";
  all.onclick = () => {
    const every = boxes.every((box) => box.checked);
    for (const box of boxes) box.checked = !every;
    update();
  };
  form.querySelector(".choose-do").prepend(all);
}

// Prevents double submission; after a download, the form is enabled again.
for (const form of document.querySelectorAll("form[method=post]")) {
  window.addEventListener("pageshow", () => delete form.dataset.sent);
  form.addEventListener("submit", (event) => {
    if (form.dataset.sent) return event.preventDefault();
    form.dataset.sent = "yes";
    if (!("file" in form.dataset)) return;
    setTimeout(() => delete form.dataset.sent, 2000);
    // The file comes with the message for the next page.
    const waiting = setInterval(() => {
      const notice = `tenure_admin_notice${location.port && `_${location.port}`}=`;
      if (!document.cookie.split("; ").some((cookie) => cookie.startsWith(notice))) return;
      clearInterval(waiting);
      location = form.querySelector(".submit a").href;
    }, 200);
  });
}

// Scrolls timelines to the present, or to their end. Their links are one stop of the Tab key.
for (const timeline of document.querySelectorAll(".timeline")) {
  const scroll = timeline.querySelector(".scroll");
  const now = scroll.querySelector(".now")?.getBoundingClientRect().left ?? 1e5;
  scroll.scrollLeft = now - scroll.getBoundingClientRect().left - scroll.clientWidth * 0.8;
  const links = [...scroll.querySelectorAll("a")];
  for (const link of links.slice(1)) link.tabIndex = -1;
  timeline.addEventListener("focusin", ({ target }) => {
    timeline.querySelector(".focused").textContent = target.getAttribute("aria-label");
  });
  timeline.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const next = links[links.indexOf(event.target) + step];
    if (!links.includes(event.target) || !next) return;
    event.preventDefault();
    event.target.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
}
