// Numbers and durations for people.
export function number(value, unit = "") {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (unit === "%") return `${(100 * value).toFixed(1)} %`;
  const size = Math.abs(value);
  let text;
  if (size >= 1e4) text = Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 }).format(value);
  else if (size >= 100) text = value.toFixed(0);
  else if (size >= 1) text = value.toFixed(2);
  else if (size === 0) text = "0";
  else if (size >= 1e-3) text = value.toFixed(3);
  else text = value.toExponential(1);
  return unit ? `${text} ${unit}` : text;
}

// Replaces the text of <time data-relative> by "3 min ago"; the absolute time stays in its title.
export function relative(root = document) {
  for (const element of root.querySelectorAll("time[data-relative]")) {
    const seconds = (Date.now() - Date.parse(element.dateTime)) / 1000;
    const steps = [[60, 1, "s"], [3600, 60, "min"], [86_400, 3600, "h"], [Infinity, 86_400, "d"]];
    const [, size, unit] = steps.find(([limit]) => Math.abs(seconds) < limit);
    const text = Math.abs(seconds) < 5 ? "just now" : `${Math.round(seconds / size)} ${unit} ago`;
    if (element.textContent !== text) element.textContent = text;
  }
}
