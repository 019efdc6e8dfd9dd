// The editor of a queue's questions. The page's fields are what counts; the JSON beside them follows each change, is what is
// sent, and can be pasted into. Without this module the JSON alone is there.

const SLUG = /[^a-z0-9]+/g;
const slug = (text) => text.toLowerCase().replace(SLUG, "_").replace(/^[^a-z]+|_+$/g, "").slice(0, 40);

export function start() {
  const editor = document.querySelector("[data-question-editor]");
  const json = editor.querySelector("[data-json]");
  const problem = editor.querySelector("[data-problem]");
  const room = editor.querySelector("[data-question-list]");
  const templates = { question: editor.querySelector("[data-question-template]"), option: editor.querySelector("[data-option-template]") };

  const field = (place, name) => place.querySelector(`:scope > [data-of="${name}"], :scope > :not([data-options]) [data-of="${name}"]`);
  const questions = () => [...room.children];
  const options = (question) => [...question.querySelector("[data-options]").children];

  // --- from data to fields and back -----------------------------------------------------------------------------

  function put(place, values) {
    for (const [name, value] of Object.entries(values)) {
      const input = field(place, name);
      if (!input) continue;
      if (input.type === "checkbox") input.checked = Boolean(value);
      else input.value = value ?? "";
      if (["id", "value"].includes(name) && value) input.dataset.own = "";
    }
  }

  function made(kind, values) {
    const place = templates[kind].content.firstElementChild.cloneNode(true);
    put(place, values);
    if (kind === "question") {
      for (const option of values.options ?? []) place.querySelector("[data-options]").append(made("option", option));
      show(place);
    }
    return place;
  }

  // Only the fields of its kind are shown.
  function show(question) {
    const kind = field(question, "kind").value;
    for (const part of question.querySelectorAll("[data-kind]")) part.hidden = !part.dataset.kind.split(" ").includes(kind);
    const room_ = question.querySelector("[data-options]");
    if (["choice", "flags"].includes(kind) && !room_.children.length) room_.append(made("option", {}), made("option", {}));
  }

  function read(question) {
    const get = (name) => field(question, name).value.trim();
    const kind = get("kind");
    const found = { kind, id: get("id"), text: get("text"), required: field(question, "required").checked };
    if (kind === "scale") return { ...found, low: Number(get("low")), high: Number(get("high")), low_text: get("low_text"), high_text: get("high_text") };
    if (kind === "text") return { ...found, max_length: Number(get("max_length")) };
    const listed = options(question).map((one) => Object.fromEntries(["value", "text", "key"].map((name) => [name, field(one, name).value.trim()])));
    return { ...found, options: listed };
  }

  function changed() {
    for (const [index, question] of questions().entries()) {
      question.querySelector("[data-number]").textContent = `Question ${index + 1}`;
      for (const [place, option] of options(question).entries()) field(option, "key").placeholder = place + 1;
    }
    json.value = JSON.stringify({ questions: questions().map(read) }, null, 1);
    problem.textContent = "";
  }

  function load() {
    let data;
    try {
      data = JSON.parse(json.value);
      data = Array.isArray(data) ? data : data.questions;
      if (!Array.isArray(data)) throw new Error("a list of questions is needed");
    } catch (error) {
      problem.textContent = `No questions: ${error.message}`;
      return;
    }
    room.replaceChildren(...data.map((one) => made("question", { low: 1, high: 5, max_length: 2000, required: ["choice", "scale"].includes(one.kind), ...one })));
    const given = json.value; // kept as it was pasted until something is changed
    changed();
    json.value = given;
  }

  // --- what a person does ---------------------------------------------------------------------------------------

  function move(place, way, button) {
    const other = way < 0 ? place.previousElementSibling : place.nextElementSibling;
    if (!other) return;
    if (way < 0) other.before(place);
    else other.after(place);
    button.focus();
  }

  function remove(place) {
    const beside = place.nextElementSibling ?? place.previousElementSibling;
    const after = beside?.querySelector("input") ?? place.parentElement.parentElement.querySelector("[data-add-option]") ?? editor.querySelector("[data-add-question]");
    place.remove();
    after?.focus();
  }

  function add(kind, list, values) {
    const place = list.appendChild(made(kind, values));
    place.querySelector('[data-of="text"]').focus();
  }

  editor.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    const place = button?.closest("[data-option], [data-question]");
    if (!button) return;
    if ("move" in button.dataset) move(place, Number(button.dataset.move), button);
    else if ("remove" in button.dataset) remove(place);
    else if ("addOption" in button.dataset) add("option", place.querySelector("[data-options]"), {});
    else if ("addQuestion" in button.dataset) add("question", room, { kind: "choice", required: true, low: 1, high: 5, max_length: 2000 });
    else return;
    changed();
  });

  editor.addEventListener("input", (event) => {
    const { target } = event;
    if (target === json) return;
    const place = target.closest("[data-option], [data-question]");
    if (!place) return;
    // A name in the data follows the words until somebody writes one.
    const name = field(place, place.matches("[data-option]") ? "value" : "id");
    if (target === name) name.dataset.own = "";
    else if (target.dataset.of === "text" && !("own" in name.dataset)) name.value = slug(target.value);
    if (target.dataset.of === "kind") {
      show(place);
      field(place, "required").checked = ["choice", "scale"].includes(target.value);
    }
    changed();
  });
  json.addEventListener("change", load);

  // Alt and an arrow move the question or option that the focus is in.
  editor.addEventListener("keydown", (event) => {
    if (!event.altKey || !["ArrowUp", "ArrowDown"].includes(event.key)) return;
    const place = event.target.closest("[data-option], [data-question]");
    if (!place) return;
    event.preventDefault();
    move(place, event.key === "ArrowUp" ? -1 : 1, event.target);
    changed();
  });

  load();
  editor.querySelector("[data-editor-parts]").hidden = false;
  editor.querySelector("details").open = false;
  editor.dataset.ready = "";
}
