// The token lens: the tokens of a turn or a segment, coloured by one of their numbers, fetched a page at a time.
// Each lens is a list box: arrows move through it, the line above says the numbers of the token under focus or pointer.
import { number } from "./format.js";

const VERSIONS = 6; // colours
const sign = (value) => (value > 0 ? `+${number(value)}` : number(value).replace("-", "−"));
const step = (value, limits) => limits.filter((limit) => value > limit).length;
const both = (value, limits) => Math.sign(value) * step(Math.abs(value), limits);
const gap = (page, i) => (page.trainer_logprobs[i] === null || page.logprobs[i] === null ? null : page.trainer_logprobs[i] - page.logprobs[i]);
const largest = (page) => Math.max(...page.advantages.map((value) => Math.abs(value ?? 0)), 0);

// Name → column that it needs, class of token i, and the legend as [class, words].
const COLOURS = {
  probability: {
    title: "Log-probability",
    css: (page, i) => heat(step(-Math.exp(page.logprobs[i]), [-0.9, -0.7, -0.5, -0.2, -0.05])),
    legend: () => [["heat-1", "p < 0.9"], ["heat-2", "< 0.7"], ["heat-3", "< 0.5"], ["heat-4", "< 0.2"], ["heat-5", "< 0.05"]],
  },
  entropy: {
    title: "Entropy",
    needs: "entropy",
    css: (page, i) => heat(step(page.entropy[i], [0.05, 0.3, 1, 2, 3])),
    legend: () => [["heat-1", "> 0.05 nat"], ["heat-2", "> 0.3"], ["heat-3", "> 1"], ["heat-4", "> 2"], ["heat-5", "> 3"]],
  },
  gap: {
    title: "Sampler–trainer gap",
    needs: "trainer_logprobs",
    css: (page, i) => two(both(gap(page, i), [0.01, 0.05, 0.2])),
    legend: () => [["heat--3", "trainer likelier by > 0.2"], ["heat--2", "> 0.05"], ["heat--1", "> 0.01"], ["heat-1", "less likely by > 0.01"], ["heat-3", "> 0.05"], ["heat-5", "> 0.2"]],
  },
  advantage: {
    title: "Advantage",
    needs: "advantages",
    css: (page, i) => two(largest(page) ? both(page.advantages[i] / largest(page), [0, 1 / 3, 2 / 3]) : 0),
    legend: (page) => [["heat--3", `up to +${number(largest(page))}: made likelier`], ["", "0"], ["heat-5", `down to −${number(largest(page))}: made rarer`]],
  },
  mask: {
    title: "Loss mask",
    css: (page, i) => (page.weights[i] === 0 ? "heat-off" : "heat--2"),
    legend: (page) => [["heat--2", page.missing.weights ? "sampled: trained on, if at all" : "in the loss"], ...(page.missing.weights ? [] : [["heat-off", "masked by the correction (weight 0)"]])],
  },
  version: {
    title: "Policy version",
    css: (page, i) => version(page, page.versions[i]),
    legend: (page) => versions(page).map((one) => [version(page, one), `version ${one}`]),
  },
};
const heat = (level) => (level ? `heat-${level}` : "");
const two = (level) => (level < 0 ? `heat-${[0, 1, 3, 5][-level]}` : level > 0 ? `heat--${level}` : "");
const versions = (page) => [...new Set(page.versions.filter((one) => one >= 0))].sort((a, b) => a - b);
const version = (page, one) => `ver-${(((one - (versions(page)[0] ?? 0)) % VERSIONS) + VERSIONS) % VERSIONS + 1}`;

function make(tag, css = "", text = "") {
  const element = document.createElement(tag);
  if (css) element.className = css;
  if (text) element.textContent = text;
  return element;
}

