"""Stage 1 for Python: derive the goals of an installed checkout from project files alone."""

from __future__ import annotations

import hashlib
import re
import shlex

from sandbox.backends.base import WORKDIR
from sandbox.install.recipes.goals import COUNT, SHARE, Expect, Goal
from sandbox.install.recipes.python import project, setup
from sandbox.repositories.checkout import Checkout, strings

TEST_SECONDS = 300.0
FILES_TRIED = 3
FEW = 60
"""A test file with more plain tests than this is taken where no other is there: a goal is to show something, soon."""
FILL = (
    (
        "python -c \"import sysconfig; print(sysconfig.get_path('purelib'))\"",
        "a folder of the virtual environment",
        r"/\.venv/",
    ),
    ("ls", "the checkout's files", r"\w"),
    ('python -c "import pytest; print(pytest.__file__)"', "pytest of the virtual environment", r"/\.venv/"),
    ("git --version", "git's version", r"git version \d"),
    ("command -v python3", "the interpreter of the virtual environment", r"/\.venv/"),
    ("python -m pytest --help", "pytest's options", r"usage:"),
)
"""Commands for checkouts that say little: command, what it prints, as a regular expression."""
PLAIN = "-q -p no:cacheprovider"


def configuration(checkout: Checkout, roots: tuple[str, ...]) -> tuple[str, ...]:
    """pytest arguments that take the checkout's own set-up back into the hardened runner; of `addopts`, which tests."""
    file = setup.file(checkout)
    declared = setup.options(checkout).get("pythonpath", "").split()
    path = list(dict.fromkeys([*declared, ".", *roots]))
    if not file:  # pytest takes them from where its settings are, and there are none
        path = [WORKDIR if place == "." else f"{WORKDIR}/{place}" for place in path]
    arguments = ["-c", file] if file else []
    kept = setup.kept_options(checkout)
    if not any(word.startswith("--import-mode") for word in kept):
        kept = ["--import-mode=prepend", *kept]
    # One file that cannot be loaded here (another Python, another system) keeps nobody from running the others.
    kept.append("--continue-on-collection-errors")
    names = setup.patterns(checkout, project.tests_in(checkout))
    named = ["-o", f"python_files={' '.join(names)}"] if names else []
    if "required_plugins" in setup.options(checkout):  # reporters and the like among them, which are not installed
        kept += ["-o", "required_plugins="]
    return (*arguments, *kept, "-o", "addopts=", "-o", f"pythonpath={' '.join(path)}", *named)


def declared(checkout: Checkout) -> list[str]:
    """The package's own dependencies, as far as they are written down."""
    for path in ("PKG-INFO",):
        found = re.findall(r"(?m)^Requires-Dist: *([^\n]+)", checkout.text(path))
        if found:
            return [line for line in found if "extra ==" not in line]
    listed = strings(checkout.table("project").get("dependencies")) or strings(
        checkout.setup_calls.get("install_requires")
    )
    listed = listed or strings(checkout.setup_cfg.get("options", "install_requires", fallback=""))
    return listed or [line for p in ("requirements.txt",) for line in checkout.text(p).splitlines()]


def goals(checkout: Checkout) -> list[Goal]:
    """Ten of them; the later ones fill up where a checkout says little."""
    where = project.layout(checkout)
    paths = project.test_paths(checkout)
    module = where.modules[0]
    found = [
        Goal(
            kind="toolchain", command='python -c "import sys; print(sys.prefix)"',
            description="the path of a virtual environment in the home directory", expect=Expect(pattern=r"/\.venv$"),
        ),
        _import(module, "the module is imported without an error"),
        Goal(
            kind="import", command=f'python -c "import {module} as m; print(m.__file__ or list(m.__path__))"',
            description="the module comes from the checkout, so that edits have an effect", expect=Expect(pattern=r"/repo/"),
        ),
        Goal(
            kind="version",
            command=f"python -c \"from importlib.metadata import version; print('version', version({checkout.name!r}))\"",
            description="the installed package's version", expect=Expect(pattern=r"version \S*\d"),
        ),
        Goal(
            kind="toolchain", command="python -m pytest --version", description="pytest's version",
            expect=Expect(pattern=r"pytest \d"),
        ),
    ]  # fmt: skip
    if paths:
        found.append(_collect(checkout, where, paths))
        found.append(
            Goal(
                kind="suite", command=f"python -m pytest {_options(checkout, where.roots)} {_quoted(paths)}",
                description=f"the whole suite ends and at least {SHARE:.0%} of its tests pass",
                expect=Expect(exit_codes=(0, 1), passed_share=SHARE), seconds=1800.0,
            )
        )  # fmt: skip
        found += [_file(checkout, where.roots, path) for path in _some_files(checkout, paths)]
    found += [_import(name, "a part of the package is imported") for name in where.inner]
    return (found + [Goal(kind="run", command=c, description=d, expect=Expect(pattern=p)) for c, d, p in FILL])[:COUNT]


def _import(module: str, what: str) -> Goal:
    return Goal(
        kind="import", command=f"python -c \"import {module}; print('imported', {module!r})\"", description=what,
        expect=Expect(pattern=f"imported {re.escape(module)}"),
    )  # fmt: skip


def _collect(checkout: Checkout, where: project.Layout, paths: tuple[str, ...]) -> Goal:
    return Goal(
        kind="tests", command=f"python -m pytest --collect-only {_options(checkout, where.roots)} {_quoted(paths)}",
        description="the number of tests collected, at least one", seconds=TEST_SECONDS,
        expect=Expect(exit_codes=(0, 1, 2), pattern=r"(?m)^(?:=+ )?[1-9]\d*(?:/\d+)? tests? collected|^[\w/.\-\[\]]+::\w+"),
    )  # fmt: skip


def _file(checkout: Checkout, roots: tuple[str, ...], path: str) -> Goal:
    return Goal(
        kind="tests", command=f"python -m pytest {_options(checkout, roots)} {shlex.quote(path)}",
        description="the tests of one file run, and at least half of them pass", seconds=TEST_SECONDS,
        expect=Expect(exit_codes=(0, 1), passed_share=0.5),
    )  # fmt: skip


def _options(checkout: Checkout, roots: tuple[str, ...]) -> str:
    words = [w for w in configuration(checkout, roots) if w != "--import-mode=prepend"]  # pytest's own way
    if not setup.file(checkout):
        words = ["-c", "/dev/null", "--rootdir=.", *words]
    return " ".join([PLAIN, *map(shlex.quote, words)])


def _quoted(paths: tuple[str, ...]) -> str:
    return " ".join(map(shlex.quote, paths))


def _some_files(checkout: Checkout, paths: tuple[str, ...]) -> list[str]:
    """A few test files with several plain tests, chosen by the checkout's own content."""
    named = setup.patterns(checkout, project.tests_in(checkout))
    inside = [p for p in checkout.files if any(p == t or t == "." or p.startswith(f"{t}/") for t in paths)]
    counts = {
        path: len(re.findall(r"(?m)^\s*(?:async )?def test", checkout.text(path)))
        for path in inside
        if not setup.may_be_left_out(checkout, path)
        and (path in paths or path.rpartition("/")[2] in named or setup.is_collected(checkout, path))
    }
    rich = [path for path, count in counts.items() if count >= 3]
    drawn = {path: hashlib.sha256(f"{checkout.digest}{path}".encode()).digest() for path in rich}
    return sorted(rich, key=lambda path: (counts[path] > FEW, drawn[path]))[:FILES_TRIED]
