// The table of a prompt's rollouts clamps what they did in a turn to a few lines. The button of a row shows it whole, the one
// above the table that of all rows.
function show(row, whole) {
  row.classList.toggle("is-whole", whole);
  row.querySelector("[data-ways]").setAttribute("aria-expanded", String(whole));
}

export function start() {
  document.addEventListener("click", ({ target }) => {
    const button = target.closest("[data-ways]");
    if (!button) return;
    const whole = button.getAttribute("aria-expanded") !== "true";
    if (button.dataset.ways === "row") return show(button.closest("tr"), whole);
    for (const one of document.querySelectorAll("[data-ways='row']")) show(one.closest("tr"), whole);
    button.setAttribute("aria-expanded", String(whole));
  });
}
