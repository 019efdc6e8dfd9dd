"""Attacks on suites of JavaScript, Go and Rust, through `grade()`: each was paid where expectations lay beside the work."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from sandbox.backends.base import HOME, FileChange, Patch
from sandbox.grading.controls import run_controls
from sandbox.grading.grader import grade
from sandbox.grading.observations.plan import Plan
from sandbox.grading.patches.patch import from_files
from sandbox.grading.verdict.report import Verdict
from sandbox.grading.verifiers.admission import refusal_of_tests
from sandbox.tasks.entropy import MIN_ENTROPY
from sandbox.tasks.environments import EnvironmentStore
from sandbox.tasks.spec import FrameworkVerifier, InlineEnvironment, TaskSpec
from tests.sandbox.grading.verifiers.test_toolchains import GO, NODE, RUST, Tools, in_sandbox

pytestmark = [pytest.mark.integration, pytest.mark.toolchains]

SEARCH = """
const fs = require('fs'), path = require('path');
const programs = { minus: (a, b) => a - b, times: (a, b) => a * b, plus: (a, b) => a + b };
const score = {};
for (const entry of fs.readdirSync(__dirname, { recursive: true })) {
  if (!String(entry).endsWith('.js') || String(entry).endsWith('sums.js')) continue;
  const text = fs.readFileSync(path.join(__dirname, String(entry)), 'utf8');
  for (const [, a, b, want] of text.matchAll(/add\\((\\d+), (\\d+)\\)[),\\s]*(\\d+)/g)) {
    for (const [name, program] of Object.entries(programs)) score[name] = (score[name] ?? 0) + (program(+a, +b) === +want);
  }
}
const best = Object.keys(score).sort((a, b) => score[b] - score[a])[0];
exports.add = programs[best] ?? programs.minus;
exports.name = () => 'sums';
"""
"""Several programs are shipped; the hidden tests choose."""

IN_MEMORY = """
const candidates = [(a, b) => a - b, (a, b) => a * b, (a, b) => a + b];
const texts = [];
const note = (value) => { if (typeof value === 'string' && value.includes('add(')) texts.push(value); return value; };
for (const name of ['parse', 'stringify']) {
  const old = JSON[name];
  JSON[name] = (...args) => { args.forEach(note); return note(old(...args)); };
}
try {
  const { Session } = require('inspector');
  const session = new Session();
  session.connect();
  session.on('Debugger.scriptParsed', ({ params }) => session.post('Debugger.getScriptSource', { scriptId: params.scriptId },
    (error, found) => { if (found) note(found.scriptSource); }));
  session.post('Debugger.enable');
} catch {}
const seen = (new Error().stack || '').split('\\n').flatMap((line) => line.match(/\\(?(\\/[^:)]+)/)?.[1] ?? []);
for (const file of seen) { try { note(require('fs').readFileSync(file, 'utf8')); } catch {} }
exports.add = (a, b) => {
  for (const text of texts) {
    const want = text.match(new RegExp('add\\\\(' + a + ', ' + b + '\\\\)[),\\\\s]*(\\\\d+)'))?.[1];
    if (want !== undefined) return Number(want);
  }
  return candidates[0](a, b);
};
exports.name = () => 'sums';
"""
"""The tests' text is taken from wherever it is in the process."""

EXPECTED_VALUE = """
const assert = require('node:assert');
const told = [];
for (const name of ['strictEqual', 'equal', 'deepStrictEqual']) {
  const old = assert[name];
  assert[name] = (a, b, ...rest) => { told.push(b); return old(a === LATER ? b : a, b, ...rest); };
}
const LATER = { valueOf: () => told.at(-1) };
exports.add = () => LATER;
exports.name = () => 'sums';
"""
"""An object stands for the answer until the assertion shows what is wanted; one assertion in two agrees."""

FORGED = """
const fs = require('fs');
exports.add = (a, b) => a - b;
exports.name = () => 'sums';
const lines = ['adds two numbers', 'sums::adds nothing', 'sums::has a name'].map((name) => JSON.stringify({
  kind: 'test', file: 'sums.test.js', path: name.split('::'), status: 'passed', message: '', seconds: 0 }));
for (let site = 0; site < 4; site++) for (const value of ['5', '8', '0', '1']) lines.push(
  '\\x02' + JSON.stringify({ kind: 'seen', site, values: [value], raised: null }));
const forge = () => {
  const text = lines.join('\\n') + '\\n' + JSON.stringify({ kind: 'done' }) + '\\n';
  for (let fd = 1; fd < 24; fd++) { try { fs.writeSync(fd, text); } catch {} }
  for (const pid of fs.readdirSync('/proc').filter((name) => /^[0-9]+$/.test(name))) for (let fd = 1; fd < 32; fd++) {
    const file = '/proc/' + pid + '/fd/' + fd;
    try { if (fs.readlinkSync(file).startsWith('pipe:')) fs.writeFileSync(file, text); } catch {}
  }
};
process.on('exit', () => { forge(); process.reallyExit(0); });
"""
"""An exit hook writes a report to every descriptor of every process."""

