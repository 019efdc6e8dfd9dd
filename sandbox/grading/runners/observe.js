// Stands at the head of a rewritten test file, on one line: statements end with a semicolon, comments stand alone.
const { $observe, $raises, $rejects } = (() => {
  const { openSync, writeSync } = process.getBuiltinModule ? process.getBuiltinModule('fs') : require('fs');
  const { stringify } = JSON;
  const prototype = Object.getPrototypeOf;
  const { keys } = Object;
  let fd;
  const send = (record) => {
    fd ??= /^[0-9]+$/.test(process.env.OBSERVED_TO) ? Number(process.env.OBSERVED_TO) : openSync(process.env.OBSERVED_TO, 'a');
    let rest = new TextEncoder().encode('\x02' + stringify(record) + '\n');
    while (rest.length) rest = rest.subarray(writeSync(fd, rest));
  };
  const kind = (value) => { const above = prototype(value); return above === null ? 'null' : String(above.constructor?.name); };
  const text = (value, mode, above) => {
    if (value === null || value === undefined) return String(value);
    if (typeof value !== 'object') {
      if (typeof value === 'string') return stringify(value);
      if (typeof value === 'bigint') return value + 'n';
      if (typeof value === 'function' || typeof value === 'symbol') return typeof value;
      return Object.is(value, -0) ? '-0' : String(value);
    }
    if (above.length > 20 || above.includes(value)) return '...';
    const inner = (one) => text(one, mode, [...above, value]);
    const name = mode === 'e' && (kind(value) === 'null' || !/^(Map|Set|Date|RegExp|.*Error|.*Array|Buffer)$/.test(kind(value))) ? '' : kind(value);
    if (value instanceof Date) return name + '(' + Number(value) + ')';
    if (value instanceof RegExp) return name + '(' + String(value) + ')';
    if (value instanceof Error) return name + '(' + stringify(String(value.name)) + ',' + stringify(String(value.message)) + ')';
    if (value instanceof Map) return name + '(' + [...value].map(([a, b]) => inner(a) + '=>' + inner(b)).sort().join() + ')';
    if (value instanceof Set) return name + '(' + [...value].map(inner).sort().join() + ')';
    if (ArrayBuffer.isView(value)) return name + '(' + Array.from(value).join() + ')';
    const fields = keys(value).filter((key) => mode !== 'e' || value[key] !== undefined).filter((key) => !Array.isArray(value) || !/^\d+$/.test(key)).sort().map((key) => stringify(key) + ':' + inner(value[key]));
    const items = Array.isArray(value) ? Array.from(value, inner) : [];
    return name + (Array.isArray(value) ? '[' : '{') + [...items, ...fields].join() + (Array.isArray(value) ? ']' : '}');
  };
  const told = (value, mode) => (mode === 'n' ? text(value?.length, 's', []) : text(value, mode, [])).slice(0, 200000);
  const names = (error) => {
    const found = [];
    if (error !== null && (typeof error === 'object' || typeof error === 'function')) {
      if (typeof error.name === 'string') found.push(error.name);
      for (let at = prototype(error); at && found.length < 20; at = prototype(at)) found.push(String(at.constructor?.name));
    }
    return [...found, 'Object'];
  };
  const said = (mode, error) => {
    try { return String(mode === 's' ? error : error?.message ?? error).slice(0, 2000); } catch { return ''; }
  };
  const raised = (site, mode, wanted, thrown, error) => send({
    kind: 'seen', site, values: wanted.map((cls) => ({ k: [cls.name] })),
    raised: thrown ? { e: { t: names(error), m: said(mode, error) } } : null,
  });
  return {
    $observe: (site, mode, ...values) => send({ kind: 'seen', site, values: values.map((value) => told(value, mode)), raised: null }),
    $raises: (site, mode, call, ...wanted) => {
      let thrown = false, error;
      try { call(); } catch (caught) { thrown = true; error = caught; }
      raised(site, mode, wanted, thrown, error);
    },
    $rejects: async (site, mode, call, ...wanted) => {
      let thrown = false, error;
      try { await (typeof call === 'function' ? call() : call); } catch (caught) { thrown = true; error = caught; }
      raised(site, mode, wanted, thrown, error);
    },
  };
})();