export function startLens(page, { selected }) {
  let colour = "probability";
  let opened = 0;
  const open = new Map(); // room → its lens

  async function toggle(button) {
    const room = document.getElementById(button.dataset.lensIn);
    if (open.has(room)) close(room, button);
    else await show(button.dataset.lensOpen, room, button, null);
  }

  function close(room, button) {
    open.delete(room);
    room.replaceChildren();
    button?.setAttribute("aria-expanded", "false");
  }

  // Fetch the page of `what` ("?turn=3") that holds position `at` and put it into the room.
  async function show(what, room, button, at) {
    const answer = await fetch(`${page.dataset.tokens}${what}${at === null ? "" : `&at=${at}`}`);
    if (!answer.ok) {
      room.replaceChildren(make("p", "notice notice--bad", `The tokens did not come (${answer.status}); try again.`));
      return;
    }
    open.set(room, { what, button, data: await answer.json(), at: null });
    button?.setAttribute("aria-expanded", "true");
    draw(room);
    if (at !== null) select(room, at);
  }

  function draw(room) {
    const { data } = open.get(room);
    const mode = COLOURS[colour];
    const why = mode.needs && data.missing[mode.needs];
    const head = make("div", "lens__head");
    const trained = data.step === null ? "" : `, trained in step ${data.step}`;
    const sampled = data.sampled.reduce((sum, one) => sum + one, 0);
    head.append(make("span", "muted", `Segment ${data.segment}, tokens ${data.first} to ${data.end - 1} of ${data.total}: ${sampled} sampled${trained}`));
    const label = make("label", "row", "Colour ");
    const select_ = label.appendChild(make("select"));
    select_.dataset.lensColour = "";
    for (const [name, one] of Object.entries(COLOURS)) select_.append(new Option(one.title, name, false, name === colour));
    head.append(label);
    const legend = make("span", "legend");
    legend.append(make("span", "", "grey: not sampled"));
    for (const [css, words] of why ? [] : mode.legend(data)) {
      const entry = legend.appendChild(make("span"));
      entry.append(make("i", css), ` ${words}`);
    }
    head.append(legend);
    const read = make("p", "lens__read", "Point at a token, or move with the arrow keys, for its numbers.");
    read.setAttribute("role", "status");
    const list = make("div", "tokens");
    list.tabIndex = 0;
    list.setAttribute("role", "listbox");
    list.setAttribute("aria-multiselectable", "true");
    list.setAttribute("aria-label", `Tokens coloured by ${mode.title.toLowerCase()}`);
    const prefix = `tok-${(opened += 1)}-`;
    list.append(...data.texts.map((text, i) => {
      const token = make("span", data.sampled[i] ? `tok tok--out ${why ? "" : mode.css(data, i)}` : "tok tok--in", text);
      token.setAttribute("role", "option");
      token.setAttribute("aria-selected", "false");
      token.id = `${prefix}${data.first + i}`;
      token.dataset.token = data.first + i;
      return token;
    }));
    const parts = [head];
    if (why) parts.push(make("p", "notice lens__why", `${mode.title} is not known here. ${why}`));
    parts.push(read, list);
    if (data.before !== null || data.after !== null) parts.push(pager(data));
    const lens = make("div", "lens");
    lens.append(...parts);
    room.replaceChildren(lens);
  }

  function pager(data) {
    const nav = make("nav", "pager");
    nav.setAttribute("aria-label", "Token pages");
    for (const [words, at] of [["Previous", data.before], ["Next", data.after]]) {
      if (at === null) continue;
      const button = nav.appendChild(make("button", "button button--small", words));
      button.type = "button";
      button.dataset.lensAt = at;
    }
    return nav;
  }

  function words(data, i) {
    const parts = [`#${data.first + i}`, `id ${data.ids[i]}`];
    if (!data.sampled[i]) return [...parts, "not sampled: no loss"];
    parts.push(`log p ${number(data.logprobs[i])} (p ${number(Math.exp(data.logprobs[i]))})`);
    if (data.trainer_logprobs[i] !== null) parts.push(`trainer ${number(data.trainer_logprobs[i])}, gap ${sign(gap(data, i))}`);
    if (data.entropy[i] !== null) parts.push(`entropy ${number(data.entropy[i])} nat`);
    if (data.advantages[i] !== null) parts.push(`advantage ${sign(data.advantages[i])}`);
    if (data.weights[i] !== null) parts.push(`weight ${number(data.weights[i])}${data.weights[i] === 0 ? " (masked)" : ""}`);
    return [...parts, `policy version ${data.versions[i]}`];
  }

  function tell(room, at) {
    const { data } = open.get(room);
    const i = at - data.first;
    const read = room.querySelector(".lens__read");
    read.replaceChildren(make("span", "mono", data.texts[i].replaceAll("\n", "⏎") || "∅"), ` ${words(data, i).join(" · ")}`);
  }

  // With `extend`, the range from the token that was selected before.
  function select(room, at, { extend = false } = {}) {
    const lens = open.get(room);
    const list = room.querySelector(".tokens");
    const token = list.children[at - lens.data.first];
    if (!token) return;
    lens.anchor = extend ? (lens.anchor ?? lens.at ?? at) : at;
    const [low, high] = [Math.min(lens.anchor, at), Math.max(lens.anchor, at)];
    for (const one of list.querySelectorAll('[aria-selected="true"]')) one.setAttribute("aria-selected", "false");
    for (let i = Math.max(low - lens.data.first, 0); i <= high - lens.data.first; i += 1) list.children[i]?.setAttribute("aria-selected", "true");
    list.setAttribute("aria-activedescendant", token.id);
    list.focus({ preventScroll: true });
    token.scrollIntoView({ block: "nearest" });
    lens.at = at;
    tell(room, at);
    selected(lens.what, at, [low, high + 1]);
  }

  // The token above or below: the nearest one of the next line.
  function line(list, at, way) {
    const from = list.children[at].getBoundingClientRect();
    let best = at;
    for (let i = at + way, row = null; i >= 0 && i < list.children.length; i += way) {
      const box = list.children[i].getBoundingClientRect();
      if (Math.abs(box.top - from.top) < 4) continue;
      row ??= box.top;
      if (Math.abs(box.top - row) > 4) break;
      if (best === at || Math.abs(box.left - from.left) < Math.abs(list.children[best].getBoundingClientRect().left - from.left)) best = i;
    }
    return best;
  }

  const roomOf = (element) => [...open.keys()].find((room) => room.contains(element));

  page.addEventListener("keydown", (event) => {
    const list = event.target.closest(".tokens");
    const room = list && roomOf(list);
    if (!room || event.ctrlKey || event.metaKey || event.altKey) return;
    const { data, at } = open.get(room);
    const now = at === null ? -1 : at - data.first;
    const moves = { ArrowRight: now + 1, ArrowLeft: now - 1, Home: 0, End: data.texts.length - 1 };
    if (event.key === "ArrowDown" || event.key === "ArrowUp") moves[event.key] = line(list, Math.max(now, 0), event.key === "ArrowDown" ? 1 : -1);
    if (!(event.key in moves)) return;
    event.preventDefault();
    event.stopPropagation(); // the page's own arrows change the rollout
    select(room, data.first + Math.max(0, Math.min(moves[event.key], data.texts.length - 1)), { extend: event.shiftKey });
  });
  page.addEventListener("pointerover", (event) => {
    const token = event.target.closest("[data-token]");
    if (token) tell(roomOf(token), Number(token.dataset.token));
  });
  page.addEventListener("click", (event) => {
    const button = event.target.closest("[data-lens-open]");
    if (button) toggle(button);
    const token = event.target.closest("[data-token]");
    if (token) select(roomOf(token), Number(token.dataset.token), { extend: event.shiftKey });
    const turn = event.target.closest("[data-lens-at]");
    if (turn) {
      const room = roomOf(turn);
      const { what, button: opener } = open.get(room);
      show(what, room, opener, Number(turn.dataset.lensAt));
    }
  });
  page.addEventListener("change", (event) => {
    if (!event.target.matches("[data-lens-colour]")) return;
    colour = event.target.value;
    const here = roomOf(event.target);
    for (const [room, lens] of open) {
      draw(room);
      if (lens.at === null) continue;
      room.querySelector(`[data-token="${lens.at}"]`)?.setAttribute("aria-selected", "true");
      tell(room, lens.at);
    }
    here.querySelector("[data-lens-colour]").focus();
  });

  return {
    toggle,
    // Open the lens at `what` and select the token at a position.
    async reveal(what, at) {
      const button = page.querySelector(`[data-lens-open="${what}"]`);
      if (button) await show(what, document.getElementById(button.dataset.lensIn), button, at);
    },
    forget: (gone) => {
      for (const room of [...open.keys()]) if (gone.contains(room)) open.delete(room);
    },
  };
}
