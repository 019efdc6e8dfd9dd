// Editing of the panel grid: drag or move panels, change their width, pin and remove them, name their section. What is on the page
// when Save is pressed is what is kept; nothing is before that.
const SIZES = 3;

export function start() {
  const bar = document.querySelector("[data-grid]");
  const room = document.querySelector("[data-grid-room]");
  const edit = bar.querySelector("[data-grid-edit]");
  const panels = () => [...room.querySelectorAll("[data-spec]")];
  let editing = false;
  let dragged = null;

  const spec = (panel) => JSON.parse(panel.dataset.spec);
  const change = (panel, changes) => (panel.dataset.spec = JSON.stringify({ ...spec(panel), ...changes }));

  function show() {
    edit.setAttribute("aria-pressed", String(editing));
    bar.querySelector(".gridbar__tools").hidden = !editing;
    for (const tools of room.querySelectorAll(".chart__edit")) tools.hidden = !editing;
  }

  function size(panel, to) {
    for (let n = 2; n <= SIZES; n += 1) panel.classList.toggle(`chart--${n}`, n === to);
    panel.querySelector("[data-size]").textContent = `${to}×`;
    change(panel, { size: to });
  }

  function move(panel, way) {
    const all = panels();
    const other = all[all.indexOf(panel) + way];
    if (!other) return;
    if (way > 0) other.after(panel);
    else other.before(panel);
  }

  edit.addEventListener("click", () => {
    editing = !editing;
    show();
  });
  room.addEventListener("click", (event) => {
    const button = event.target.closest(".chart__edit button");
    const panel = button?.closest("[data-spec]");
    if (!panel) return;
    if (button.dataset.move) {
      move(panel, Number(button.dataset.move));
      button.focus();
    } else if ("size" in button.dataset) size(panel, (spec(panel).size % SIZES) + 1);
    else if ("pin" in button.dataset) {
      const pinned = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(pinned));
      change(panel, { pinned });
    } else if ("remove" in button.dataset) panel.remove();
  });
  room.addEventListener("input", (event) => {
    if (event.target.matches(".chart__section")) change(event.target.closest("[data-spec]"), { section: event.target.value.trim() });
  });

  room.addEventListener("dragstart", (event) => {
    dragged = event.target.closest(".chart__handle")?.closest("[data-spec]") ?? null;
    if (!dragged) return;
    event.dataTransfer.effectAllowed = "move";
    event.dataTransfer.setDragImage(dragged, 20, 20);
  });
  room.addEventListener("dragover", (event) => {
    const over = dragged && event.target.closest("[data-spec]");
    if (!over || over === dragged) return;
    event.preventDefault();
    const box = over.getBoundingClientRect();
    if (event.clientX > box.left + box.width / 2) over.after(dragged);
    else over.before(dragged);
  });
  room.addEventListener("dragend", () => (dragged = null));

  document.addEventListener("htmx:afterSettle", show); // a panel that was added
  bar.querySelector("[data-grid-add]").addEventListener("htmx:afterRequest", (event) => event.detail.successful && event.target.reset());
  bar.querySelector("[data-grid-save]").addEventListener("formdata", (event) => {
    event.formData.set("panels", JSON.stringify(panels().map(spec)));
    const reset = event.target.querySelector("[name='reset']");
    if (event.formData.has("reset")) event.formData.set("scope", reset.dataset.scope);
  });
}
