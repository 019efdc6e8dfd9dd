// The values of metrics, fetched.
const MAX_KEYS = 60; // of one request: the server answers no more

const asked = new Map(); // address without keys → {keys, answer} that panels of this moment may still join

// The series of some keys. Panels that ask at the same moment share one request: a refresh is one request a run.
export function series(url, keys) {
  const { href } = url;
  let joined = asked.get(href);
  if (!joined || joined.keys.size + keys.length > MAX_KEYS) {
    joined = { keys: new Set(), answer: null };
    asked.set(href, joined);
  }
  for (const key of keys) joined.keys.add(key);
  if (!joined.answer) {
    joined.answer = Promise.resolve().then(async () => {
      if (asked.get(href) === joined) asked.delete(href);
      url.searchParams.set("keys", [...joined.keys].join(","));
      const response = await fetch(url, { headers: { Accept: "application/json" } });
      if (!response.ok) throw new Error(`the server answered ${response.status}`);
      return (await response.json()).series;
    });
  }
  return joined.answer;
}

// Whether two trees of lists, objects and plain values are equal; the ends, where news are, are looked at first.
export function same(a, b) {
  if (Object.is(a, b)) return true;
  if (typeof a !== "object" || typeof b !== "object" || !a || !b) return false;
  const keys = Object.keys(a);
  return keys.length === Object.keys(b).length && keys.reverse().every((key) => same(a[key], b[key]));
}
