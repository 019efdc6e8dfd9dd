// Review queues of tasks and of trajectories: keys, answers without a reload, the next item fetched while this one is read.
// An element with `data-key` answers its key: a field takes the focus, anything else is pressed. The part `#review` is
// replaced by the next one; `data-next` and `data-previous` say where that is.

export function start() {
  const help = document.getElementById("key-help");
  const toast = document.getElementById("review-toast");
  const part = () => document.getElementById("review");
  let ready = null; // {address, html} of the next item: a promise
  let undo = "";
  let busy = false;

  async function fetched(address) {
    const answer = await fetch(address, { headers: { "HX-Request": "true" } });
    if (!answer.ok) throw new Error(`${answer.status} from ${address}`);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    return { address: answer.url, element: page.getElementById("review") };
  }

  function preload() {
    const address = part().dataset.next;
    ready = address ? { address, made: fetched(address).catch(() => null) } : null;
    part().dataset.ready = "";
  }

  function say(text, bad = false) {
    if (!toast) return;
    toast.textContent = text;
    toast.classList.toggle("toast--bad", bad);
  }

  async function go(address, { fresh = false } = {}) {
    const same = ready && new URL(ready.address, location.href).href === new URL(address, location.href).href;
    const next = (!fresh && same && (await ready.made)) || (await fetched(address));
    if (!next.element) return location.assign(address);
    part().replaceWith(next.element);
    htmx.process(next.element);
    history.replaceState(null, "", next.address);
    document.title = `${next.element.dataset.title} · OpenComposer`;
    if (!fresh) scrollTo(0, 0);
    arrange();
  }

  function arrange() {
    const form = part().querySelector("[data-undo]");
    if (form && undo) {
      form.hidden = false;
      form.elements.batch.value = undo;
    }
    part().dispatchEvent(new CustomEvent("review:shown", { bubbles: true }));
    preload();
  }

  async function answer(form, button) {
    if (busy) return;
    busy = true;
    try {
      const body = new FormData(form, button);
      const response = await fetch(form.action, { method: "POST", body, headers: { "X-Requested-With": "fetch" } });
      if (!response.headers.get("Content-Type")?.includes("json")) return say(`The server answered ${response.status}.`, true);
      const told = await response.json();
      say(told.message, !response.ok);
      if (!response.ok) return;
      const here = new URL(part().dataset.here, location.href).href;
      undo = form.matches("[data-undo]") ? "" : told.undo || undo;
      const to = new URL(told.next, location.href).href;
      await go(told.next, { fresh: to === here });
      const waiting = part().querySelector("[data-waiting]");
      if (waiting && told.waiting !== null && told.waiting !== undefined) waiting.textContent = told.waiting;
    } catch (error) {
      say(`Not sent: ${error.message}. Try again.`, true);
    } finally {
      busy = false;
    }
  }

  document.addEventListener("submit", (event) => {
    if (!event.target.matches("[data-answer]")) return;
    event.preventDefault();
    answer(event.target, event.submitter);
  });
  document.addEventListener("click", (event) => {
    if (event.target.closest("[data-key-help]")) help?.showModal();
    const link = event.target.closest("a[data-go]");
    if (!link || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    go(link.href).catch(() => location.assign(link.href));
  });
  document.addEventListener("change", (event) => {
    // The suite that accepted tasks go to stays for the whole queue: it is part of the address.
    const { query } = event.target.dataset ?? {};
    if (!query) return;
    const url = new URL(location.href);
    if (event.target.value) url.searchParams.set(query, event.target.value);
    else url.searchParams.delete(query);
    go(url.href, { fresh: true }).catch((error) => say(error.message, true));
  });

  function inField(event) {
    const { target, key } = event;
    if (key === "Escape") target.blur();
    if (key !== "Enter") return;
    if (target.matches("textarea") && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      target.form.requestSubmit();
    } else if (target.matches("input[data-plain]")) {
      event.preventDefault(); // a note is sent with the decision
      target.blur();
    }
  }

  document.addEventListener("keydown", (event) => {
    if (event.target.closest("textarea, select, input:not([type=radio], [type=checkbox])")) return inField(event);
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "?") {
      event.preventDefault();
      return help?.open ? help.close() : help?.showModal();
    }
    if (help?.open || event.repeat) return;
    if (event.key === "Enter" && event.target.closest("a, button, summary")) return; // theirs
    const element = part().querySelector(`[data-key="${CSS.escape(event.key)}"]`);
    if (!element || element.closest("[hidden]")) return;
    event.preventDefault();
    if (element.matches("textarea, select, input:not([type=radio], [type=checkbox])")) {
      element.focus();
      element.select?.();
    } else element.click();
  });
  arrange();
}
