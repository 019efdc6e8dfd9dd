"""npm, go and cargo checkouts end to end in real sandboxes, from a registry on the loopback."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import zipfile
from collections.abc import AsyncIterator

import pytest

from sandbox.install.installer import install, recipe_of
from sandbox.install.recipes.cargo import needs_crates, targets
from sandbox.install.recipes.cargo import test_files as rust_files
from sandbox.install.recipes.errors import Reason
from sandbox.install.recipes.go import test_folders as go_folders
from sandbox.install.recipes.npm import project
from sandbox.repositories.checkout import Checkout
from sandbox.repositories.history import TreeFile
from tests.sandbox.network.local_registry import LocalRegistry
from tests.sandbox.network.running import upstreams_of

GO = {
    "go.mod": "module example.org/sums\n\ngo 1.18\n\nrequire example.org/lib v1.0.0\n",
    "sums.go": 'package sums\n\nimport "example.org/lib"\n\n// Add adds.\nfunc Add(a, b int) int { return lib.Same(a) + b }\n',
    "sums_test.go": 'package sums\n\nimport "testing"\n\n'
    'func TestAdd(t *testing.T) {\n\tif Add(2, 3) != 5 {\n\t\tt.Fatal("sum")\n\t}\n}\n',
    "inner/inner.go": "package inner\n\nfunc One() int { return 1 }\n",
    "inner/inner_test.go": 'package inner\n\nimport "testing"\n\n'
    "func TestOne(t *testing.T) {\n\tif One() != 1 {\n\t\tt.Fatal()\n\t}\n}\n",
    "tool.py": "print('a tool beside it')\n",
}
CARGO = {
    "Cargo.toml": '[package]\nname = "sums"\nversion = "0.3.0"\nedition = "2018"\n',
    "src/lib.rs": "pub fn add(a: i32, b: i32) -> i32 {\n    a + b\n}\n\n#[cfg(test)]\nmod tests {\n    #[test]\n"
    "    fn nothing() {\n        assert_eq!(super::add(4, 0), 4);\n    }\n}\n",
    "tests/sums.rs": "#[test]\nfn adds() {\n    assert_eq!(sums::add(2, 3), 5);\n}\n",
}
NODE = {
    "package.json": json.dumps(
        {
            "name": "sums",
            "version": "1.0.0",
            "main": "sums.js",
            "scripts": {"test": "node --test"},
            "dependencies": {"left": "^1.0.0"},
        }
    ),
    ".gitignore": "node_modules\n",
    "sums.js": "const left = require('left');\nexports.left = left;\nexports.add = (a, b) => a + b;\n",
    "sums.test.js": "const { test } = require('node:test');\nconst assert = require('node:assert');\n"
    "const { add, left } = require('./sums.js');\n"
    "test('adds', () => assert.strictEqual(add(2, 3), 5));\ntest('has left', () => assert.strictEqual(left, '1.2.0'));\n",
}


def checkout(files: dict[str, str]) -> Checkout:
    return Checkout("sums", "1.0", {path: TreeFile(text.encode()) for path, text in files.items()})


def needs(*programs: str) -> pytest.MarkDecorator:
    missing = [name for name in programs if shutil.which(name, path="/usr/local/bin:/usr/bin:/bin") is None]
    return pytest.mark.skipif(bool(missing), reason=f"not on this machine: {', '.join(missing)}")


def old_cargo() -> bool:
    found = subprocess.run(["/usr/bin/cargo", "--version"], capture_output=True, text=True, check=False, timeout=60)
    return tuple(map(int, found.stdout.split()[1].split(".")[:2])) < (1, 68)


@pytest.fixture
async def registry() -> AsyncIterator[LocalRegistry]:
    async with LocalRegistry() as made:
        yield made


@pytest.mark.timeout(600)
@needs("npm", "node")
async def test_npm(backend, environments, registry):
    """Packages lie outside the checkout, and nothing of npm's own is left."""
    registry.add_npm("left", "1.2.0", main="index.js")
    log: list[str] = []
    record = await install(
        environments, checkout(NODE), backend=backend, upstreams=upstreams_of(registry), log=log.append
    )
    assert record.built is not None, (record.problem, log[-30:])
    assert (record.language, record.framework, record.packages) == ("npm", "node", ("left==1.2.0",))
    assert set(record.built.tests) == {"sums.test.js::adds", "sums.test.js::has left"}
    assert (record.evidence.repeatable, record.evidence.unseen_met, len(record.goals.goals)) == (True, 7, 10)
    async with await backend.start(environments.spec(record.built.environment)) as box:
        shown = await box.exec("readlink node_modules; git status --short; ls -d ~/.npm; npm config get registry")
        lines = shown.output.decode().splitlines()
        assert lines[0] == "../node_modules" and lines[1].startswith("ls: cannot") and "127.0.0.1" not in lines[2]


