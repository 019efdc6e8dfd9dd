// One websocket a tab. The server sends hints {topic, seq}; elements marked data-live="<topic> …" receive
// `oc:refresh` at most twice a second a topic and refetch what they show. Nothing is ever shown from a hint itself.
// The runs of [data-watch] are pushed instead (stream.js).
import { expect, forget, pushed, startStream, take, watches } from "./stream.js";

const INTERVAL = 500; // ms between refreshes of one topic
const PING = 20_000; // ms between pings
const SILENCE = 45_000; // ms without any message after which the connection counts as dead
const SLOW = 60_000; // ms (and jitter) between refetches without any hint: a lost hint costs freshness, never truth
const HIDDEN = 30_000; // ms that a hidden tab keeps its connection
const FULL = 4430; // code with which the server ends a connection of somebody who has too many
const FULL_WORDS = "You have too many pages open. Close some; this one looks for changes once a minute and connects by itself.";
const FULL_WAIT = 60_000; // ms (and jitter) until a page asks again whether others were closed
const OUT = 4401; // code with which the server ends a connection whose log-in is over
const OUT_WORDS = "Your log-in is over. Reload this page to log in again.";
const STEADY = 10_000; // ms after which a connection was a good one, and the next attempts begin soon again

const seen = new Map(); // topic → newest sequence number
const due = new Map(); // topic → timer of the next refresh
const last = new Map(); // topic → time of the last refresh
const fired = new Map(); // id of an element → time of its last refresh
const waiting = new Set(); // ids of elements whose next refresh has a timer
const stale = new Set(); // topics that changed while paused
const told = new Set(); // topics that this connection has subscribed to

let socket = null;
let attempts = 0;
let paused = false;
let lostAt = null;
let ended = 0; // code with which the server ended the last connection, until there is another
let greeted = null; // time at which the server greeted this connection
let retry = null; // timer of the next attempt to connect
let silence = null;
let hiding = null;
let again = null; // timer of asking for everything once more

function topics() {
  const found = new Set();
  for (const element of document.querySelectorAll("[data-live]")) {
    for (const topic of element.dataset.live.split(" ").filter(Boolean)) found.add(topic);
  }
  return found;
}

function refresh(topic) {
  const elements = [...document.querySelectorAll("[data-live]")].filter(
    (element) => element.dataset.live.split(" ").includes(topic) && !pushed(element),
  );
  // An element that is being fetched is replaced by the answer, and what it was asked meanwhile is forgotten with it.
  if (elements.some((element) => element.classList.contains("htmx-request"))) {
    due.set(topic, setTimeout(refresh, INTERVAL, topic));
    return;
  }
  due.delete(topic);
  last.set(topic, performance.now());
  for (const element of elements) fire(element, topic);
}

// An element may ask for fewer refreshes than its topics bring: `data-live-every` (ms, needs an id). The last one is never lost.
function fire(element, topic) {
  if (!element) return;
  const { id } = element;
  const wait = (fired.get(id) ?? -Infinity) + Number(element.dataset.liveEvery ?? 0) - performance.now();
  if (element.dataset.liveEvery === undefined || wait <= 0) {
    fired.set(id, performance.now());
    element.dispatchEvent(new CustomEvent("oc:refresh", { detail: { topic } }));
  } else if (!waiting.has(id)) {
    waiting.add(id);
    setTimeout(() => {
      waiting.delete(id);
      fire(document.getElementById(id), topic);
    }, wait);
  }
}

function schedule(topic) {
  if (paused) {
    stale.add(topic);
    show();
    return;
  }
  if (due.has(topic)) return;
  const wait = Math.max(0, (last.get(topic) ?? -INTERVAL) + INTERVAL - performance.now());
  due.set(topic, setTimeout(refresh, wait, topic));
}

// What the badge says: its state, its words, and more words on pointing at it.
function standing() {
  if (paused) return ["paused", stale.size ? "paused, newer data waits" : "paused", ""];
  if (ended === FULL) return ["stale", "not live: close other tabs", FULL_WORDS];
  if (ended === OUT) return ["stale", "logged out", OUT_WORDS];
  if (greeted !== null) return ["live", "live", ""];
  if (lostAt) return ["stale", `stale since ${lostAt.toLocaleTimeString([], { hour12: false })}`, ""];
  return ["connecting", "connecting", ""];
}

