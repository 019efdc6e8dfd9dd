// Dragging of elements by their handle (`.chart__handle`, draggable) to another place among their like. Keyboards have buttons.
// `moved(element, over, box, event)` is called while the element is over another one, whose box is given.
export function onDrag(room, selector, moved, dropped = () => {}) {
  let dragged = null;
  room.addEventListener("dragstart", (event) => {
    dragged = event.target.closest(".chart__handle")?.closest(selector) ?? null;
    if (!dragged) return;
    event.dataTransfer.effectAllowed = "move";
    event.dataTransfer.setDragImage(dragged, 20, 20);
  });
  room.addEventListener("dragover", (event) => {
    const over = dragged && event.target.closest(selector);
    if (!over) return;
    event.preventDefault();
    if (over !== dragged) moved(dragged, over, over.getBoundingClientRect(), event);
  });
  room.addEventListener("drop", (event) => dragged && event.preventDefault());
  room.addEventListener("dragend", () => {
    if (dragged) dropped(dragged);
    dragged = null;
  });
}
