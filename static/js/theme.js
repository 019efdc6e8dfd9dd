// The theme toggle: dark ⇄ light, remembered in localStorage; the system's preference until the first click.
export function currentTheme() {
  return document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
}

function announce() {
  document.dispatchEvent(new CustomEvent("oc:theme", { detail: currentTheme() }));
}

const computed = new Map(); // theme and property → colour: asking the browser costs a computation of all styles

// A custom property as the colour that the browser computes for it now (light-dark() resolved).
export function colour(name) {
  const key = `${currentTheme()} ${name}`;
  if (!computed.has(key)) computed.set(key, compute(name));
  return computed.get(key);
}

function compute(name) {
  const probe = document.createElement("span");
  probe.hidden = true;
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}

export function toggleTheme() {
  const theme = currentTheme() === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = theme;
  try {
    localStorage.setItem("theme", theme);
  } catch {
    // Storage is blocked: the choice lasts for this page.
  }
  announce();
}

export function startTheme() {
  for (const button of document.querySelectorAll("[data-theme-toggle]")) button.addEventListener("click", toggleTheme);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", announce);
}
