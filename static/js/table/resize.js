// Widths of columns: dragging the edge of a column's head changes it, a double press gives it back. Widths are kept for each list
// in this browser.
const MIN = 48; // pixels

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

  function apply() {
    for (const head of room.querySelectorAll("thead th")) {
      const width = widths[name(head)];
      head.style.width = width ? `${width}px` : "";
      head.style.minWidth = width ? `${width}px` : "";
      head.style.maxWidth = width ? `${width}px` : "";
      if (head.querySelector(".resize") || !name(head)) continue;
      const edge = Object.assign(document.createElement("i"), { className: "resize", title: "Drag to resize the column" });
      edge.setAttribute("aria-hidden", "true");
      head.append(edge);
    }
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

  room.addEventListener("pointerdown", (event) => {
    if (!event.target.matches(".resize")) return;
    event.preventDefault();
    const head = event.target.closest("th");
    const [from, before] = [event.clientX, head.getBoundingClientRect().width];
    const move = (moved) => keep(head, before + moved.clientX - from);
    document.addEventListener("pointermove", move);
    document.addEventListener("pointerup", () => document.removeEventListener("pointermove", move), { once: true });
  });
  room.addEventListener("dblclick", (event) => event.target.matches(".resize") && keep(event.target.closest("th"), null));
  document.addEventListener("htmx:afterSwap", apply);
  apply();
}
