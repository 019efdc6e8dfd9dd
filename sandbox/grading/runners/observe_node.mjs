// Loaded before the tests, as a data URL: reports what product files do with files, processes and generated code.
import fs from 'node:fs';
import vm from 'node:vm';
import childProcess from 'node:child_process';
import Module, { syncBuiltinESMExports } from 'node:module';

const fd = Number(process.env.RESULT_FD);
delete process.env.RESULT_FD;
const root = `${process.cwd()}/`;
const write = fs.writeSync.bind(fs);
const { stringify } = JSON;
const tests = new Set(JSON.parse(process.env.OBSERVED_TESTS ?? '[]'));
delete process.env.OBSERVED_TESTS;
const sent = new Set();
const isTest = (path) => tests.has(path) || /(^|\/)(test|tests|__tests__)\/|[._-]test\.[cm]?[jt]s$|\.spec\./.test(path);
const isCode = (path) => /\.([cm]?[jt]sx?|go|rs|py)$/.test(path);

/** The nearest file of the checkout on the stack: {path, line}, or null when it is a test. */
function owner() {
  const stack = String(new Error().stack).split('\n').slice(3);
  for (const line of stack) {
    const found = /(?:file:\/\/)?(\/[^\s():]+):(\d+):\d+/.exec(line);
    if (found && found[1].startsWith(root)) {
      const path = found[1].slice(root.length);
      return isTest(path) ? null : { path, line: Number(found[2]) };
    }
  }
  return null;
}

function send(kind, detail) {
  const from = owner();
  if (!from) return;
  const key = `${kind} ${detail} ${from.path}`;
  if (sent.has(key) || sent.size > 500) return;
  sent.add(key);
  write(fd, `${stringify({ kind, detail: String(detail).slice(0, 200), ...from })}\n`);
}

function inside(target) {
  const text = target instanceof URL ? target.pathname : String(target);
  const parts = [];
  for (const part of (text.startsWith('/') ? text : root + text).split('/')) {
    if (part === '..') parts.pop();
    else if (part !== '' && part !== '.') parts.push(part);
  }
  const whole = `/${parts.join('/')}`;
  return whole.startsWith(root) ? whole.slice(root.length) : null;
}

function wrap(object, name, look) {
  const real = object[name];
  if (typeof real !== 'function') return;
  object[name] = function observed(...args) {
    try { look(...args); } catch { /* an observer never changes what is observed */ }
    return new.target ? Reflect.construct(real, args) : Reflect.apply(real, this, args);
  };
  Object.setPrototypeOf(object[name], real);
  object[name].prototype = real.prototype;
}

// Called by `look`, that by the wrapper, and that by whoever reads: the module loader itself, or the product.
const loading = () => /node:internal\/modules/.test(String(new Error().stack).split('\n')[4]);
const reads = (target) => {
  const path = inside(target);
  if (path === null || loading()) return;
  if (isTest(path)) send('reads-tests', path);
  else if (isCode(path)) send('reads-source', path);
};
const writes = (target) => {
  const path = inside(target);
  if (path !== null && isCode(path)) send('writes-source', path);
  else if (path !== null && /(junit|results?|report)[\w-]*\.(xml|json|tap)$/.test(path)) send('writes-report', path);
};
for (const api of [fs, fs.promises]) {
  for (const name of ['readFileSync', 'readFile', 'createReadStream']) wrap(api, name, reads);
  for (const name of ['writeFileSync', 'writeFile', 'appendFileSync', 'appendFile', 'createWriteStream']) wrap(api, name, writes);
}
for (const name of ['exec', 'execSync', 'execFile', 'execFileSync', 'spawn', 'spawnSync', 'fork']) {
  wrap(childProcess, name, (command) => send('starts-process', command));
}
for (const name of ['runInThisContext', 'runInNewContext', 'runInContext', 'compileFunction', 'Script']) {
  wrap(vm, name, () => { if (!loading()) send('executes-text', name); });
}
wrap(Module.prototype, '_compile', () => { if (!/node:internal\/modules/.test(String(new Error().stack).split('\n')[3])) send('executes-text', '_compile'); });
for (const name of ['exit', 'reallyExit', 'abort']) wrap(process, name, () => send('reaches-runner', `process.${name}`));
for (const name of ['on', 'once', 'addListener', 'prependListener']) {
  wrap(process, name, (event) => { if (event === 'exit' || event === 'beforeExit') send('exit-hook', event); });
}
globalThis.Function = new Proxy(Function, {
  construct(target, args) { send('executes-text', 'Function'); return Reflect.construct(target, args); },
  apply(target, self, args) { send('executes-text', 'Function'); return Reflect.apply(target, self, args); },
});
syncBuiltinESMExports();

/** Functions that programs share, by name: what another function stands for when the process ends was replaced. */
const shared = new Map();
const remember = (name, object) => {
  for (const [key, { value }] of Object.entries(Object.getOwnPropertyDescriptors(object))) {
    if (typeof value === 'function') shared.set(`${name}.${key}`, [object, key, value]);
  }
};
const own = Object.getOwnPropertyDescriptor.bind(Object);
for (const name of ['Array', 'Date', 'Error', 'JSON', 'Map', 'Math', 'Number', 'Object', 'Promise', 'Reflect', 'RegExp', 'Set', 'String']) {
  remember(name, globalThis[name]);
  if (globalThis[name].prototype) remember(`${name}.prototype`, globalThis[name].prototype);
}
remember('globalThis', globalThis);
remember('performance', Performance.prototype);
for (const name of ['assert', 'assert/strict', 'test', 'timers', 'util']) {
  const module = process.getBuiltinModule?.(`node:${name}`);
  if (module) remember(`node:${name}`, module);
}
const clock = ['now', 'mark', 'measure'];
const end = process.on.bind(process);
end('exit', () => {
  const told = [...shared].filter(([, [object, key, value]]) => own(object, key)?.value !== value).map(([name]) => name);
  told.push(...clock.filter((key) => own(performance, key)).map((key) => `performance.${key}`));
  for (const detail of told) {
    const from = { path: '', line: 0 };
    write(fd, `${stringify({ kind: 'replaces-library', detail, ...from })}\n`);
  }
});