function show() {
  const [state, text, more] = standing();
  for (const badge of document.querySelectorAll("[data-live-badge]")) {
    badge.dataset.state = state;
    badge.textContent = text;
    badge.title = more;
  }
  for (const button of document.querySelectorAll("[data-live-pause]")) {
    button.setAttribute("aria-pressed", String(paused));
    button.textContent = paused ? "Resume updates" : "Pause updates";
  }
}

function heard() {
  clearTimeout(silence);
  silence = setTimeout(() => socket?.close(), SILENCE);
}

// Everything of the runs that are shown, and from then on what changes.
function watch() {
  if (paused || !watches().length) return;
  expect();
  send({ watch: watches() });
}

function connected() {
  greeted = performance.now();
  lostAt = null;
  ended = 0;
  show();
}

function receive(message) {
  heard();
  if (message.hello) connected();
  if (message.run) {
    if (!paused && !take(message)) again ??= setTimeout(() => { again = null; watch(); }, Math.random() * 500);
    return;
  }
  if (message.error?.code === "gone") location.reload(); // left its project: the page says so
  if (message.error?.code === "watch") {
    forget();
    for (const topic of told) schedule(topic);
  }
  // What changed between rendering the page and joining the topic was not announced to us: fetch once.
  if (message.subscribed) schedule(message.subscribed);
  if (!message.topic || message.seq <= (seen.get(message.topic) ?? -1)) return;
  seen.set(message.topic, message.seq);
  schedule(message.topic);
}

function send(message) {
  if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify(message));
}

function subscribe() {
  const news = [...topics()].filter((topic) => !told.has(topic));
  if (!news.length || socket?.readyState !== WebSocket.OPEN) return;
  for (const topic of news) told.add(topic);
  send({ subscribe: news });
}

function connect(url) {
  if (socket || document.hidden) return;
  socket = new WebSocket(new URL(url, location.href.replace(/^http/, "ws")));
  socket.addEventListener("open", () => {
    heard();
    watch();
    subscribe();
  });
  socket.addEventListener("message", (event) => receive(JSON.parse(event.data)));
  socket.addEventListener("close", ({ code }) => {
    clearTimeout(silence);
    socket = null;
    ended = [FULL, OUT].includes(code) ? code : 0;
    if (greeted !== null && performance.now() - greeted > STEADY) attempts = 0;
    greeted = null;
    told.clear();
    forget();
    lostAt ??= new Date();
    show();
    clearTimeout(retry);
    if (ended === OUT) return; // until the page is looked at anew: somebody may have logged in beside it
    // Full jitter: a restarted server is not met by all browsers in the same instant.
    const soon = 250 + Math.random() * Math.min(15_000, 500 * 2 ** attempts++);
    retry = setTimeout(connect, ended === FULL ? FULL_WAIT * (1 + Math.random() / 2) : soon, url);
  });
}

export function startLive() {
  const url = document.documentElement.dataset.liveUrl;
  if (!url || !topics().size) return;
  startStream();
  connect(url);
  setInterval(send, PING, { ping: 1 });
  setInterval(() => {
    if (!document.hidden) setTimeout(() => [...topics()].forEach(schedule), Math.random() * 5000);
  }, SLOW);
  document.addEventListener("visibilitychange", () => {
    clearTimeout(hiding);
    if (document.hidden) hiding = setTimeout(() => socket?.close(), HIDDEN);
    else connect(url);
  });
  document.addEventListener("htmx:afterSettle", subscribe);
  for (const button of document.querySelectorAll("[data-live-pause]")) {
    button.addEventListener("click", () => {
      paused = !paused;
      if (paused) send({ unwatch: watches().map(({ run }) => run) });
      else {
        watch();
        for (const topic of stale) schedule(topic);
        stale.clear();
      }
      show();
    });
  }
  show();
}
