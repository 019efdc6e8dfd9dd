// Runs inside the installing sandbox: prints `name==version` of each package at the top of node_modules, as one JSON list.
const fs = require("fs");
const top = "node_modules";
const folders = fs.existsSync(top) ? fs.readdirSync(top) : [];
const names = folders.flatMap((name) => (name[0] === "@" ? fs.readdirSync(`${top}/${name}`).map((inner) => `${name}/${inner}`) : [name]));
const manifests = names.map((name) => `${top}/${name}/package.json`).filter((path) => fs.existsSync(path));
const found = manifests.map((path) => JSON.parse(fs.readFileSync(path, "utf8"))).map((m) => `${m.name}==${m.version}`);
console.log(JSON.stringify(found));
