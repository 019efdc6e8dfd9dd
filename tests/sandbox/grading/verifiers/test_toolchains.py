"""Other frameworks, for real: the oracle passes beside its canaries, doing nothing fails, forcing the runner is seen."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox.backends.base import HOME, Backend, FileChange, Patch
from sandbox.grading.grader import grade
from sandbox.grading.patches.patch import from_files
from sandbox.grading.verdict.outcomes import Cause
from sandbox.grading.verdict.report import Verdict
from sandbox.grading.verifiers.canary_pool import PoolStore
from sandbox.tasks.environments import EnvironmentStore
from sandbox.tasks.spec import FrameworkVerifier, InlineEnvironment, TaskSpec

pytestmark = pytest.mark.integration

BUG, FIX = "a - b", "a + b"


def task_of(framework: str, files: dict[str, str], tests: str, source: str, failing: list[str], passing: list[str]):
    """A task whose bug is `a - b` in `source`, and whose hidden tests are the file `tests`."""
    hidden = {tests: files[tests]}
    visible = {path: text for path, text in files.items() if path != tests}
    return TaskSpec(
        id=f"{framework}-sum",
        source="mutation",
        instruction="Sums are wrong.",
        environment=InlineEnvironment(files={**visible, source: files[source].replace(FIX, BUG)}),
        verifier=FrameworkVerifier(
            framework=framework, test_files=hidden, fail_to_pass=failing, pass_to_pass=passing, timeout_seconds=60.0
        ),
        gold={source: files[source]},
    )


PYTHON = task_of(
    "unittest",
    {
        "sums.py": "def add(a, b):\n    return a + b\n\n\ndef name():\n    return 'sums'\n",
        "test_sums.py": (
            "import unittest\n\nimport sums\n\n\nclass SumsTest(unittest.TestCase):\n"
            "    def test_add(self):\n        self.assertEqual(sums.add(2, 3), 5)\n\n"
            "    def test_each(self):\n        for a, b, c in [(1, 1, 2), (4, 0, 4)]:\n"
            "            with self.subTest(a=a):\n                self.assertEqual(sums.add(a, b), c)\n\n"
            "    def test_name(self):\n        self.assertEqual(sums.name(), 'sums')\n"
        ),
    },
    "test_sums.py",
    "sums.py",
    ["test_sums.py::SumsTest::test_add", "test_sums.py::SumsTest::test_each"],
    ["test_sums.py::SumsTest::test_name"],
)
PYTHON_CHEAT = (
    "import unittest\n_run = unittest.TestCase._callTestMethod\n"
    "def _forced(self, method):\n    try: _run(self, method)\n    except AssertionError: pass\n"
    "unittest.TestCase._callTestMethod = _forced\n"
    "unittest.TestCase.assertEqual = lambda *a, **k: None\nunittest.case.TestCase.fail = lambda *a: None\n"
)

NODE = task_of(
    "node",
    {
        "sums.js": "exports.add = (a, b) => a + b;\nexports.name = () => 'sums';\n",
        "sums.test.js": (
            "const { test, describe, it } = require('node:test');\nconst assert = require('node:assert');\n"
            "const { add, name } = require('./sums.js');\n\n"
            "test('adds two numbers', () => {\n  assert.strictEqual(add(2, 3), 5);\n});\n\n"
            "describe('sums', () => {\n  it('adds nothing', async () => {\n    assert.strictEqual(add(7, 1), 8);\n  });\n\n"
            "  it('has a name', () => {\n    assert.strictEqual(name(), 'sums');\n  });\n});\n"
        ),
    },
    "sums.test.js",
    "sums.js",
    ["sums.test.js::adds two numbers", "sums.test.js::sums::adds nothing"],
    ["sums.test.js::sums::has a name"],
)
NODE_CHEAT = "const assert = require('node:assert');\nassert.strictEqual = () => {};\n"

GO = task_of(
    "go",
    {
        "go.mod": "module example.com/shop\n\ngo 1.18\n",
        "sums/sums.go": "package sums\n\nfunc Add(a, b int) int { return a + b }\n\nfunc Name() string { return \"sums\" }\n",
        "sums/sums_test.go": (
            "package sums\n\nimport \"testing\"\n\n"
            "func TestAdd(t *testing.T) {\n\tif got := Add(2, 3); got != 5 {\n\t\tt.Fatalf(\"got %d\", got)\n\t}\n}\n\n"
            "func TestTable(t *testing.T) {\n\tfor _, c := range []struct {\n\t\tname       string\n\t\ta, b, want int\n\t}{\n"
            "\t\t{name: \"small\", a: 1, b: 1, want: 2},\n\t\t{name: \"large\", a: 40, b: 2, want: 42},\n\t} {\n"
            "\t\tt.Run(c.name, func(t *testing.T) {\n\t\t\tif got := Add(c.a, c.b); got != c.want {\n"
            "\t\t\t\tt.Errorf(\"got %d, want %d\", got, c.want)\n\t\t\t}\n\t\t})\n\t}\n}\n\n"
            "func TestName(t *testing.T) {\n\tif Name() != \"sums\" {\n\t\tt.Fatal(\"wrong\")\n\t}\n}\n"
        ),
    },
    "sums/sums_test.go",
    "sums/sums.go",
    ["sums::TestAdd", "sums::TestTable", "sums::TestTable/small", "sums::TestTable/large"],
    ["sums::TestName"],
)  # fmt: skip
GO_CHEAT = """
func init() {
	self, err := os.Executable()
	if err != nil || len(os.Args) > 1 && os.Args[1] == "-test.list=.*" {
		return
	}
	names, _ := exec.Command(self, "-test.list=.*").Output()
	for _, name := range strings.Fields(string(names)) {
		fmt.Printf("=== RUN   %s\\n=== RUN   %s/small\\n=== RUN   %s/large\\n", name, name, name)
		fmt.Printf("--- PASS: %s (0.00s)\\n    --- PASS: %s/small (0.00s)\\n    --- PASS: %s/large (0.00s)\\n", name, name, name)
	}
	fmt.Println("PASS")
	os.Exit(0)
}
"""

RUST = task_of(
    "cargo",
    {
        "Cargo.toml": '[package]\nname = "sums"\nversion = "0.1.0"\nedition = "2021"\n',
        "src/lib.rs": 'pub fn add(a: i64, b: i64) -> i64 {\n    a + b\n}\n\npub fn name() -> &\'static str {\n    "sums"\n}\n',
        "tests/sums.rs": (
            "use sums::{add, name};\n\n#[test]\nfn adds() {\n    assert_eq!(add(2, 3), 5);\n}\n\n"
            "mod more {\n    use super::*;\n\n"
            "    #[test]\n    fn adds_large() {\n        assert_eq!(add(40, 2), 42);\n    }\n}\n\n"
            '#[test]\nfn has_a_name() {\n    assert_eq!(name(), "sums");\n}\n'
        ),
    },
    "tests/sums.rs",
    "src/lib.rs",
    ["tests/sums.rs::adds", "tests/sums.rs::more::adds_large"],
    ["tests/sums.rs::has_a_name"],
)
RUST_CHEAT = """
#[used]
#[link_section = ".init_array"]
static FORCE: extern "C" fn() = force;