@pytest.mark.slow
@pytest.mark.timeout(600)
@needs("go")
async def test_go(backend, environments, registry):
    """Modules and compiled dependencies are kept, the checkout's own compiled packages are not."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("example.org/lib@v1.0.0/go.mod", "module example.org/lib\n\ngo 1.18\n")
        archive.writestr("example.org/lib@v1.0.0/lib.go", "package lib\n\nfunc Same(a int) int { return a }\n")
    base = "/go/example.org/lib/@v"
    registry.files[f"{base}/list"] = b"v1.0.0\n"
    registry.files[f"{base}/v1.0.0.info"] = b'{"Version": "v1.0.0", "Time": "2024-01-01T00:00:00Z"}'
    registry.files[f"{base}/v1.0.0.mod"] = b"module example.org/lib\n\ngo 1.18\n"
    registry.files[f"{base}/v1.0.0.zip"] = packed.getvalue()
    log: list[str] = []
    record = await install(
        environments, checkout(GO), backend=backend, upstreams=upstreams_of(registry), log=log.append
    )
    assert record.built is not None, (record.problem, log[-30:])
    assert (record.language, record.framework, record.packages) == ("go", "go", ("example.org/lib==v1.0.0",))
    assert set(record.built.tests) == {".::TestAdd", "inner::TestOne"}
    assert (record.evidence.repeatable, record.evidence.unseen_met) == (True, 7)


@pytest.mark.slow
@pytest.mark.timeout(600)
@needs("cargo", "rustc")
async def test_cargo_without_crates(backend, environments, registry):
    log: list[str] = []
    record = await install(
        environments, checkout(CARGO), backend=backend, upstreams=upstreams_of(registry), log=log.append
    )
    assert record.built is not None, (record.problem, log[-30:])
    assert (record.language, record.framework, record.packages) == ("cargo", "cargo", ())
    assert set(record.built.tests) == {"src/lib.rs::tests::nothing", "tests/sums.rs::adds"}
    async with await backend.start(environments.spec(record.built.environment)) as box:
        shown = await box.exec(
            "cat ~/.cargo/config.toml; find ~/.cargo/target -name '*sums*' | head; git status --short"
        )
        said = shown.output.decode()
        assert 'replace-with = "vendored"' in said and "127.0.0.1" not in said and "libsums" not in said


@pytest.mark.slow
@pytest.mark.timeout(600)
@needs("cargo", "rustc")
async def test_cargo_with_crates(backend, environments, registry):
    """Where cargo is too old for a sparse registry, the reason says so."""
    registry.add_crate("tree", "1.2.0")
    files = CARGO | {"Cargo.toml": CARGO["Cargo.toml"] + '\n[dependencies]\ntree = "1"\n'}
    log: list[str] = []
    record = await install(
        environments, checkout(files), backend=backend, upstreams=upstreams_of(registry), log=log.append
    )
    if old_cargo():
        assert record.reason == Reason.LANGUAGE_VERSION, (record.problem, log[-30:])
        assert "sparse" in record.problem
    else:
        assert record.built is not None, (record.problem, log[-30:])
        assert record.packages == ("tree==1.2.0",)


@pytest.mark.parametrize(
    ("files", "language"),
    [(GO, "go"), (CARGO, "cargo"), (NODE, "npm"), (NODE | {"setup.py": ""}, "python"),
     (CARGO | {"pyproject.toml": ""}, "python")],
)  # fmt: skip
def test_which_recipe_applies(files, language):
    found = checkout(files)
    recipe = recipe_of(found)
    assert recipe.language == language
    goals = recipe.goals(found)
    assert len(goals) == 10 and sum(goal.kind == "suite" for goal in goals) <= 1


def test_where_tests_of_other_languages_are():
    go = {"a/x_test.go": "", "testdata/y_test.go": "", "sub/go.mod": "", "sub/z_test.go": "", "m_test.go": ""}
    assert go_folders(checkout(go)) == [".", "a"]
    found = checkout(
        CARGO | {"src/main.rs": "fn main() {}\n#[test]\nfn m() {}\n", "examples/e.rs": "#[test]\nfn e() {}\n"}
    )
    assert targets(found, rust_files(found)) == ("src/lib.rs", "src/main.rs", "tests/sums.rs")
    assert not needs_crates(found)
    assert needs_crates(checkout({"Cargo.toml": '[target."cfg(unix)".dev-dependencies]\nlibc = "0.2"\n'}))
    assert not needs_crates(checkout({"Cargo.toml": '[dependencies]\nown = {path = "own"}\n'}))


@pytest.mark.parametrize(
    ("manifest", "files", "framework", "found"),
    [
        ({"scripts": {"test": "vitest run"}}, ["src/a.test.ts", "dist/a.test.js"], "vitest", ("src/a.test.ts",)),
        ({"devDependencies": {"jest": "^29"}}, ["__tests__/a.js", "b.spec.jsx", "node_modules/c.test.js"], "jest",
         ("__tests__/a.js", "b.spec.jsx")),
        ({"scripts": {"test": "nyc mocha"}}, ["test/a.js", "lib/b.js"], "mocha", ("test/a.js",)),
        ({}, ["a.js"], None, ()),
    ],
)  # fmt: skip
def test_frameworks_of_javascript(manifest, files, framework, found):
    made = checkout({"package.json": json.dumps(manifest), **dict.fromkeys(files, "")})
    assert project.framework(made) == framework
    assert (project.test_files(made, framework) if framework else ()) == found
