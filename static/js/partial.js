// The unfinished turn of a running rollout, at the end of its transcript. Hints of its tokens come twice a second while the
// page asks for it; its text grows in place, and the whole turn replaces it (`trajectory.js`).
const RENEW = 5_000; // ms between requests without a hint: the worker tells tokens only while a page asks (`partial_turns.py`)
const WAIT = 10_000; // ms that an answer may take
const EDGE = 24; // px that the reader may be from the end and still be at it

const holder = () => document.getElementById("partial");
const open = () => holder()?.querySelector("[data-open]");
const paused = () => document.hidden || Boolean(document.querySelector('[data-live-pause][aria-pressed="true"]'));

let asking = null;
let again = false;
let recorded = 0; // turns that the page has whole

// Whether the reader looks at the end of the transcript, and wants to stay there.
function atEnd() {
  const follow = document.querySelector("[data-follow]");
  const last = open() ?? document.getElementById("turns") ?? holder();
  const { bottom } = last.getBoundingClientRect();
  return (follow?.checked ?? true) && bottom > 0 && bottom <= innerHeight + EDGE;
}

function stay() {
  const over = open().getBoundingClientRect().bottom - innerHeight + EDGE / 2;
  if (over > 0) scrollBy({ top: over, behavior: "instant" });
}

// What is there stays where it is: only what differs is touched, and text is added to its end.
function patch(old, fresh) {
  for (const [name, value] of Object.entries(fresh.dataset)) old.dataset[name] = value;
  for (const part of [".turn__head", "[data-calls]"]) {
    const [here, there] = [old.querySelector(part), fresh.querySelector(part)];
    if (here.innerHTML !== there.innerHTML) here.innerHTML = there.innerHTML;
  }
  const [here, there] = [old.querySelector("[data-text]"), fresh.querySelector("[data-text]")];
  here.className = there.className;
  if (there.dataset.from === "0") {
    if (here.textContent !== there.textContent) here.textContent = there.textContent;
  } else if (there.textContent) here.append(there.textContent);
  here.normalize();
}

function show(html, asked) {
  const template = document.createElement("template");
  template.innerHTML = html;
  const fresh = template.content.querySelector("[data-open]");
  const old = open();
  if (!fresh || Number(fresh.dataset.index) < recorded) return;
  if (fresh.querySelector("[data-text]").dataset.from !== "0" && (old?.dataset.open !== asked.of || old?.dataset.end !== asked.from)) return;
  const stays = atEnd();
  if (old?.dataset.open === fresh.dataset.open) patch(old, fresh);
  else {
    holder().replaceChildren(fresh);
    if (old?.dataset.index !== fresh.dataset.index) say(`${fresh.querySelector("h3").textContent} is being sampled.`);
  }
  if (stays) stay();
}

// The text itself is no live region: it would be read out piece by piece.
function say(words) {
  const place = document.getElementById("partial-says");
  if (place) place.textContent = words;
}

async function ask() {
  if (!holder() || paused()) return;
  if (asking) {
    again = true;
    return;
  }
  const url = new URL(holder().dataset.partial, location.href);
  const asked = { of: open()?.dataset.open, from: open()?.dataset.end };
  if (asked.of) for (const [name, value] of Object.entries(asked)) url.searchParams.set(name, value);
  asking = fetch(url, { signal: AbortSignal.timeout(WAIT) });
  try {
    const answer = await asking;
    if (answer.status === 200 && !answer.redirected && holder()) show(await answer.text(), asked);
  } catch (error) {
    if (!["TypeError", "TimeoutError", "AbortError"].includes(error.name)) throw error; // the next request asks for the same
  } finally {
    asking = null;
  }
  if (again) {
    again = false;
    ask();
  }
}

// The page has this many turns whole: an open one among them is over.
export function settle(turns) {
  recorded = turns;
  if (open() && Number(open().dataset.index) < turns) open().remove();
}

export function start() {
  // The element may be replaced with the page's middle, so the page listens.
  document.addEventListener("oc:refresh", ({ target }) => { if (target.id === "partial") ask(); }, true);
  document.addEventListener("visibilitychange", ask);
  setInterval(ask, RENEW);
  ask();
}