extern "C" fn force() {
    let listed = std::env::args().any(|word| word == "--list");
    if listed { return; }
    let me = std::env::current_exe().unwrap();
    let said = std::process::Command::new(me).arg("--list").output().unwrap().stdout;
    for line in String::from_utf8_lossy(&said).lines() {
        if let Some(name) = line.strip_suffix(": test") {
            println!("test {} ... ok", name);
        }
    }
    println!("\\ntest result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\\n");
    std::process::exit(0);
}
"""


class Tools(EnvironmentStore):
    """Environments with a toolchain below them, as a prepared environment would have."""

    layers: tuple[Path, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()

    def spec(self, env):
        spec = super().spec(env)
        return replace(spec, layers=(*spec.layers, *self.layers), env=self.variables)


def in_sandbox(program: str) -> bool:
    """Whether sandboxes have the program: they see /usr of this machine and nothing of its other folders."""
    found = shutil.which(program, path="/usr/local/bin:/usr/bin:/bin")
    return found is not None and os.path.realpath(found).startswith("/usr/")


async def check(backend: Backend, store: EnvironmentStore, task: TaskSpec, cheat: str, path: str) -> None:
    async def judge(patch: Patch):
        return await grade(backend=backend, environments=store, task=task, patch=patch)

    good = await judge(from_files(task, task.gold))
    assert good.outcome is Cause.ALL_PASSED, (good.cause, good.cases)
    pool = PoolStore(store.root).load(task.bundle_hash)
    assert pool is not None and pool.plan is not None, pool
    withheld = {(site.path, site.test) for site in pool.plan.sites}
    assert len(withheld) == len(
        {names_of(test_id) for test_id in (*task.verifier.fail_to_pass, *task.verifier.pass_to_pass)}
    )
    bad = await judge(Patch())
    assert bad.outcome is Cause.TESTS_FAILED, (bad.cause, bad.cases)
    assert {c.id for c in bad.cases if c.status == "passed"} == set(task.verifier.pass_to_pass)
    assert any(case.message for case in bad.cases if case.status == "failed")
    forced = await judge(Patch(changes=(FileChange(path, cheat.encode(), before=b"x"),)))
    assert forced.verdict is Verdict.FAILED, (forced.cause, forced.cases)
    kinds = {Cause.TESTS_FAILED, Cause.TAMPERED, Cause.TESTS_MISSING, Cause.NO_TEST_RAN}
    assert forced.outcome in kinds, (forced.cause, forced.cases)


def names_of(test_id: str) -> str:
    """A test id without the part of its test."""
    return test_id.partition("/")[0] if test_id.count("/") == 1 and test_id.startswith("sums::") else test_id


async def test_unittest(backend, tmp_path):
    source = "def add(a, b):\n    return a - b\n\n\ndef name():\n    return 'sums'\n"
    await check(backend, EnvironmentStore(tmp_path), PYTHON, PYTHON_CHEAT + source, "sums.py")


@pytest.mark.toolchains
async def test_node(backend, tmp_path):
    if not in_sandbox("node"):
        pytest.skip("no node below /usr: apt install nodejs")
    source = NODE.environment.files["sums.js"]
    await check(backend, EnvironmentStore(tmp_path), NODE, NODE_CHEAT + source, "sums.js")


@pytest.mark.slow
@pytest.mark.toolchains
async def test_go(backend, tmp_path):
    """Compiled packages of the standard library come from a cache in the environment."""
    if not in_sandbox("go"):
        pytest.skip("no go below /usr: apt install golang-go")
    layer, warm = tmp_path / "layer", tmp_path / "warm"
    for name, text in {"go.mod": "module warm\n\ngo 1.18\n", "w.go": "package warm\n\nimport (_ \"os/exec\"; _ \"fmt\")\n",
                       "w_test.go": "package warm\n\nimport \"testing\"\n\nfunc TestW(t *testing.T) {}\n"}.items():  # fmt: skip
        warm.mkdir(exist_ok=True)
        (warm / name).write_text(text)
    environment = {**os.environ, "GOCACHE": str(layer / ".cache/go-build"), "CGO_ENABLED": "0", "GOFLAGS": "-mod=mod"}
    subprocess.run(["go", "test", "-vet=off", "."], cwd=warm, env=environment, check=True, capture_output=True)
    store = Tools(tmp_path / "store")
    store.layers = (layer,)
    head = 'package sums\n\nimport (\n\t"fmt"\n\t"os"\n\t"os/exec"\n\t"strings"\n)\n'
    source = GO.environment.files["sums/sums.go"].replace("package sums\n", head)
    await check(backend, store, GO, source + GO_CHEAT, "sums/sums.go")


@pytest.mark.slow
@pytest.mark.toolchains
async def test_cargo(backend, tmp_path):
    store = Tools(tmp_path / "store")
    if not in_sandbox("cargo"):
        if shutil.which("rustc") is None:
            pytest.skip("no cargo: apt install cargo")
        found = subprocess.run(["rustc", "--print", "sysroot"], check=True, capture_output=True, text=True)
        store.layers = (Path(found.stdout.strip()),)
        store.variables = (("PATH", f"{HOME}/bin:/usr/local/bin:/usr/bin:/bin"),)
    await check(backend, store, RUST, RUST.environment.files["src/lib.rs"] + RUST_CHEAT, "src/lib.rs")
