// How times are shown: relative or absolute, local or UTC, as this browser remembers it. What is not shown stands in the title.
// `<time data-relative>` is a moment; `<time data-since>` the time since then, counted on each second.
import { seconds } from "../format.js";

const KEYS = { form: "times-form", zone: "times-zone" };
const STEPS = [[60, 1, "s"], [3600, 60, "min"], [86_400, 3600, "h"], [Infinity, 86_400, "d"]];

function remembered(name) {
  try {
    return localStorage.getItem(KEYS[name]);
  } catch {
    return null; // storage is blocked: the choice lasts for this page
  }
}

const chosen = { form: remembered("form") ?? "relative", zone: remembered("zone") ?? "local" };

export function absolute(when) {
  const parts = { year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false };
  const zone = chosen.zone === "utc" ? { timeZone: "UTC" } : {};
  const found = Object.fromEntries(new Intl.DateTimeFormat("en-GB", { ...parts, ...zone }).formatToParts(when).map(({ type, value }) => [type, value]));
  return `${found.year}-${found.month}-${found.day} ${found.hour}:${found.minute}:${found.second}${chosen.zone === "utc" ? " UTC" : ""}`;
}

function ago(when) {
  const past = (Date.now() - when) / 1000;
  const [, size, unit] = STEPS.find(([limit]) => Math.abs(past) < limit);
  return Math.abs(past) < 5 ? "just now" : `${Math.round(past / size)} ${unit} ago`;
}

export function relative(root = document) {
  for (const element of root.querySelectorAll("time[data-relative]")) {
    const when = Date.parse(element.dateTime);
    const texts = [ago(when), absolute(when)];
    if (chosen.form === "absolute") texts.reverse();
    const [text, title] = texts;
    if (element.textContent !== text) element.textContent = text;
    if (element.title !== title) element.title = title;
    element.dataset.relative = "shown";
  }
  tick(root);
}

function tick(root = document) {
  for (const element of root.querySelectorAll("time[data-since]")) {
    const text = seconds(Math.max(0, (Date.now() - Date.parse(element.dataset.since)) / 1000));
    if (element.textContent !== text) element.textContent = text;
  }
}

export function startTimes() {
  relative();
  setInterval(relative, 10_000);
  setInterval(tick, 1000);
  document.addEventListener("htmx:afterSettle", (event) => relative(event.target.parentNode ?? document));
  const local = Intl.DateTimeFormat().resolvedOptions().timeZone;
  for (const place of document.querySelectorAll("[data-times-local]")) place.textContent = `Local (${local})`;
  for (const set of document.querySelectorAll("[data-times]")) {
    const name = set.dataset.times;
    const input = set.querySelector(`[value="${chosen[name]}"]`);
    if (input) input.checked = true;
    set.addEventListener("change", ({ target }) => {
      chosen[name] = target.value;
      try {
        localStorage.setItem(KEYS[name], target.value);
      } catch {
        // storage is blocked
      }
      relative();
      document.dispatchEvent(new CustomEvent("oc:times"));
    });
  }
}
