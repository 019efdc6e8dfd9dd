// The command palette (Ctrl K): one field over pages, runs, rollouts, tasks, policies and actions. The server searches
// (`ops:search`); arrows choose, Enter opens, Ctrl Enter opens in a new tab.
import { toggleTheme } from "../theme.js";
import { openHelp } from "./drawer.js";
import { icon } from "./icon.js";
import { showShortcuts } from "./shortcuts.js";
import { toggleSidebar } from "./sidebar.js";

const DELAY = 120; // ms after the last key
const COMMANDS = { theme: toggleTheme, sidebar: toggleSidebar, help: () => openHelp(), shortcuts: showShortcuts };

const dialog = document.getElementById("palette");
const input = dialog.querySelector("input");
const list = dialog.querySelector("[role='listbox']");
const status = dialog.querySelector("[data-palette-status]");
let items = []; // {element, url, command, post}
let current = -1;
let timer = null;
let pending = null;
let asked = null;

function choose(index) {
  current = items.length ? (index + items.length) % items.length : -1;
  for (const [place, { element }] of items.entries()) element.setAttribute("aria-selected", String(place === current));
  const chosen = items[current]?.element;
  if (chosen) input.setAttribute("aria-activedescendant", chosen.id);
  else input.removeAttribute("aria-activedescendant");
  chosen?.scrollIntoView({ block: "nearest" });
}

function span(className, textContent) {
  return Object.assign(document.createElement("span"), { className, textContent });
}

function draw(groups) {
  items = [];
  const parts = groups.map(({ title, items: found }, place) => {
    const group = document.createElement("div");
    group.setAttribute("role", "group");
    const heading = Object.assign(span("palette__title", title), { id: `palette-group-${place}` });
    group.setAttribute("aria-labelledby", heading.id);
    group.append(heading);
    for (const item of found) {
      const element = document.createElement("div");
      element.className = "palette__item";
      element.id = `palette-${items.length}`;
      element.setAttribute("role", "option");
      element.append(icon(item.icon), span("clip", item.title), span("palette__detail clip", item.detail ?? ""));
      const index = items.length;
      element.addEventListener("mousemove", () => current !== index && choose(index));
      element.addEventListener("click", (event) => {
        choose(index);
        go(event.ctrlKey || event.metaKey);
      });
      items.push({ element, ...item });
      group.append(element);
    }
    return group;
  });
  if (!items.length) parts.push(Object.assign(document.createElement("p"), { className: "empty", textContent: "Nothing matches. Try a run's name, a task, a policy or a rollout's number." }));
  list.replaceChildren(...parts);
  status.textContent = `${items.length} result${items.length === 1 ? "" : "s"}`;
  choose(0);
}

async function search() {
  pending?.abort();
  pending = new AbortController();
  const text = input.value.trim();
  try {
    const here = encodeURIComponent(location.pathname);
    const answer = await fetch(`${dialog.dataset.palette}?q=${encodeURIComponent(text)}&here=${here}`, { signal: pending.signal });
    if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
    draw((await answer.json()).groups);
    asked = text;
  } catch (error) {
    if (error.name === "AbortError") return;
    list.replaceChildren(Object.assign(document.createElement("p"), { className: "empty", textContent: `Search failed: ${error.message}.` }));
    items = [];
  }
}

// A change goes as a form with this browser's token, through the dialog that asks first (confirm.js).
function post({ url, title, confirm }) {
  const form = Object.assign(document.createElement("form"), { method: "post", action: url, hidden: true });
  form.append(document.querySelector("input[name='csrfmiddlewaretoken']").cloneNode());
  const button = Object.assign(document.createElement("button"), { textContent: title });
  if (confirm) button.dataset.confirm = confirm;
  form.append(button);
  document.body.append(form);
  form.requestSubmit(button);
}

function go(apart = false) {
  const item = items[current];
  if (!item) return;
  if (apart && item.url && !item.post) return void window.open(item.url, "_blank", "noopener");
  dialog.close();
  if (item.command) COMMANDS[item.command]?.();
  else if (item.post) post(item);
  else location.assign(item.url);
}

export function open() {
  if (dialog.open) return;
  for (const other of document.querySelectorAll("dialog[open]")) other.close();
  dialog.showModal();
  input.select();
  search();
}

input.addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(search, DELAY);
});
input.addEventListener("keydown", (event) => {
  const moves = { ArrowDown: current + 1, ArrowUp: current - 1, Home: input.value ? null : 0, End: input.value ? null : -1 };
  const to = moves[event.key];
  if (to !== undefined && to !== null) {
    event.preventDefault();
    choose(to);
  } else if (event.key === "Escape") {
    event.preventDefault(); // a search field takes the first one to empty itself
    dialog.close();
  } else if (event.key === "Enter") {
    event.preventDefault();
    const apart = event.ctrlKey || event.metaKey;
    // Typed faster than the server answers: what is asked for is what stands in the field now.
    if (input.value.trim() !== asked) {
      clearTimeout(timer);
      search().then(() => go(apart));
    } else go(apart);
  }
});
dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
