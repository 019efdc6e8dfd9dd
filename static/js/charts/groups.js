// Groups of runs as one line each: the mean, within the band of the smallest and the largest value.

/**
 * [{id, name, members}] of the runs' groups, in their order; null when they are drawn one by one. In a panel with a best of K
 * a group has runs of one K: those of another K follow as groups of their own, so that all others keep their colours.
 */
export function groupsOf(runs, keys) {
  if (!runs.some(({ group }) => group)) return null;
  const found = new Map();
  const kOf = (run) => keys.map((key) => run.best_of?.[key]).filter(Boolean).join(" and ");
  runs.forEach((run, index) => {
    if (!found.has(run.group)) found.set(run.group, new Map());
    const parts = found.get(run.group);
    parts.set(kOf(run), [...(parts.get(kOf(run)) ?? []), index]);
  });
  const made = [...found].map(([name, parts]) =>
    [...parts].map(([k, members]) => ({ name: parts.size > 1 ? `${name}, K = ${k || "none"}` : name, members })),
  );
  return [...made.map(([first]) => first), ...made.flatMap(([, ...others]) => others)].map(({ name, members }) => ({
    id: `group:${name}`, name: `${name} (${members.length})`, members,
  }));
}

/** The value of a run at a place between its first and its last, straight between two rows; null outside. */
function valueAt(rows, x) {
  if (!rows.length || x < rows[0].x || x > rows.at(-1).x) return null;
  let [low, high] = [0, rows.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (rows[middle].x < x) low = middle + 1;
    else high = middle;
  }
  const [before, after] = [rows[Math.max(0, low - 1)], rows[low]];
  if (after.x === x || after.x === before.x) return after.last;
  return before.last + ((after.last - before.last) * (x - before.x)) / (after.x - before.x);
}

/** Rows of the mean of several runs, wherever one of them has a row. */
export function merged(runs) {
  const steps = new Map(runs.flat().map((row) => [row.x, row.step]));
  return [...steps.keys()].sort((a, b) => a - b).map((x) => {
    const values = runs.map((rows) => valueAt(rows, x)).filter((value) => value !== null);
    const last = values.reduce((sum, value) => sum + value, 0) / values.length;
    return { x, step: steps.get(x), min: Math.min(...values), max: Math.max(...values), last };
  });
}

/** Series of each group, from those of each run. */
export const grouped = (groups, data, keys) =>
  groups.map(({ members }) =>
    Object.fromEntries(keys.map((key) => [key, merged(members.map((index) => data[index][key] ?? []))])),
  );
