// Runs test files that are not on disk, as `node --input-type=module -e <this text>`: the files come on standard input, each
// runs in a process of its own that reads its text from a pipe, and only this process holds the private descriptor.
import { spawn } from 'node:child_process';
import { readFileSync, writeSync } from 'node:fs';

const fd = Number(process.env.RESULT_FD);
delete process.env.RESULT_FD;
const { files, boot, reporter, options } = JSON.parse(readFileSync(0, 'utf8'));

const send = (text) => {
  let rest = Buffer.from(text + '\n');
  while (rest.length) rest = rest.subarray(writeSync(fd, rest));
};

const run = ([file, source]) => new Promise((resolve) => {
  let done = false, tests = 0, rest = '', said = '';
  const words = [...options, `--test-reporter=${reporter}`, '--test-reporter-destination=stdout', '--input-type=module', '-e', boot];
  const env = { ...process.env, OBSERVED_TO: '3' };
  const child = spawn(process.execPath, words, { env, stdio: ['ignore', 'pipe', 'pipe', 'pipe', 'pipe'] });
  const line = (text) => {
    if (text === '') return;
    let record;
    try { record = JSON.parse(text[0] === '\x02' ? text.slice(1) : text); } catch { record = null; }
    if (record === null || typeof record !== 'object') return send(text);
    if (record.kind === 'done') { done = true; return; }
    if (record.kind === 'test') tests += 1;
    send(JSON.stringify({ ...record, file }));
  };
  child.stdio[3].setEncoding('utf8').on('data', (text) => {
    const lines = (rest + text).split('\n');
    rest = lines.pop();
    lines.forEach(line);
  });
  for (const stream of [child.stdout, child.stderr]) stream.setEncoding('utf8').on('data', (text) => { said = (said + text).slice(-2000); });
  child.stdio[4].on('error', () => {});
  child.stdio[4].end(JSON.stringify({ file, source }));
  child.on('close', (code) => {
    if (rest !== '') line(rest);
    if (code !== 0 && tests === 0) send(JSON.stringify({ kind: 'test', file, path: [file], status: 'failed', message: said }));
    resolve(done);
  });
});

let finished = true;
for (const entry of Object.entries(files)) finished = (await run(entry)) && finished;
if (finished) send(JSON.stringify({ kind: 'done' }));
