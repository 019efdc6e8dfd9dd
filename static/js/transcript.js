// The turns of a trajectory, a few windows of them at a time: neighbours are fetched when somebody comes near, far ones
// leave the page, and gaps of their height keep the place. Turns have an index; windows have a number, which counts
// what the filter chips leave.
const MAX = 5; // windows in the page
const NEAR = "1500px 0px";
const PIECE = 5; // turns that are put into the page between two frames

const frame = () => new Promise((go) => requestAnimationFrame(() => go()));

export function startTranscript(page, { left, arrived, narrowed, grew, known }) {
  const room = document.getElementById("turns");
  const before = room.querySelector('[data-gap="before"]');
  const after = room.querySelector('[data-gap="after"]');
  const heights = new Map(); // number of the window → pixels it last had
  let only = new URL(location.href).searchParams.get("only") ?? "";
  let busy = Promise.resolve(); // one change of the windows at a time

  const windows = () => [...room.querySelectorAll("[data-window]")];
  const number = (section) => Number(section.dataset.window);
  const total = () => Number(windows()[0]?.dataset.total ?? 0);
  const count = () => Math.ceil(total() / perWindow());
  const turn = (index) => room.querySelector(`[data-turn="${index}"]`);
  const perWindow = () => Number(windows()[0].dataset.per);

  // --- places of what is not in the page ---------------------------------------------------------------------------

  const gap = () => parseFloat(getComputedStyle(room).rowGap) || 0;
  function height(which) {
    const seen = [...heights.values()];
    const mean = seen.length ? seen.reduce((sum, one) => sum + one, 0) / seen.length : 4000;
    return (heights.get(which) ?? mean) + gap();
  }

  function settleGaps() {
    const shown = windows().map(number);
    const first = Math.min(...shown);
    const last = Math.max(...shown);
    let above = 0;
    let below = 0;
    for (let i = 0; i < first; i += 1) above += height(i);
    for (let i = last + 1; i < count(); i += 1) below += height(i);
    for (const [element, pixels] of [[before, above], [after, below]]) {
      element.hidden = pixels === 0;
      element.style.height = pixels ? `${pixels}px` : "";
    }
  }

  function measure() {
    for (const section of windows()) heights.set(number(section), section.getBoundingClientRect().height);
  }

  // --- fetching ----------------------------------------------------------------------------------------------------

  async function ask(query) {
    const parameters = new URLSearchParams(query);
    if (only) parameters.set("only", only);
    const answer = await fetch(`${page.dataset.turns}?${parameters}`);
    if (!answer.ok) throw new Error(`The turns did not come (${answer.status}).`);
    const holder = document.createElement("template");
    holder.innerHTML = await answer.text();
    const overview = holder.content.querySelector("[data-overview]")?.dataset.overview;
    return { section: holder.content.querySelector("[data-window]"), overview: overview && JSON.parse(overview) };
  }

  // Put a window into its place in pieces, so that no frame waits long. The browser's scroll anchoring keeps what is on the
  // screen where it is, here and when the gaps change: above other windows the last piece comes first, since what is on the
  // screen may be the end of this one.
  async function insert({ section }) {
    const turns = [...section.children];
    section.replaceChildren();
    const later = windows().find((one) => number(one) > number(section));
    room.insertBefore(section, later ?? after);
    const pieces = [];
    while (turns.length) pieces.push(turns.splice(0, PIECE));
    while (pieces.length) {
      if (later) section.prepend(...pieces.pop());
      else section.append(...pieces.shift());
      await frame();
    }
    arrived(section);
  }

  function remove(section) {
    heights.set(number(section), section.getBoundingClientRect().height);
    left(section);
    section.remove();
  }

  function evict(kept) {
    const far = windows().sort((a, b) => Math.abs(number(b) - kept) - Math.abs(number(a) - kept));
    while (far.length > MAX) remove(far.shift());
  }

  async function show(which) {
    const shown = windows().map(number);
    if (which < 0 || which >= count() || shown.includes(which)) return;
    const piece = await ask({ at: which * perWindow() });
    const beside = shown.includes(which - 1) || shown.includes(which + 1);
    if (!beside) for (const section of windows()) remove(section);
    await insert(piece);
    measure();
    evict(which);
    settleGaps();
  }

  // Whatever window the middle of the screen lies in, in the gap or at its edge.
  function towards(element) {
    const box = element.getBoundingClientRect();
    const shown = windows().map(number);
    const middle = innerHeight / 2;
    const inside = box.top < 0 && box.bottom > innerHeight;
    if (!inside) return element === before ? Math.min(...shown) - 1 : Math.max(...shown) + 1;
    let top = box.top;
    for (let i = element === before ? 0 : Math.max(...shown) + 1; i < count(); i += 1) {
      top += height(i);
      if (top > middle) return i;
    }
    return count() - 1;
  }

  const change = (work) => (busy = busy.then(work, work));

  const near = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) if (isIntersecting && !target.hidden) approach(target);
  }, { rootMargin: NEAR });

  function approach(target) {
    change(async () => {
      if (target.hidden) return;
      const box = target.getBoundingClientRect();
      if (box.bottom < -1500 || box.top > innerHeight + 1500) return;
      await show(towards(target));
      near.unobserve(target); // asks again whether it is still near
      near.observe(target);
    });
  }

  // --- for the page ------------------------------------------------------------------------------------------------

  const all = () => Number(windows()[0]?.dataset.all ?? page.dataset.total);

  // The turn with this index, fetched if need be; a filter that hides it is lifted.
  function reach(index) {
    return change(async () => {
      if (turn(index)) return;
      if (only) await narrow("");
      const piece = await ask({ turn: index });
      const which = number(piece.section);
      if (!windows().some((one) => Math.abs(number(one) - which) === 1)) for (const section of windows()) remove(section);
      if (!windows().some((one) => number(one) === which)) await insert(piece);
      measure();
      evict(which);
      settleGaps();
    });
  }

  // The turn after or before this one among those that the filter leaves; null at the end.
  async function beside(index, way) {
    const shown = () => [...room.querySelectorAll("[data-turn]")];
    const here = turn(index);
    if (!here) return index + way >= 0 && index + way < all() ? index + way : null;
    const place = shown().indexOf(here) + way;
    if (shown()[place]) return Number(shown()[place].dataset.turn);
    await change(() => show(number(here.closest("[data-window]")) + way));
    const next = shown()[shown().indexOf(here) + way];
    return next && next !== here ? Number(next.dataset.turn) : null;
  }

  async function narrow(names) {
    only = names;
    const url = new URL(location.href);
    if (only) url.searchParams.set("only", only);
    else url.searchParams.delete("only");
    history.replaceState(history.state, "", url);
    const piece = await ask({ at: 0 });
    for (const section of windows()) remove(section);
    heights.clear();
    await insert(piece);
    measure();
    settleGaps();
    const on = new Set(only.split(","));
    for (const chip of page.querySelectorAll("[data-only]")) chip.setAttribute("aria-pressed", String(on.has(chip.dataset.only)));
    narrowed(only);
  }

  // The last window again, for a rollout that grows.
  async function refresh() {
    let ended = false;
    await change(async () => {
      const piece = await ask({ at: Math.max(total() - 1, 0), known: known() });
      if (piece.overview) grew(piece.overview);
      ended = "ended" in piece.section.dataset;
      const which = number(piece.section);
      const old = windows().find((one) => number(one) === which);
      for (const section of windows()) for (const key of ["total", "all"]) section.dataset[key] = piece.section.dataset[key];
      page.dataset.total = piece.section.dataset.all;
      if (old) {
        const fresh = [...piece.section.querySelectorAll("[data-turn]")].filter((one) => !turn(one.dataset.turn));
        old.querySelector(".empty")?.remove();
        old.append(...fresh);
        arrived(old);
      }
      measure();
      settleGaps();
    });
    return ended;
  }

  async function whole(button) {
    const article = button.closest("[data-turn]");
    const answer = await fetch(`${page.dataset.turns}?one=${button.dataset.whole}`);
    if (!answer.ok) return;
    const holder = document.createElement("template");
    holder.innerHTML = await answer.text();
    left(article);
    const fresh = holder.content.querySelector("[data-turn]");
    article.replaceWith(fresh);
    arrived(fresh);
    fresh.focus({ preventScroll: true });
  }

  page.addEventListener("click", (event) => {
    const chip = event.target.closest("[data-only]");
    if (chip) {
      const on = new Set(only ? only.split(",") : []);
      if (!on.delete(chip.dataset.only)) on.add(chip.dataset.only);
      change(() => narrow([...on].join(",")));
    }
    const part = event.target.closest("[data-part]");
    if (part) {
      const shown = part.getAttribute("aria-pressed") !== "true";
      part.setAttribute("aria-pressed", String(shown));
      page.dataset.hide = [...page.querySelectorAll('[data-part][aria-pressed="false"]')].map((one) => one.dataset.part).join(" ");
    }
    const button = event.target.closest("[data-whole]");
    if (button) whole(button);
    if (event.target.closest("[data-gap] a")) {
      event.preventDefault();
      approach(event.target.closest("[data-gap]"));
    }
  });

  measure();
  settleGaps();
  near.observe(before);
  near.observe(after);
  return { all, beside, reach, refresh, turn };
}