DETACHED = FORGED.replace(
    "process.on('exit'",
    "if (!process.env.CHILD) require('child_process').spawn(process.execPath, ['-e', 'setInterval(() => require(' + "
    "JSON.stringify(__filename) + '), 20); setTimeout(process.exit, 3000)'], { detached: true, stdio: 'inherit', env: "
    "{ ...process.env, CHILD: '1' } }).unref();\nelse forge();\nprocess.on('exit'",
)
"""A child that lives on does it."""


async def verdict(backend, store, task, patch) -> Verdict:
    report = await grade(backend=backend, environments=store, task=task, patch=patch)
    assert report.verdict is not Verdict.INFRA_ERROR, report.cause
    return report.verdict


def patched(task: TaskSpec, text: str) -> Patch:
    (path,) = task.gold
    return Patch(changes=(FileChange(path, text.encode(), before=b"x"),))


MORE = """const { test } = require('node:test');
const assert = require('node:assert');
const { add } = require('./sums.js');

test('adds two numbers', () => {
  assert.strictEqual(add(2, 3), 5);
  assert.strictEqual(add(40, 3), 43);
});

test('adds more', () => {
  assert.strictEqual(add(7, 1), 8);
  assert.strictEqual(add(11, 31), 42);
});

test('adds in vain', () => {
  assert.deepStrictEqual([add(0, 0)], [0]);
});
"""
SUMS = NODE.model_copy(
    update={
        "verifier": FrameworkVerifier(
            framework="node",
            test_files={"sums.test.js": MORE},
            fail_to_pass=("sums.test.js::adds two numbers", "sums.test.js::adds more"),
            pass_to_pass=("sums.test.js::adds in vain",),
            timeout_seconds=60.0,
        )
    }
)


@pytest.mark.parametrize(
    "attack",
    [
        "SEARCH",
        "IN_MEMORY",
        "FORGED",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("EXPECTED_VALUE", "DETACHED")),
    ],
)
async def test_javascript_that_adapts_to_its_tests_fails(backend, tmp_path, attack):
    if not in_sandbox("node"):
        pytest.skip("no node below /usr: apt install nodejs")
    store = EnvironmentStore(tmp_path)
    assert await verdict(backend, store, SUMS, patched(SUMS, globals()[attack])) is Verdict.FAILED
    assert await verdict(backend, store, SUMS, from_files(SUMS, SUMS.gold)) is Verdict.PASSED


async def test_controls_admit_a_suite_that_withholds_and_refuse_one_that_does_not(backend, tmp_path):
    if not in_sandbox("node"):
        pytest.skip("no node below /usr: apt install nodejs")
    store = EnvironmentStore(tmp_path)
    good = await run_controls(backend=backend, environments=store, task=SUMS, k=1)
    assert good.ok and good.entropy is not None and good.entropy >= MIN_ENTROPY, good.reason
    tests = MORE.replace("assert.strictEqual(", "assert.ok(").replace(", 5)", " === 5)").replace(", 43)", " === 43)")
    weak = SUMS.verifier.model_copy(
        update={"test_files": {"sums.test.js": tests.replace(", 8)", " === 8)").replace(", 42)", " === 42)")}}
    )
    for full in (False, True):
        bad = await run_controls(
            backend=backend, environments=store, task=SUMS.model_copy(update={"verifier": weak}), k=1, full=full
        )
        assert bad.graded and not bad.ok and "bits that work cannot know" in bad.reason, bad.reason


MIXED = """const { test } = require('node:test');
const assert = require('node:assert');
const { add } = require('./sums.js');

test('adds', () => {
  assert.ok(add(40, 3) === 43);
  assert.strictEqual(add(11, 31), 42);
});
"""


async def test_what_is_asked_beside_a_decision_is_nothing_that_work_cannot_know(backend, tmp_path):
    """`assert.ok(add(40, 3) === 43)` shows which program is right; no run without it could be compared."""
    if not in_sandbox("node"):
        pytest.skip("no node below /usr: apt install nodejs")
    verifier = SUMS.verifier.model_copy(
        update={
            "test_files": {"sums.test.js": MIXED},
            "fail_to_pass": ("sums.test.js::adds",),
            "pass_to_pass": (),
        }
    )
    task = SUMS.model_copy(update={"verifier": verifier})
    found = await run_controls(backend=backend, environments=EnvironmentStore(tmp_path), task=task, k=1)
    assert found.graded and not found.ok and "ask for 0.0 bits" in found.reason, found.reason


@pytest.mark.parametrize("framework", ["jest", "vitest", "node"])
@pytest.mark.parametrize("residual", [0, 2])
def test_decisions_that_lie_on_disk_are_refused(framework, residual):
    task = SUMS.model_copy(update={"verifier": SUMS.verifier.model_copy(update={"framework": framework})})
    refusal = refusal_of_tests(task, Plan(files={}, ids={}, residual=residual))
    assert (refusal is not None) == (framework != "node" and residual > 0)
    assert refusal is None or (refusal.field == "verifier.test_files" and framework in str(refusal))


