// A live part is fetched anew while somebody fills in a form of it: what they typed, and where they type, is put back.
import { keepFocus } from "./focus.js";

export const KEPT = ":is(input:not([type=hidden], [type=file], [type=password]), textarea, select)[name]";

const edited = (field) => {
  if (field.matches("[type=checkbox], [type=radio]")) return field.checked !== field.defaultChecked;
  if (field.matches("select")) return [...field.options].some((option) => option.selected !== option.defaultSelected);
  return field.value !== field.defaultValue;
};
const nameOf = (form) => form.id || form.getAttribute("aria-label") || form.getAttribute("action");

export function read(field) {
  if (field.matches("[type=checkbox], [type=radio]")) return { value: field.value, checked: field.checked };
  if (field.matches("select")) return { chosen: [...field.selectedOptions].map((option) => option.value) };
  return { text: field.value };
}

export function write(field, { checked, chosen, text }) {
  if (checked !== undefined) field.checked = checked;
  else if (chosen) for (const option of field.options) option.selected = chosen.includes(option.value);
  else field.value = text;
}

function find({ form, name, state }) {
  for (const found of document.forms) {
    if (nameOf(found) !== form) continue;
    for (const field of found.elements) {
      if (field.name === name && field.matches(KEPT) && (state.value === undefined || field.value === state.value)) return field;
    }
  }
  return null;
}

export function startEdits() {
  let kept = [];
  let refocus = () => {};
  document.addEventListener("htmx:beforeSwap", ({ detail }) => {
    kept = [];
    refocus = keepFocus(detail.target);
    if (detail.requestConfig.triggeringEvent?.type !== "oc:refresh" || !detail.shouldSwap) return;
    const focus = document.activeElement;
    for (const field of detail.target.querySelectorAll(KEPT)) {
      if (!field.form || (field !== focus && !edited(field))) continue;
      const cursor = field === focus && field.matches("textarea, [type=text], [type=search], input:not([type])") ? [field.selectionStart, field.selectionEnd] : null;
      kept.push({ form: nameOf(field.form), name: field.name, state: read(field), focused: field === focus, cursor });
    }
  });
  document.addEventListener("htmx:afterSwap", () => {
    const fields = kept;
    kept = [];
    refocus();
    for (const one of fields) {
      const field = find(one);
      if (!field) continue; // the form has gone, and with it what was typed for it
      write(field, one.state);
      if (one.focused) field.focus({ preventScroll: true });
      if (one.focused && one.cursor) field.setSelectionRange(...one.cursor);
    }
  });
}
