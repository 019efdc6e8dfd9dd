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
