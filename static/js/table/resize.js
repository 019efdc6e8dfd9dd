// Widths of columns: dragging the edge of a column's head changes it, as do Shift with ← and → where the head has the focus; a double
// press, or Shift Home, gives it back. Widths are kept for each list in this browser.
const MIN = 48; // pixels
const STEP = 16; // pixels a key
const WIDE = "tablewrap--wide"; // of a table that needs more room than its card: it scrolls in there

export function start() {
  const key = `columns:${location.pathname}`;
  const room = document.getElementById("rows");
  let widths = {};
  try {
    widths = JSON.parse(localStorage.getItem(key)) ?? {};
  } catch {
    // Storage is blocked or holds something else: columns are as wide as they come.
  }
  const name = (head) => head.textContent.trim();

  function fit() {
    for (const wrap of room.querySelectorAll(".tablewrap")) {
      wrap.classList.remove(WIDE);
      wrap.classList.toggle(WIDE, wrap.scrollWidth > wrap.clientWidth);
    }
  }

  function apply() {
    for (const head of room.querySelectorAll("thead th")) {
      const width = widths[name(head)];
      head.style.width = width ? `${width}px` : "";
      head.style.minWidth = width ? `${width}px` : "";
      head.style.maxWidth = width ? `${width}px` : "";
      if (head.querySelector(".resize") || !name(head)) continue;
      const held = head.querySelector("a") ?? head;
      if (held === head) head.tabIndex = 0;
      held.setAttribute("aria-keyshortcuts", "Shift+ArrowLeft Shift+ArrowRight Shift+Home");
      const edge = Object.assign(document.createElement("i"), { className: "resize", title: "Drag to resize the column, or press Shift with ← or →" });
      edge.setAttribute("aria-hidden", "true");
      head.append(edge);
    }
    fit();
  }

  function keep(head, width) {
    if (width) widths[name(head)] = Math.max(MIN, Math.round(width));
    else delete widths[name(head)];
    apply();
    try {
      localStorage.setItem(key, JSON.stringify(widths));
    } catch {
      // The width lasts for this page.
    }
  }

  const widthOf = (head) => head.getBoundingClientRect().width;

  room.addEventListener("pointerdown", (event) => {
    if (!event.target.matches(".resize")) return;
    event.preventDefault();
    const head = event.target.closest("th");
    const [from, before] = [event.clientX, widthOf(head)];
    const move = (moved) => keep(head, before + moved.clientX - from);
    document.addEventListener("pointermove", move);
    document.addEventListener("pointerup", () => document.removeEventListener("pointermove", move), { once: true });
  });
  room.addEventListener("dblclick", (event) => event.target.matches(".resize") && keep(event.target.closest("th"), null));
  room.addEventListener("keydown", (event) => {
    const head = event.shiftKey && event.target.closest("thead th");
    const way = { ArrowLeft: -STEP, ArrowRight: STEP, Home: 0 }[event.key];
    if (!head || way === undefined || event.target.matches("input")) return;
    event.preventDefault();
    keep(head, way && widthOf(head) + way);
  });
  addEventListener("resize", fit);
  document.addEventListener("htmx:afterSwap", apply);
  apply();
}
