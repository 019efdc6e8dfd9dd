// The columns of a table: ticks, in their order, become one parameter of the address, so that a link shows the same columns.

const rowOf = (node) => node.closest("label[draggable]");

/** A column of any metric, ticked. */
function metricRow(name) {
  const row = document.createElement("label");
  row.className = "row";
  row.draggable = true;
  const box = Object.assign(document.createElement("input"), { type: "checkbox", value: `metric:${name}`, checked: true });
  row.append(box, ` ${name}`);
  return row;
}

/** The last ticked row, after which a new column comes. */
const lastTicked = (list) => [...list.querySelectorAll("input:checked")].map(rowOf).at(-1);

function addMetric(list, name) {
  const known = [...list.querySelectorAll("input")].find((box) => box.value === `metric:${name}`);
  if (known) known.checked = true;
  else {
    const last = lastTicked(list);
    if (last) last.after(metricRow(name));
    else list.prepend(metricRow(name));
  }
}

function startMoving(list) {
  let moved = null;
  list.addEventListener("dragstart", (event) => {
    moved = rowOf(event.target);
    event.dataTransfer.effectAllowed = "move";
  });
  list.addEventListener("dragover", (event) => {
    const over = rowOf(event.target);
    if (!moved || !over || over === moved) return;
    event.preventDefault();
    const { top, height } = over.getBoundingClientRect();
    if (event.clientY < top + height / 2) over.before(moved);
    else over.after(moved);
  });
  list.addEventListener("drop", (event) => event.preventDefault());
  list.addEventListener("dragend", () => {
    moved = null;
  });
  list.addEventListener("keydown", (event) => {
    const row = rowOf(event.target);
    if (!event.altKey || !row || !["ArrowUp", "ArrowDown"].includes(event.key)) return;
    event.preventDefault();
    if (event.key === "ArrowUp") row.previousElementSibling?.before(row);
    else row.nextElementSibling?.after(row);
    event.target.focus();
  });
}

export function start() {
  for (const form of document.querySelectorAll("form[data-columns]")) {
    const list = form.querySelector("[data-columns-list]") ?? form;
    startMoving(list);
    const metric = form.querySelector("[data-columns-metric]");
    metric?.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || !metric.value.trim()) return;
      event.preventDefault();
      addMetric(list, metric.value.trim());
      metric.value = "";
    });
    form.addEventListener("formdata", (event) => {
      if (metric?.value.trim()) addMetric(list, metric.value.trim());
      const ticked = [...form.querySelectorAll('input[type="checkbox"]:checked')].map((box) => box.value);
      if (ticked.length) event.formData.set("cols", ticked.join(","));
      else event.formData.delete("cols");
    });
  }
}
