// Ticked rows of a table and what can be done with all of them. Ticks survive the refresh of a live table and fall
// only with their row.
export function start() {
  const bar = document.querySelector("[data-bulk]");
  const rows = document.getElementById("rows");
  const boxes = () => [...rows.querySelectorAll("[data-tick]")];
  const ticked = new Set(boxes().filter((box) => box.checked).map((box) => box.value)); // before this module was there

  function show() {
    const here = boxes();
    for (const value of ticked) if (!here.some((box) => box.value === value)) ticked.delete(value);
    for (const box of here) box.checked = ticked.has(box.value);
    const all = rows.querySelector("[data-tick-all]");
    if (all) {
      all.checked = here.length > 0 && ticked.size === here.length;
      all.indeterminate = ticked.size > 0 && !all.checked;
    }
    bar.hidden = ticked.size === 0;
    document.documentElement.classList.toggle("has-bulk", !bar.hidden); // room below a row that has the focus
    bar.querySelector("[data-bulk-count]").textContent = `${ticked.size} selected`;
    for (const button of bar.querySelectorAll("[data-most]")) button.disabled = ticked.size > Number(button.dataset.most);
    // Offered is what the states of all ticked rows allow.
    const chosen = here.filter((box) => box.checked);
    for (const button of bar.querySelectorAll("[data-action]")) {
      button.hidden = !chosen.every((box) => box.dataset.allows.split(" ").includes(button.dataset.action));
    }
  }

  rows.addEventListener("change", (event) => {
    const { target } = event;
    if (target.matches("[data-tick-all]")) for (const box of boxes()) target.checked ? ticked.add(box.value) : ticked.delete(box.value);
    else if (target.matches("[data-tick]")) target.checked ? ticked.add(target.value) : ticked.delete(target.value);
    show();
  });
  bar.addEventListener("click", (event) => {
    const link = event.target.closest("[data-bulk-go]");
    if (!link) return;
    const url = new URL(link.dataset.bulkGo, location.href);
    for (const value of ticked) url.searchParams.append(bar.dataset.bulk, value);
    location.assign(url);
  });
  // At once, too: what is sent before the new rows have settled carries the ticks.
  for (const moment of ["htmx:afterSwap", "htmx:afterSettle"]) document.addEventListener(moment, show);
  show();
}