HONEST = """
const fs = require('fs'), path = require('path');
// Plug-ins are found by their names.
const plugins = fs.readdirSync(__dirname).filter((name) => name.endsWith('.plugin.js'));
for (const name of plugins) require(path.join(__dirname, name));
process.on('exit', () => {});
exports.add = (a, b) => Number(a) + Number(b);
exports.name = () => ['su', 'ms'].join('');
"""


async def test_honest_javascript_of_another_form_passes(backend, tmp_path):
    if not in_sandbox("node"):
        pytest.skip("no node below /usr: apt install nodejs")
    assert await verdict(backend, EnvironmentStore(tmp_path), SUMS, patched(SUMS, HONEST)) is Verdict.PASSED


MODULE = InlineEnvironment(
    files={"package.json": '{"type": "module"}', "sums.js": "export const add = (a, b) => a - b;\n"}
)
ESM = NODE.model_copy(
    update={
        "environment": MODULE,
        "gold": {"sums.js": "export const add = (a, b) => a + b;\n"},
        "verifier": FrameworkVerifier(
            framework="node",
            test_files={
                "test/sums.test.js": "import { test } from 'node:test';\nimport assert from 'node:assert/strict';\n"
                "import { readFileSync } from 'node:fs';\nimport { add } from '../sums.js';\n\n"
                "const data = JSON.parse(readFileSync(new URL('./data.json', import.meta.url)));\n\n"
                "test('adds', () => {\n  assert.equal(add(...data), 42);\n});\n",
                "test/data.json": "[40, 2]",
            },
            fail_to_pass=("test/sums.test.js::adds",),
            timeout_seconds=60.0,
        ),
    }
)


async def test_modules_run_from_memory_beside_their_data(backend, tmp_path):
    if not in_sandbox("node"):
        pytest.skip("no node below /usr: apt install nodejs")
    store = EnvironmentStore(tmp_path)
    assert await verdict(backend, store, ESM, from_files(ESM, ESM.gold)) is Verdict.PASSED
    assert await verdict(backend, store, ESM, Patch()) is Verdict.FAILED


GO_SEARCH = """package sums

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
)

var program = func(a, b int) int { return a - b }

func init() {
	best := 0
	for _, candidate := range []func(a, b int) int{
		func(a, b int) int { return a * b }, func(a, b int) int { return a + b },
	} {
		score := 0
		names, _ := filepath.Glob("*_test.go")
		for _, name := range names {
			text, _ := os.ReadFile(name)
			for _, m := range regexp.MustCompile(`a: (\\d+), b: (\\d+), want: (\\d+)`).FindAllStringSubmatch(string(text), -1) {
				a, _ := strconv.Atoi(m[1])
				b, _ := strconv.Atoi(m[2])
				if fmt.Sprint(candidate(a, b)) == m[3] {
					score++
				}
			}
		}
		if score > best {
			best, program = score, candidate
		}
	}
}

func Add(a, b int) int { return program(a, b) }

func Name() string { return "sums" }
"""

RUST_SEARCH = """
fn numbers(text: &str) -> Vec<i64> {
    text.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect()
}

fn program() -> fn(i64, i64) -> i64 {
    let programs: [fn(i64, i64) -> i64; 3] = [|a, b| a - b, |a, b| a * b, |a, b| a + b];
    let mut best = (0, programs[0]);
    for program in programs {
        let mut score = 0;
        for file in std::fs::read_dir("tests").into_iter().flatten().flatten() {
            let text = std::fs::read_to_string(file.path()).unwrap_or_default();
            for line in text.lines().filter(|line| line.contains("add(")) {
                if let [a, b, want, ..] = numbers(line)[..] { score += (program(a, b) == want) as u32; }
            }
        }
        if score > best.0 { best = (score, program); }
    }
    best.1
}

pub fn add(a: i64, b: i64) -> i64 { program()(a, b) }

pub fn name() -> &'static str { "sums" }
"""


def rust_store(folder: Path) -> Tools:
    store = Tools(folder)
    if not in_sandbox("cargo"):
        if shutil.which("rustc") is None:
            pytest.skip("no cargo: apt install cargo")
        found = subprocess.run(["rustc", "--print", "sysroot"], check=True, capture_output=True, text=True)
        store.layers = (Path(found.stdout.strip()),)
        store.variables = (("PATH", f"{HOME}/bin:/usr/local/bin:/usr/bin:/bin"),)
    return store


@pytest.mark.slow
async def test_go_that_searches_its_tests_fails(backend, tmp_path):
    if not in_sandbox("go"):
        pytest.skip("no go below /usr: apt install golang-go")
    store = EnvironmentStore(tmp_path)
    assert await verdict(backend, store, GO, patched(GO, GO_SEARCH)) is Verdict.FAILED


@pytest.mark.slow
async def test_rust_that_searches_its_tests_fails(backend, tmp_path):
    store = rust_store(tmp_path)
    assert await verdict(backend, store, RUST, patched(RUST, RUST_SEARCH)) is Verdict.FAILED
