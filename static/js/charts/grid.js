// Editing of the panel grid: drag or move panels, change their width and height, pin and remove them, name their section. What is on
// the page when Save is pressed is what is kept; nothing is before that.
import { onDrag } from "../drag.js";
import { startResize } from "./resize.js";

const SIZES = 3;

export function start() {
  const bar = document.querySelector("[data-grid]");
  const room = document.querySelector("[data-grid-room]");
  const edit = bar.querySelector("[data-grid-edit]");
  const panels = () => [...room.querySelectorAll("[data-spec]")];
  let editing = false;

  const spec = (panel) => JSON.parse(panel.dataset.spec);
  const change = (panel, changes) => (panel.dataset.spec = JSON.stringify({ ...spec(panel), ...changes }));

  function show() {
    edit.setAttribute("aria-pressed", String(editing));
    bar.querySelector(".gridbar__tools").hidden = !editing;
    for (const tools of room.querySelectorAll(".chart__edit, .chart__resize")) tools.hidden = !editing;
  }

  function resize(panel, { size, height }) {
    for (let n = 2; n <= SIZES; n += 1) {
      panel.classList.toggle(`chart--${n}`, n === size);
      panel.classList.toggle(`chart--high-${n}`, n === height);
    }
    panel.querySelector("[data-size]").textContent = `${size}×`;
    change(panel, { size, height });
    window.dispatchEvent(new Event("resize")); // what tells Plotly
  }

  // Pinned panels first, then section by section in the order of their first panels, as the server shows them; each section under
  // its heading.
  function arrange() {
    const focus = document.activeElement;
    const all = panels();
    const sections = [...new Set(all.map((panel) => spec(panel).section))];
    const rank = (panel) => (spec(panel).pinned ? -1 : sections.indexOf(spec(panel).section));
    const order = all.map((panel, at) => ({ panel, at, rank: rank(panel) })).sort((a, b) => a.rank - b.rank || a.at - b.at);
    if (order.some(({ panel }, at) => panel !== all[at])) room.append(...order.map(({ panel }) => panel));
    for (const heading of room.querySelectorAll(".charts__section")) heading.remove();
    let now = "";
    for (const { panel } of order) {
      const section = spec(panel).pinned ? "" : spec(panel).section;
      if (section && section !== now) {
        const heading = Object.assign(document.createElement("h3"), { className: "charts__section", textContent: section });
        panel.before(heading);
      }
      now = section;
    }
    if (focus !== document.activeElement && room.contains(focus)) focus.focus();
  }

  // A panel that comes beside one of another section, or beside a pinned one, belongs there too.
  function join(panel, other) {
    const { pinned, section } = spec(other);
    change(panel, { pinned, section });
    panel.querySelector(".chart__section").value = section;
    panel.querySelector("[data-pin]").setAttribute("aria-pressed", String(pinned));
  }

  function move(panel, way) {
    const all = panels();
    const other = all[all.indexOf(panel) + way];
    if (!other) return;
    const [mine, theirs] = [spec(panel), spec(other)];
    if (mine.pinned !== theirs.pinned || (!mine.pinned && mine.section !== theirs.section)) join(panel, other);
    else if (way > 0) other.after(panel);
    else other.before(panel);
    arrange();
  }

  edit.addEventListener("click", () => {
    editing = !editing;
    show();
  });
  room.addEventListener("click", (event) => {
    const button = event.target.closest(".chart__edit button");
    const panel = button?.closest("[data-spec]");
    if (!panel) return;
    const now = spec(panel);
    if (button.dataset.move) {
      move(panel, Number(button.dataset.move));
      button.focus();
    } else if ("size" in button.dataset) resize(panel, { ...now, size: (now.size % SIZES) + 1 });
    else if ("pin" in button.dataset) {
      button.setAttribute("aria-pressed", String(!now.pinned));
      change(panel, { pinned: !now.pinned });
      arrange();
    } else if ("remove" in button.dataset) {
      panel.remove();
      arrange();
    }
  });
  room.addEventListener("change", (event) => {
    if (!event.target.matches(".chart__section")) return;
    change(event.target.closest("[data-spec]"), { section: event.target.value.trim() });
    arrange();
  });
  startResize(room, { spec, resize, max: SIZES });
  onDrag(
    room,
    "[data-spec]",
    (panel, over, { left, width }, { clientX }) => {
      if (clientX > left + width / 2) over.after(panel);
      else over.before(panel);
      join(panel, over);
    },
    arrange,
  );

  const add = bar.querySelector("[data-grid-add]");
  add.addEventListener("htmx:afterRequest", ({ detail }) => {
    if (detail.xhr.status !== 200) return; // refused: the reason is shown, and what was typed stays
    add.reset();
    add.querySelector("[role=alert]").textContent = "";
  });
  document.addEventListener("htmx:afterSettle", ({ detail }) => {
    show();
    if (detail.target !== room) return;
    const added = panels().at(-1);
    arrange();
    added.scrollIntoView({ block: "nearest" });
  });
  bar.querySelector("[data-grid-save]").addEventListener("htmx:configRequest", ({ detail }) => {
    detail.parameters.panels = JSON.stringify(panels().map(spec));
  });
}
