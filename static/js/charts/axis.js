// The horizontal axis of a chart: how places on it are written, its range, and the row nearest to a place.
// How positions of the axis are written: steps as they are, tokens as 12k, seconds in the unit that fits the longest.
export function placement(positions, axis) {
  if (axis === "tokens") return { unit: 1, format: "~s", suffix: "", title: "tokens trained" };
  if (axis !== "time") return { unit: 1, format: "~d", suffix: "", title: "step" };
  const longest = positions.reduce((most, x) => Math.max(most, x), 0);
  const [unit, suffix] = [[86_400, " d"], [3600, " h"], [60, " min"]].find(([size]) => longest > 2 * size) ?? [1, " s"];
  return { unit, format: "~g", suffix, title: "time since the start" };
}

// The horizontal axis of these lines, a little wider than they are; a single place gets room on both sides.
export function around(lines, place) {
  const ends = lines.flatMap(({ rows }) => [rows[0].x, rows.at(-1).x]);
  if (!ends.length) return { autorange: true };
  const [low, high] = [Math.min(...ends) / place.unit, Math.max(...ends) / place.unit];
  const pad = high > low ? 0.02 * (high - low) : 1;
  return { range: [low - pad, high + pad] };
}

// The index of the row nearest to a place; rows are in order.
export function closest(rows, x) {
  let [low, high] = [0, rows.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (rows[middle].x < x) low = middle + 1;
    else high = middle;
  }
  return low > 0 && x - rows[low - 1].x <= rows[low].x - x ? low - 1 : low;
}
