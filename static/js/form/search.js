// A search over all settings, by name and description; the index marks the section in sight.
export function startSearch(form, view) {
  const input = form.querySelector("[data-setting-search]");
  const none = form.querySelector("[data-none]");
  const fields = [...form.querySelectorAll("[data-section] [data-field]")];
  const texts = new Map(fields.map((field) => [field, `${field.dataset.field} ${field.querySelector("label").textContent} ${field.querySelector(".field__help").textContent}`.toLowerCase().replaceAll("_", " ")]));

  function search() {
    const words = input.value.toLowerCase().replaceAll("_", " ").split(/\s+/).filter(Boolean);
    for (const [field, text] of texts) field.hidden = !words.every((word) => text.includes(word));
    for (const section of form.querySelectorAll("[data-section]")) {
      section.hidden = words.length > 0 && !section.querySelector("[data-field]:not([hidden])");
    }
    none.hidden = fields.some((field) => field.checkVisibility());
  }

  input.addEventListener("input", search);
  input.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      input.value = "";
      search();
    }
    if (event.key !== "Enter") return;
    event.preventDefault();
    fields.find((field) => field.checkVisibility())?.querySelector("input, select, textarea").focus();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.target.closest("input, textarea, select")) return;
    event.preventDefault();
    view.showAll();
    input.focus();
  });

  const links = new Map([...form.querySelectorAll(".runform__index a")].map((link) => [link.hash.slice(1), link]));
  const seen = new IntersectionObserver(
    (entries) => {
      for (const { target, isIntersecting } of entries) {
        if (!isIntersecting || !links.has(target.id)) continue;
        for (const link of links.values()) link.removeAttribute("aria-current");
        links.get(target.id).setAttribute("aria-current", "true");
      }
    },
    { rootMargin: "-15% 0px -70% 0px" },
  );
  for (const section of form.querySelectorAll("[data-section]")) seen.observe(section);
}
