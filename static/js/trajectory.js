// The trajectory page: keys, search and links over the transcript (`transcript.js`) and the token lens (`lens.js`).
// `#t=3` is turn 3 and follows the current turn, `&tok=340` a token of it (`#s=0&tok=340`: of a segment); `?q=` is the
// search, `?only=` the filter chips.
import { startAnnotations } from "./annotate.js";
import { copy } from "./copy.js";
import { number } from "./format.js";
import { toast } from "./frame/toast.js";
import { startLens } from "./lens.js";
import { startOutline } from "./outline.js";
import { settle } from "./partial.js";
import { startTranscript } from "./transcript.js";

const MAX_RANGES = 2000; // highlighted hits

export function start() {
  const page = document.querySelector("[data-trajectory]");
  const help = document.getElementById("key-help");
  const counter = document.getElementById("turn-counter");
  const search = document.getElementById("search");
  const jump = document.getElementById("jump");
  let current = -1;
  let hit = -1;
  let chosen = null; // the selected tokens: their lens and their range there
  let place = ""; // of the current turn or token, as the address has it

  const lens = startLens(page, {
    selected(what, at, range) {
      chosen = { what, range };
      place = `${what.replace("?turn=", "t=").replace("?segment=", "s=")}&tok=${at}`;
      history.replaceState(null, "", `#${place}`);
    },
  });
  const outline = startOutline(page, { go: (index) => go(index), onScreen });
  const transcript = startTranscript(page, {
    left: (section) => lens.forget(section),
    arrived() {
      mark();
      highlight();
      annotations.place();
    },
    narrowed: outline.narrow,
    grew: outline.grow,
    known: outline.known,
  });

  function onScreen(index) {
    const box = transcript.turn(index)?.getBoundingClientRect();
    return Boolean(box) && box.bottom > 140 && box.top < innerHeight;
  }

  const annotations = startAnnotations(page, {
    current: () => (current < 0 ? null : current),
    // The selected tokens as a range within their turn.
    token(turn) {
      if (chosen?.what !== `?turn=${turn}`) return null;
      const start = Number(transcript.turn(turn)?.dataset.facts.trim().split(/\s+/)[2]);
      return chosen.range[0] >= start ? chosen.range.map((at) => at - start) : null;
    },
  });

  // --- the current turn ---------------------------------------------------------------------------------------------

  function mark() {
    for (const element of page.querySelectorAll(".turn.is-current")) element.classList.remove("is-current");
    if (current < 0) return;
    transcript.turn(current)?.classList.add("is-current");
    if (counter) counter.textContent = `turn ${current + 1} of ${transcript.all()}`;
    inspect();
  }

  // Numbers of the current turn, beside the transcript.
  function inspect() {
    const turn = transcript.turn(current);
    const card = document.getElementById("this-turn");
    if (!turn || !card) return;
    const [tokens, thinking, start, segment, generate, tools] = turn.dataset.facts.split(/\s+/).map(Number);
    const rows = [
      ["Turn", `${current + 1}`],
      ["Sampled", `${tokens} tokens${thinking ? `, ${thinking} of them thinking` : ""}`],
      ["At", `token ${start} of segment ${segment}`],
      ["Generation", `${number(generate, "s")}${generate ? `, ${number(tokens / generate)} tokens/s` : ""}`],
      ["Tools", number(tools, "s")],
    ];
    if (turn.dataset.snapshot) rows.push(["Snapshot", turn.dataset.snapshot]);
    card.querySelector("dl").replaceChildren(
      ...rows.flatMap(([name, value]) => {
        const [term, text] = [document.createElement("dt"), document.createElement("dd")];
        term.textContent = name;
        text.textContent = value;
        return [term, text];
      }),
    );
    card.hidden = false;
  }

  async function go(index) {
    if (!transcript.all()) return;
    current = Math.max(0, Math.min(index, transcript.all() - 1));
    place = `t=${current}`;
    history.replaceState(null, "", `#${place}`);
    await transcript.reach(current);
    mark();
    const element = transcript.turn(current);
    element?.scrollIntoView({ block: "start" });
    element?.focus({ preventScroll: true });
    outline.move(current, { gone: true });
  }

  async function step(way) {
    const next = current < 0 ? Number(page.querySelector("[data-turn]")?.dataset.turn ?? 0) : await transcript.beside(current, way);
    if (next !== null) await go(next);
  }

  // The next turn with an error, a finding or a summary.
  async function stepMarked(way) {
    const next = outline.marked(current < 0 && way > 0 ? -1 : Math.max(current, 0), way);
    if (next !== null) await go(next);
  }

  // Where the middle of the screen is, for the overview; asked a few times a second at most.
  let waits = 0;
  addEventListener("scroll", () => {
    waits ||= setTimeout(() => {
      waits = 0;
      const box = page.querySelector("#turns").getBoundingClientRect();
      const turn = document.elementFromPoint(box.left + box.width / 2, innerHeight / 2)?.closest("[data-turn]");
      if (turn) outline.move(Number(turn.dataset.turn));
    }, 150);
  }, { passive: true });

  async function fromHash() {
    if (location.hash === `#${place}`) return;
    const [, kind, index, token] = /^#([ts])=(\d+)(?:&tok=(\d+))?$/.exec(location.hash) ?? [];
    if (kind === "t") await go(Number(index));
    if (token) await lens.reveal(`?${kind === "t" ? "turn" : "segment"}=${index}`, Number(token));
  }

  function fold(open) {
    for (const call of page.querySelectorAll(".turn details.call")) call.open = open;
  }

  // The token lens of the current turn; opened by key, it takes the focus.
  async function tokens() {
    const button = transcript.turn(Math.max(current, 0))?.querySelector("[data-lens-open]");
    if (!button) return;
    await lens.toggle(button);
    document.getElementById(button.dataset.lensIn).querySelector(".tokens")?.focus();
  }

  async function copyLink() {
    const url = new URL(location.href);
    url.hash = place || "t=0";
    await copy(url.href);
    toast("Link copied");
  }

  // --- search: the server looks through everything, the browser marks what is loaded --------------------------------

  function highlight() {
    if (!CSS.highlights) return;
    CSS.highlights.delete("hit");
    const wanted = search.value.toLowerCase();
    if (!wanted) return;
    const ranges = [];
    for (const part of document.querySelectorAll("#opening, #turns, #patch, #report")) {
      const texts = document.createTreeWalker(part, NodeFilter.SHOW_TEXT);
      while (texts.nextNode() && ranges.length < MAX_RANGES) {
        const text = texts.currentNode.textContent.toLowerCase();
        for (let from = text.indexOf(wanted); from >= 0; from = text.indexOf(wanted, from + wanted.length)) {
          ranges.push(new StaticRange({ startContainer: texts.currentNode, startOffset: from, endContainer: texts.currentNode, endOffset: from + wanted.length }));
        }
      }
    }
    CSS.highlights.set("hit", new Highlight(...ranges));
  }

  function searched() {
    hit = -1;
    const url = new URL(location.href);
    if (search.value) url.searchParams.set("q", search.value);
    else url.searchParams.delete("q");
    history.replaceState(null, "", url);
    highlight();
  }

  async function goHit(way) {
    const hits = [...page.querySelectorAll("[data-hit]")];
    if (!hits.length) return;
    hit = (hit + way + hits.length) % hits.length;
    for (const [index, link] of hits.entries()) link.toggleAttribute("aria-current", index === hit);
    hits[hit].scrollIntoView({ block: "nearest" });
    await follow(hits[hit].hash);
  }

  // A place of the page: a turn, or a section by its id.
  async function follow(hash) {
    const match = /^#t=(\d+)/.exec(hash);
    if (match) return go(Number(match[1]));
    document.getElementById(hash.slice(1))?.scrollIntoView({ block: "start" });
  }

  // --- events -------------------------------------------------------------------------------------------------------

  const sibling = (rel) => document.querySelector(`a[rel="${rel}"]`)?.click();
  const keys = {
    j: () => step(1),
    k: () => step(-1),
    e: () => fold(true),
    x: () => fold(false),
    n: () => goHit(1),
    p: () => goHit(-1),
    "]": () => stepMarked(1),
    "[": () => stepMarked(-1),
    g: () => jump.focus(),
    t: () => tokens(),
    "/": () => search.focus(),
    y: () => copyLink(),
    ...annotations.keys,
    "?": () => (help.open ? help.close() : help.showModal()),
    f: () => document.querySelector("[data-next-failure]")?.click(),
    ArrowLeft: () => sibling("prev"),
    ArrowRight: () => sibling("next"),
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input, textarea, select")) {
      if (event.key === "Escape") event.target.blur();
      if (event.key === "Enter" && event.target === search) goHit(1);
      return;
    }
    const scrollable = event.key.startsWith("Arrow") && event.target.closest("pre");
    if (scrollable || (help.open && event.key !== "?")) return;
    const action = keys[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });
  page.addEventListener("click", (event) => {
    const link = event.target.closest('a[href^="#t="], a[data-hit]');
    if (link) {
      event.preventDefault();
      if (link.matches("[data-hit]")) hit = [...page.querySelectorAll("[data-hit]")].indexOf(link);
      follow(link.hash);
      return;
    }
    if (event.target.closest("[data-copy-link]")) copyLink();
    if (event.target.closest("[data-fold]")) fold(event.target.closest("[data-fold]").dataset.fold === "open");
    if (event.target.closest("[data-key-help]")) help.showModal();
  });
  page.querySelector("[data-jump]").addEventListener("submit", (event) => {
    event.preventDefault();
    if (jump.value) go(Number(jump.value) - 1);
  });
  document.addEventListener("htmx:afterSwap", (event) => {
    if (event.detail.target.id === "hits") searched();
  });

  // A rollout that runs: what came since is put at the end; when it has ended, the page is loaded anew at its place.
  async function grown() {
    const ended = await transcript.refresh();
    if (ended) return location.reload();
    settle(transcript.all());
    const last = page.querySelector("#partial [data-open]") ?? page.querySelector("#turns [data-turn]:last-child");
    if (page.querySelector("[data-follow]").checked) last?.scrollIntoView({ block: "end" });
  }
  const growing = page.querySelector("[data-growing]");
  growing?.addEventListener("oc:refresh", grown);
  if (growing) grown(); // what was told before this module was there

  // Until here a press would be lost, so the page comes with these buttons disabled.
  for (const button of page.querySelectorAll("[data-lens-open]:disabled")) button.disabled = false;
  window.addEventListener("hashchange", fromHash);
  fromHash();
  page.dataset.ready = "";
}
