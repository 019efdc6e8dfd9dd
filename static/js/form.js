// Live validation of the run form: the server runs the same pydantic model that the trainer loads.
const DELAY = 300; // ms after the last key

export function start() {
  const form = document.querySelector("[data-run-form]");
  const summary = document.getElementById("plan");
  const touched = new Set();
  let timer = null;
  let pending = null;

  const stage = () => form.querySelector('[name="stage"]:checked')?.value;

  // Only the chosen stage is shown, submitted and validated.
  function showStage() {
    for (const section of form.querySelectorAll("[data-stage]")) {
      const active = section.dataset.stage === stage();
      section.hidden = !active;
      section.disabled = !active;
    }
  }

  // A field that is still empty and was not reached yet is not nagged about.
  function showErrors(errors) {
    for (const field of form.querySelectorAll("[data-field]")) {
      const name = field.dataset.field;
      const control = field.querySelector("input, select");
      const messages = touched.has(name) || control?.value ? (errors[name] ?? []) : [];
      field.classList.toggle("field--bad", messages.length > 0);
      field.querySelector(".field__error").textContent = messages.join(" ");
      control?.setAttribute("aria-invalid", String(messages.length > 0));
      if (messages.length) for (const fold of ancestors(field, "details")) fold.open = true;
    }
  }

  async function check() {
    pending?.abort();
    pending = new AbortController();
    try {
      const response = await fetch(form.dataset.check, { method: "POST", body: new FormData(form), signal: pending.signal });
      if (!response.ok) throw new Error(`the server answered ${response.status}`);
      const { errors, plan } = await response.json();
      showErrors(errors);
      summary.innerHTML = plan; // rendered and escaped by the server
      form.dataset.checked = String(Number(form.dataset.checked ?? 0) + 1);
    } catch (error) {
      if (error.name !== "AbortError") summary.dataset.problem = error.message;
    }
  }

  form.addEventListener("input", (event) => {
    if (event.target.name === "stage") showStage();
    touched.add(event.target.name);
    clearTimeout(timer);
    timer = setTimeout(check, DELAY);
  });

  showStage();
}

function* ancestors(element, selector) {
  for (let node = element.parentElement?.closest(selector); node; node = node.parentElement?.closest(selector)) yield node;
}
