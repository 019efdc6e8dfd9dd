// Numbers and durations for people, digit for digit as the server writes them (composer_web/ui/templatetags/ui.py): a chart, a tile
// and a table of one value agree. tests/browser/walks/test_tables.py holds both against the same values.
const NARROW = "\u202f"; // between groups of thousands, and before %
const SIZES = ["B", "KiB", "MiB", "GiB"];

// As Python rounds: what lies exactly between two goes to the even one, where toFixed() goes up.
function fixed(value, digits) {
  const up = value.toFixed(digits);
  const exact = value.toFixed(Math.min(100, digits + 25)); // a double that lies between two ends in zeros here
  const cut = exact.indexOf(".") + 1 + digits;
  if (!/^50*$/.test(exact.slice(cut))) return up;
  const down = exact.slice(0, digits ? cut : cut - 1);
  return Number(down.at(-1)) % 2 === 0 ? down : up;
}

const grouped = (text) => text.replace(/^(-?\d+)/, (whole) => whole.replace(/\B(?=(\d{3})+$)/g, NARROW));
const bare = (text) => (text.includes(".") ? text.replace(/\.?0+$/, "") : text);

// Three significant digits.
function significant(value) {
  const [mantissa, exponent] = value.toExponential(2).split("e");
  if (Number(exponent) < -4) return `${bare(mantissa)}e-${exponent.slice(1).padStart(2, "0")}`;
  return bare(fixed(value, Math.max(0, 2 - Number(exponent))));
}

function plain(value) {
  if (Number.isInteger(value)) return grouped(String(value || 0));
  const size = Math.abs(value);
  return size < 1 ? significant(value) : grouped(fixed(value, size >= 100 ? 0 : 2));
}

function compact(value) {
  const size = Math.abs(value);
  for (const [limit, scale, unit] of [[999.5e6, 1e9, "G"], [999.5e3, 1e6, "M"], [1e4, 1e3, "k"]]) if (size >= limit) return significant(value / scale) + unit;
  return plain(value);
}

function bytes(value) {
  let [left, unit] = [value, 0];
  while (left >= 1024 && unit < SIZES.length - 1) [left, unit] = [left / 1024, unit + 1];
  return `${fixed(left, unit ? 1 : 0)} ${SIZES[unit]}`;
}

export function seconds(value) {
  if (value < 1) return `${fixed(1000 * value, 0)} ms`;
  if (value < 60) return `${fixed(value, 1)} s`;
  const whole = Number(fixed(value, 0));
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${String(whole % 60).padStart(2, "0")} s`;
  return `${Math.floor(whole / 3600)} h ${String(Math.floor((whole % 3600) / 60)).padStart(2, "0")} min`;
}

const OF_UNIT = { "%": (value) => `${fixed(100 * value, 1)}${NARROW}%`, s: seconds, bytes, "bytes/s": (value) => `${bytes(value)}/s` };

// Without a unit that follows the number: where another place names it.
export const unitless = (value, unit) => number(value, unit in OF_UNIT ? unit : "");

export function number(value, unit = "") {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (OF_UNIT[unit]) return OF_UNIT[unit](value);
  return unit ? `${compact(value)} ${unit}` : compact(value);
}
