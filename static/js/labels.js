// Questions about a trajectory by keys: digits, or the options' own keys, answer the marked question, arrows move the mark, an answer moves it on.
export function start() {
  const questions = () => [...document.querySelectorAll("[data-questions] .question")];
  let current = 0;

  function mark(index, { scroll = true } = {}) {
    const all = questions();
    current = Math.max(0, Math.min(index, all.length - 1));
    for (const [place, question] of all.entries()) question.classList.toggle("is-current", place === current);
    if (scroll) all[current]?.scrollIntoView({ block: "nearest" });
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (event.target.closest("textarea, select, input:not([type=radio], [type=checkbox])")) return;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      return mark(current + (event.key === "ArrowDown" ? 1 : -1));
    }
    if (!/^[0-9a-z]$/.test(event.key)) return;
    const question = questions()[current];
    const inputs = [...(question?.querySelectorAll("input") ?? [])];
    const scale = question?.dataset.question === "scale";
    const input = inputs.find((one) => (scale ? one.value : one.dataset.hotkey) === event.key);
    if (!input) return;
    event.preventDefault();
    input.click();
    if (input.type === "radio") mark(current + 1);
  });
  document.addEventListener("review:shown", () => mark(0, { scroll: false }));
  document.addEventListener("focusin", (event) => {
    const question = event.target.closest("[data-questions] .question");
    if (question) mark(questions().indexOf(question));
  });
  mark(0, { scroll: false });
}
