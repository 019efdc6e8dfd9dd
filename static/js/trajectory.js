// Keys and deep links of the trajectory page. `#t=3` is turn 3; the hash follows the current turn.
export function start() {
  const page = document.querySelector("[data-trajectory]");
  const turns = () => [...page.querySelectorAll("[data-turn]")];
  const help = document.getElementById("key-help");
  const counter = document.getElementById("turn-counter");
  let current = -1;

  function mark(index) {
    const all = turns();
    current = Math.max(0, Math.min(index, all.length - 1));
    for (const [i, turn] of all.entries()) turn.classList.toggle("is-current", i === current);
    for (const link of page.querySelectorAll(".outline a")) {
      if (link.hash === `#t=${current}`) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
    if (counter) counter.textContent = `turn ${current + 1} of ${all.length}`;
    return all[current];
  }

  function go(index) {
    const turn = mark(index);
    if (!turn) return;
    history.replaceState(null, "", `#t=${current}`);
    turn.scrollIntoView({ block: "start" });
    turn.focus({ preventScroll: true });
  }

  function fromHash() {
    const match = /^#t=(\d+)/.exec(location.hash);
    if (match) go(Number(match[1]));
  }

  function fold(open) {
    for (const call of page.querySelectorAll("details.call")) call.open = open;
  }

  async function copyLink(button) {
    const url = new URL(location.href);
    url.hash = `t=${Math.max(current, 0)}`;
    await navigator.clipboard.writeText(url.href);
    const target = button ?? page.querySelector("[data-copy-link]");
    const before = target.textContent;
    target.textContent = "Link copied";
    setTimeout(() => (target.textContent = before), 1500);
  }

  const follow = (rel) => document.querySelector(`a[rel="${rel}"]`)?.click();
  const keys = {
    j: () => go(current + 1),
    k: () => go(current - 1),
    e: () => fold(true),
    x: () => fold(false),
    y: () => copyLink(),
    "?": () => (help.open ? help.close() : help.showModal()),
    ArrowLeft: () => follow("prev"),
    ArrowRight: () => follow("next"),
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input, textarea, select")) return;
    const scrollable = event.key.startsWith("Arrow") && event.target.closest("pre");
    if (scrollable || (help.open && event.key !== "?")) return;
    const action = keys[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });
  page.addEventListener("click", (event) => {
    const link = event.target.closest('a[href^="#t="]');
    if (link) {
      event.preventDefault();
      go(Number(link.hash.slice(3)));
      return;
    }
    if (event.target.closest("[data-copy-link]")) copyLink(event.target.closest("[data-copy-link]"));
    if (event.target.closest("[data-fold]")) fold(event.target.closest("[data-fold]").dataset.fold === "open");
    if (event.target.closest("[data-key-help]")) help.showModal();
  });
  window.addEventListener("hashchange", fromHash);
  fromHash();
  page.dataset.ready = "";
}
