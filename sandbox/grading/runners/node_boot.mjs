// Runs one test file whose text comes over descriptor 4, in the place of the empty file that lies at its path.
import { closeSync, readFileSync } from 'node:fs';
import Module, { createRequire } from 'node:module';
import { dirname, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

const { file, source } = JSON.parse(readFileSync(4, 'utf8'));
closeSync(4);
const path = resolve(file);

const isModule = () => {
  if (path.endsWith('.mjs')) return true;
  if (path.endsWith('.cjs')) return false;
  for (let folder = dirname(path); ; folder = dirname(folder)) {
    try {
      return JSON.parse(readFileSync(folder + '/package.json', 'utf8')).type === 'module';
    } catch (error) {
      if (error.code !== 'ENOENT') return false;
    }
    if (folder === dirname(folder)) return false;
  }
};

const asModule = async () => {
  const url = pathToFileURL(path).href;
  const hooks = `let mine, text;
    export function initialize(data) { mine = data.url; text = data.source; }
    export async function resolve(name, context, next) {
      return name === mine ? { url: mine, format: 'module', shortCircuit: true } : next(name, context);
    }
    export async function load(url, context, next) {
      return url === mine ? { format: 'module', source: text, shortCircuit: true } : next(url, context);
    }`;
  Module.register('data:text/javascript;base64,' + Buffer.from(hooks).toString('base64'), { data: { url, source } });
  await import(url);
};

if (isModule()) {
  await asModule();
} else {
  const module = new Module(path, null);
  module.filename = path;
  module.paths = Module._nodeModulePaths(dirname(path));
  module.require = createRequire(path);
  try {
    module._compile(source, path);
  } catch (error) {
    if (!(error instanceof SyntaxError) || !/import statement|Unexpected token 'export'|await is only valid/.test(error.message)) throw error;
    await asModule();
  }
}
