// Sweep chips: a setting with several values. What is swept stands in the text field of the sweep, one line a setting, which the
// server reads; this module writes it and shows it at the settings.
const LINE = /^\s*([\w.]+)\s*:\s*(.*?)\s*$/;

export function startSweep(form) {
  const text = form.querySelector("#sweep");
  const mode = form.querySelector("[name='sweep_mode']");
  const [preview, start] = [form.querySelector("[data-preview]"), form.querySelector("button[value='start']")];
  const rows = new Map(); // path of a setting → its chips

  const parse = () => {
    const found = new Map();
    for (const line of text.value.split("\n")) {
      const [, path, values] = LINE.exec(line) ?? [];
      if (path) found.set(path, values.split(",").map((value) => value.trim()).filter(Boolean));
    }
    return found;
  };

  function write(path, values) {
    const all = parse();
    if (values.length) all.set(path, values);
    else all.delete(path);
    text.value = [...all].map(([name, list]) => `${name}: ${list.join(", ")}`).join("\n");
    show();
  }

  function chip(path, value) {
    const made = Object.assign(document.createElement("button"), { type: "button", className: "chip", textContent: `${value} ✕` });
    made.setAttribute("aria-label", `Remove ${value}`);
    made.addEventListener("click", () => {
      write(path, parse().get(path).filter((one) => one !== value));
      rows.get(path)?.querySelector("input").focus();
    });
    return made;
  }

  // The row below a setting: its values, and a field for the next.
  function row(field) {
    const path = field.dataset.sweep;
    const made = Object.assign(document.createElement("div"), { className: "sweep" });
    const label = field.querySelector("label").textContent.trim();
    const input = Object.assign(document.createElement("input"), { type: "text", placeholder: "value, value", autocomplete: "off" });
    input.setAttribute("aria-label", `Values of ${label} to sweep`);
    const add = () => {
      const values = input.value.split(",").map((value) => value.trim()).filter(Boolean);
      input.value = "";
      if (values.length) write(path, [...new Set([...(parse().get(path) ?? []), ...values])]);
    };
    input.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== ",") return;
      event.preventDefault();
      add();
    });
    input.addEventListener("change", add);
    made.append(Object.assign(document.createElement("span"), { className: "chips" }), input);
    field.querySelector(".field__help").before(made);
    rows.set(path, made);
    return made;
  }

  function open(field) {
    const path = field.dataset.sweep;
    if (!rows.has(path)) {
      const control = field.querySelector("input, select");
      row(field);
      if (control.type !== "checkbox" && control.value && !parse().has(path)) write(path, [control.value]);
      else show();
    }
    rows.get(path).querySelector("input").focus();
  }

  function show() {
    const all = parse();
    for (const field of form.querySelectorAll("[data-sweep]")) {
      if (field.closest("[data-stage]")?.disabled) continue;
      const values = all.get(field.dataset.sweep) ?? [];
      field.classList.toggle("field--swept", values.length > 0);
      if (values.length && !rows.has(field.dataset.sweep)) row(field);
      rows.get(field.dataset.sweep)?.querySelector(".chips").replaceChildren(...values.map((value) => chip(field.dataset.sweep, value)));
    }
    const counts = [...all.values()].map((values) => values.length).filter(Boolean);
    const total = mode.value === "grid" ? counts.reduce((product, count) => product * count, 1) : Math.max(0, ...counts);
    preview.hidden = !counts.length;
    start.hidden = counts.length > 0; // several runs are looked at before they start
    preview.textContent = `Preview ${total} run${total === 1 ? "" : "s"}`;
    preview.classList.toggle("button--primary", counts.length > 0);
  }

  for (const field of form.querySelectorAll("[data-sweep]")) {
    const button = Object.assign(document.createElement("button"), { type: "button", className: "field__sweep", textContent: "Sweep" });
    button.setAttribute("aria-label", `Sweep ${field.querySelector("label").textContent.trim()}`);
    button.addEventListener("click", () => open(field));
    field.querySelector("label").after(button);
  }
  text.addEventListener("input", show);
  mode.addEventListener("change", show);
  form.addEventListener("change", ({ target }) => target.name === "stage" && show());
  show();
}
