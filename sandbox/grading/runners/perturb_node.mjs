// Runs inside a clean sandbox: answers calls of the product, one JSON text a line.
import fs from 'node:fs';
import { pathToFileURL } from 'node:url';
import { inspect } from 'node:util';

const fd = Number(process.env.RESULT_FD);
delete process.env.RESULT_FD;
const write = fs.writeSync.bind(fs);
const request = JSON.parse(fs.readFileSync(0, 'utf8'));
const modules = [];
for (const path of request.files) {
  try {
    const loaded = await import(pathToFileURL(`${process.cwd()}/${path}`));
    modules.push(loaded, loaded.default ?? {});
  } catch {
    // the pristine checkout may lack the file
  }
}
const late = () => new Promise((resolve, reject) => setTimeout(reject, 300).unref());
const lines = [];
for (const [name, args] of request.calls) {
  const from = modules.find((module) => typeof module[name] === 'function');
  let answer = '!missing';
  if (from) {
    try {
      const once = async () => inspect(await Promise.race([from[name](...structuredClone(args)), late()]), { depth: 6 }).slice(0, 400);
      answer = await once();
      if (answer !== (await once())) answer = '!unsteady';
    } catch {
      answer = '!raised';
    }
  }
  lines.push(JSON.stringify(answer));
}
write(fd, `${lines.join('\n')}\n`);
process.exit(0);
