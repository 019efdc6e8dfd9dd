// Elements of this page that move, or would when something about them changes.
() => {
  const long = (durations) => durations.split(",").some((one) => parseFloat(one) > 0);
  const found = document.getAnimations().map((one) => `runs: ${one.effect?.target?.outerHTML.slice(0, 120)}`);
  if (getComputedStyle(document.documentElement).scrollBehavior !== "auto") found.push("the page scrolls smoothly");
  for (const element of document.querySelectorAll("*"))
    for (const part of [null, "::before", "::after"]) {
      const { animationDuration, transitionDuration } = getComputedStyle(element, part);
      if (long(animationDuration) || long(transitionDuration)) found.push(`moves: ${element.outerHTML.slice(0, 120)} ${part ?? ""}`);
    }
  return found;
}
