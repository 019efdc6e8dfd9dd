// A reporter of `node --test`: one JSON line an event. Runs in the test runner's own process, test files in others; without
// `--test` (`node_memory.mjs`) it runs beside one test file and writes to the descriptor that `OBSERVED_TO` numbers.
import { writeSync } from 'node:fs';

const fd = /^\d+$/.test(process.env.OBSERVED_TO ?? '') ? Number(process.env.OBSERVED_TO) : null;
const write = (text) => {
  let rest = Buffer.from(text);
  while (rest.length) rest = rest.subarray(writeSync(fd, rest));
  return '';
};

export default async function* report(events) {
  const names = new Map(); // file -> titles of the tests that are open, by nesting
  for await (const { type, data } of events) {
    const file = data?.file ?? '';
    if (type === 'test:start') {
      const open = names.get(file) ?? names.set(file, []).get(file);
      open.length = data.nesting;
      open[data.nesting] = data.name;
    } else if (type === 'test:pass' || type === 'test:fail') {
      const open = names.get(file) ?? [];
      const path = [...open.slice(0, data.nesting), data.name];
      const error = data.details?.error;
      const message = String(error?.cause?.message ?? error?.cause ?? error?.message ?? '').slice(0, 2000);
      const line = JSON.stringify({
        kind: data.details?.type === 'suite' ? 'suite' : 'test', file, path, message,
        status: data.skip !== undefined || data.todo !== undefined ? 'skipped' : type === 'test:pass' ? 'passed' : 'failed',
        seconds: (data.details?.duration_ms ?? 0) / 1000,
      }) + '\n';
      yield fd === null ? line : write(line);
    }
  }
  const line = JSON.stringify({ kind: 'done' }) + '\n';
  yield fd === null ? line : write(line);
}
