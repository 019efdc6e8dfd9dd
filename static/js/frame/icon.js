// An icon of the sprite, as `{% icon %}` writes it in templates.
const SVG = "http://www.w3.org/2000/svg";

export function icon(name) {
  const made = document.createElementNS(SVG, "svg");
  made.classList.add("icon");
  made.setAttribute("aria-hidden", "true");
  const use = document.createElementNS(SVG, "use");
  use.setAttribute("href", `${document.querySelector("meta[name='icons']").content}#${name}`);
  made.append(use);
  return made;
}
