// The handle at the corner of a panel: dragged, or by arrow keys, it changes width and height in steps of the grid.
const ROW = 8.5; // rem by which a plot grows each step (charts.css)
const clamp = (value, max) => Math.max(1, Math.min(max, value));

export function startResize(room, { spec, resize, max }) {
  let held = null; // {panel, x, y, size, height, column, row}

  const set = (panel, size, height) => {
    const now = spec(panel);
    if (size !== now.size || height !== now.height) resize(panel, { size, height });
  };

  room.addEventListener("pointerdown", (event) => {
    const handle = event.target.closest(".chart__resize");
    if (!handle || event.button !== 0) return;
    event.preventDefault();
    const panel = handle.closest("[data-spec]");
    const { size, height } = spec(panel);
    const column = panel.getBoundingClientRect().width / size;
    const row = ROW * parseFloat(getComputedStyle(document.documentElement).fontSize);
    held = { panel, size, height, column, row, x: event.clientX, y: event.clientY };
    handle.setPointerCapture(event.pointerId);
    handle.focus();
  });
  room.addEventListener("pointermove", ({ clientX, clientY }) => {
    if (!held) return;
    const { panel, size, height, column, row, x, y } = held;
    set(panel, clamp(size + Math.round((clientX - x) / column), max), clamp(height + Math.round((clientY - y) / row), max));
  });
  for (const end of ["pointerup", "pointercancel"]) room.addEventListener(end, () => (held = null));
  room.addEventListener("keydown", (event) => {
    const panel = event.target.closest(".chart__resize")?.closest("[data-spec]");
    const [wider, higher] = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key] ?? [];
    if (!panel || wider === undefined) return;
    event.preventDefault();
    const { size, height } = spec(panel);
    set(panel, clamp(size + wider, max), clamp(height + higher, max));
  });
}
