// “Add to report” in the head of a panel: a dialog whose form the server makes for this panel as it is shown now.
import { view } from "../chartview.js";

let dialog = null;

function build() {
  const made = document.createElement("dialog");
  made.className = "addreport";
  made.setAttribute("aria-labelledby", "addreport-title");
  const title = Object.assign(document.createElement("h2"), { id: "addreport-title", textContent: "Add to report" });
  made.append(title, Object.assign(document.createElement("div"), { className: "addreport__body" }));
  document.body.append(made);
  return made;
}

export async function addToReport(button) {
  const panel = button.closest("[data-chart]");
  const asked = new URLSearchParams({
    title: panel.querySelector(".chart__title").firstChild.textContent.trim(),
    axis: view.x,
    smoothing: view.smooth,
    group: button.dataset.group ?? "",
  });
  for (const { key } of JSON.parse(panel.dataset.series)) asked.append("key", key);
  for (const { id } of JSON.parse(panel.dataset.runs)) asked.append("run", id);
  dialog ??= build();
  await htmx.ajax("GET", `${button.dataset.addToReport}?${asked}`, { target: dialog.querySelector(".addreport__body"), swap: "innerHTML" });
  dialog.showModal();
}
