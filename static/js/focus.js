// Keeps the focus where it is while a live part is fetched anew: what takes the place of the link or button that had it gets it.
const STOPS = "a[href], button, summary, [tabindex]";
const nameOf = (element) => element.getAttribute("href") ?? element.getAttribute("aria-label") ?? element.textContent.trim();

// Called before the part is exchanged; what it returns is called afterwards. An element with an id is htmx's business.
export function keepFocus(part) {
  const focus = document.activeElement;
  if (!focus?.matches(STOPS) || focus.id || !part.contains(focus)) return () => {};
  const name = nameOf(focus);
  const alike = () => [...document.querySelectorAll(focus.tagName)].filter((one) => one.matches(STOPS) && nameOf(one) === name);
  const place = alike().indexOf(focus);
  return () => {
    if (document.activeElement === document.body) alike().at(place)?.focus({ preventScroll: true }); // else it went on meanwhile
  };
}
