// Annotations of a trajectory: keys press the buttons of the bar, the comment form moves to the turn it is about, and
// comments appear at their turns as well as in the bar. The server renders the bar; every answer replaces it.
const bar = () => document.getElementById("annotations");
const form = () => document.getElementById("comment-form");

export function startAnnotations(page, { current, token }) {
  let home = null; // what the form stood in before it was moved

  // Comments stand in the bar; a copy of each is put at its turn, as far as that is in the page.
  function place(root = page) {
    for (const slot of root.querySelectorAll(".turn__comments")) {
      const turn = slot.id.replace("comments-of-turn-", "");
      const mine = [...(bar()?.querySelectorAll(`[data-comment-of="${turn}"]`) ?? [])];
      slot.replaceChildren(...mine.map((one) => {
        const copy = one.cloneNode(true);
        copy.querySelector("form")?.remove();
        return copy;
      }));
      slot.hidden = !mine.length;
    }
  }

  function open(turn) {
    const found = form();
    if (!found) return;
    home ??= found.parentElement;
    home.hidden = false;
    const article = turn === null ? null : document.querySelector(`[data-turn="${turn}"]`);
    const chosen = article ? token(turn) : null;
    found.elements.turn.value = article ? turn : "";
    found.elements.token_start.value = chosen ? chosen[0] : "";
    found.elements.token_end.value = chosen ? chosen[1] : "";
    const [first, end] = chosen ?? [];
    const tokens = !chosen ? "" : end - first > 1 ? `, tokens ${first} to ${end - 1}` : `, token ${first}`;
    found.querySelector("[data-comment-place]").textContent = article ? `On turn ${Number(turn) + 1}${tokens}` : "On the rollout";
    if (article) article.querySelector(".turn__comments").after(found);
    else home.prepend(found);
    found.hidden = false;
    found.querySelector("textarea").focus();
  }

  function close() {
    const found = form();
    if (!found) return;
    found.hidden = true;
    found.reset();
    home?.prepend(found);
    if (home && home.children.length === 1) home.hidden = true;
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-comment]");
    if (button) open(button.dataset.comment === "" ? current() : button.dataset.comment);
    if (event.target.closest("[data-comment-cancel]")) close();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && event.target.closest("#comment-form")) close();
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && event.target.closest("#comment-form")) form().requestSubmit();
  });
  // A refresh does not take away what somebody is writing; the next one brings what was missed.
  document.addEventListener("htmx:beforeSwap", (event) => {
    const { target, requestConfig } = event.detail;
    if (target !== bar()) return;
    const writes = form() && !form().hidden && (form().elements.text.value || form().contains(document.activeElement));
    const types = bar().contains(document.activeElement) && document.activeElement.matches("input") && document.activeElement.value;
    if (requestConfig.verb === "get" && (writes || types)) event.detail.shouldSwap = false;
    else if (form() && !bar().contains(form())) form().remove(); // the answer brings another
  });
  document.addEventListener("htmx:afterSwap", () => {
    home = bar()?.querySelector(".annotate__more");
    place();
  });
  place();

  const press = (key) => bar()?.querySelector(`[data-annotate="${key}"]`)?.click();
  const keys = { "#": () => document.getElementById("annotate-tag")?.focus() };
  for (const key of ["1", "2", "3", "r"]) keys[key] = () => press(key);
  keys.c = () => open(current());
  return { keys, place };
}
