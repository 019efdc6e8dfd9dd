// Short messages at the edge of the screen: what was copied, saved or labelled. They go by themselves, later while the pointer or
// the focus is on them. Server messages are toasts already when the page comes (partials/messages.html).
import { icon } from "./icon.js";

const STAYS = 6000; // ms
const STAYS_WITH_ACTION = 15_000;

function region() {
  let found = document.getElementById("toasts");
  if (!found) {
    found = Object.assign(document.createElement("div"), { id: "toasts", className: "toasts" });
    found.setAttribute("role", "status");
    found.setAttribute("aria-live", "polite");
    document.body.append(found);
  }
  return found;
}

function leave(toast) {
  let timer = null;
  const stay = () => clearTimeout(timer);
  const go = () => {
    stay();
    timer = setTimeout(() => toast.remove(), toast.querySelector("button, a") ? STAYS_WITH_ACTION : STAYS);
  };
  for (const [kind, act] of [["mouseenter", stay], ["focusin", stay], ["mouseleave", go], ["focusout", go]]) toast.addEventListener(kind, act);
  go();
}

// `tone`: good, bad or warn.
export function toast(text, tone = "good") {
  const made = Object.assign(document.createElement("div"), { className: `toast toast--${tone}` });
  made.append(icon(tone === "good" ? "circle-check" : "triangle-alert"), Object.assign(document.createElement("span"), { textContent: text }));
  region().append(made);
  leave(made);
}

export function startToasts() {
  for (const made of document.querySelectorAll("[data-toast]")) leave(made);
  // An answer of htmx may bring one: `HX-Trigger: {"oc:toast": "Label saved"}`.
  document.addEventListener("oc:toast", ({ detail }) => toast(detail.value ?? detail.text, detail.tone));
}
