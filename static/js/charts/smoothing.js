// Exponential moving average over the whole series of buckets, debiased, so that the start is not pulled to zero. The weight
// is of a bucket of the whole series: what is zoomed goes on from what came before it and keeps its curve.
export function smoothed(rows, whole, weight) {
  if (!weight) return rows.map((row) => row.last);
  if (!whole.length) return smoothed(rows, rows, weight);
  const spacing = (whole.at(-1).x - whole[0].x) / (whole.length - 1) || 1;
  let sum = 0;
  let mass = 0;
  let at = whole[0].x - spacing;
  const take = ({ x, last }) => {
    const kept = weight ** (Math.max(0, x - at) / spacing);
    sum = kept * sum + (1 - kept) * last;
    mass = kept * mass + (1 - kept);
    at = x;
    return sum / mass;
  };
  for (const row of whole) if (row.x < rows[0].x) take(row);
  return rows.map(take);
}
