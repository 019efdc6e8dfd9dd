// Entry of every page: always-on behaviour, then the modules that this page's elements ask for.
import { relative } from "./format.js";
import { startLive } from "./live.js";
import { startTheme } from "./theme.js";

startTheme();
startLive();

relative();
setInterval(relative, 10_000);
document.addEventListener("htmx:afterSettle", (event) => relative(event.target.parentNode ?? document));

const pages = {
  "[data-chart]": () => import("./chart.js"),
  "[data-trajectory]": () => import("./trajectory.js"),
  "[data-run-form]": () => import("./form.js"),
  "[data-api-docs]": () => import("./apidocs.js"),
};
for (const [selector, load] of Object.entries(pages)) {
  if (document.querySelector(selector)) load().then((module) => module.start());
}

// A menu closes when the click or the focus goes elsewhere, or on Escape.
document.addEventListener("click", (event) => {
  for (const menu of document.querySelectorAll("details.menu[open]")) if (!menu.contains(event.target)) menu.open = false;
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") for (const menu of document.querySelectorAll("details.menu[open]")) menu.open = false;
});

// Forms that ask before they act, and selects that submit their form.
document.addEventListener("submit", (event) => {
  const question = event.target.dataset.confirm;
  if (question && !window.confirm(question)) event.preventDefault();
});
document.addEventListener("change", (event) => {
  if (event.target.matches("[data-submit]")) event.target.form.requestSubmit();
});

// Filters: empty fields stay out of the URL.
document.addEventListener("formdata", (event) => {
  if (!event.target.matches("form[data-filters]")) return;
  for (const [name, value] of [...event.formData.entries()]) if (value === "") event.formData.delete(name);
});

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const source = document.getElementById(button.dataset.copy);
  await navigator.clipboard.writeText(source.textContent.trim());
  const before = button.textContent;
  button.textContent = "Copied";
  setTimeout(() => (button.textContent = before), 1500);
});
