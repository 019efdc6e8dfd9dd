// A form that was refused comes back as it was sent: filled, opened, with the reason in it. The server keeps what was typed
// for this one page, without passwords, keys and files.
import { KEPT, read, write } from "./edits.js";

const leadsTo = (address, path) => address !== null && new URL(address, location.href).pathname === path;
// Attributes, not properties: a field may be called `action`.
const sendsTo = (form, path) => [form, ...form.elements].some((one) => leadsTo(one.getAttribute(one === form ? "action" : "formaction"), path));

// Each row of a table may have such a form: hidden fields tell them apart.
function find({ path, values }) {
  const sent = new Map(values);
  const alike = (form) => [...form.elements].filter((field) => field.type === "hidden" && sent.get(field.name) === field.value).length;
  const known = [...document.forms].filter((form) => form.getAttribute("method") === "post" && form.querySelector(KEPT) && sendsTo(form, path));
  return known.sort((one, other) => alike(other) - alike(one))[0];
}

function fill(form, values) {
  const sent = new Map();
  for (const [name, value] of values) sent.set(name, [...(sent.get(name) ?? []), value]);
  for (const field of form.elements) {
    if (!field.matches(KEPT) || field.hasAttribute("data-submit")) continue;
    const texts = sent.get(field.name);
    const before = JSON.stringify(read(field));
    if (field.matches("[type=checkbox], [type=radio]")) write(field, { checked: Boolean(texts?.includes(field.value)) });
    else if (field.matches("select")) {
      if (texts || field.multiple) write(field, { chosen: texts ?? [] });
    } else if (texts?.length) {
      const text = texts.shift();
      if (field.value === field.defaultValue) write(field, { text }); // what was typed while this loaded stays
    }
    if (JSON.stringify(read(field)) === before) continue;
    for (const event of ["input", "change"]) field.dispatchEvent(new Event(event, { bubbles: true }));
  }
}

function open(element) {
  for (let fold = element.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
}

// The reason moves into the form, except into a bar of buttons; the field that it is about is focused, or else the reason.
function explain(form, name) {
  const notice = [...document.querySelectorAll("#main .notice--bad")].find((one) => !one.closest("form"));
  const field = name && [...form.elements].find((one) => one.name === name && one.matches(KEPT));
  if (notice) {
    notice.id ||= "refusal";
    notice.tabIndex = -1;
    if (!form.hasAttribute("data-bulk")) form.prepend(notice);
  }
  if (field) {
    open(field);
    field.setAttribute("aria-invalid", "true");
    if (notice) field.setAttribute("aria-describedby", notice.id);
  }
  (field || notice)?.focus();
  notice?.scrollIntoView({ block: "nearest" });
}

export function start() {
  const source = document.getElementById("refused");
  const kept = JSON.parse(source.textContent);
  source.remove();
  // A part of the page may have to be fetched before its form is there.
  function attempt() {
    const form = find(kept);
    if (!form) return;
    document.removeEventListener("htmx:afterSettle", attempt);
    open(form);
    fill(form, kept.values);
    explain(form, kept.field);
  }
  document.addEventListener("htmx:afterSettle", attempt);
  attempt();
}
