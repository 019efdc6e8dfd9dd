"""Find the packages that a checkout's tests need, from every place where Python projects declare them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from sandbox.repositories.checkout import Checkout, strings

TEST_WORDS = (
    "test",
    "tests",
    "testing",
    "unittest",
    "unittests",
    "test-requirements",
    "tests-require",
    "pytest",
    "check",
)
WIDE_WORDS = ("dev", "develop", "development", "devel", "ci", "all")
"""Looked at only where nothing is named after tests."""
NOT_NEEDED = frozenset(
    [
        "black",
        "flake8",
        "isort",
        "mypy",
        "pylint",
        "ruff",
        "pre-commit",
        "tox",
        "nox",
        "twine",
        "sphinx",
        "build",
        "wheel",
        "bumpversion",
        "bump2version",
        "towncrier",
        "coveralls",
        "codecov",
        "pyright",
        "pytype",
        "pyre-check",
        "bandit",
        "safety",
        "mkdocs",
        "mkdocs-material",
        "furo",
        "sphinx-rtd-theme",
        "interrogate",
        "check-manifest",
        "zest-releaser",
        "commitizen",
        "semantic-release",
        "python-semantic-release",
        "pip-tools",
        "docformatter",
        "autopep8",
        "yapf",
        "pydocstyle",
        "pycodestyle",
        "pyflakes",
        "doc8",
        "blacken-docs",
        "jupyterlab",
        "notebook",
        "ipdb",
        "pudb",
        "tox-gh-actions",
        "tox-uv",
        "coverage",
        "pytest-flake8",
        "pytest-black",
        "pytest-mypy",
        "pytest-pylint",
        "pytest-ruff",
        "pytest-isort",
        "pytest-checkdocs",
        "pytest-enabler",
        "pytest-cov",
        "pytest-sugar",
        "pytest-html",
        "pytest-randomly",
        "pytest-random-order",
        "pytest-forked",
        "pytest-xvfb",
        "pytest-pycodestyle",
        "pytest-pep8",
        "pytest-runner",
        "pytest-watch",
        "pytest-instafail",
        "pytest-pydocstyle",
        "pytest-codestyle",
        "mutmut",
        "scriv",
    ]
)
"""Linters, publishers and reporters: nothing that a test's outcome depends on."""
FILES = re.compile(
    r"(?:^|/)(?:(?:test|tests|testing|dev|ci)[-_.]?requirements?|requirements?[-_.]?(?:test|tests|testing|dev|ci))[^/]*\.(?:txt|in|pip)$"
    r"|(?:^|/)requirements/(?:test|tests|testing|dev|ci)[^/]*\.(?:txt|in|pip)$|^tests?/requirements[^/]*\.txt$"
)
MAX_INCLUDES = 10


def is_test_word(name: str) -> bool:
    word = canonicalize_name(name)
    return word in TEST_WORDS or word.startswith(("test-", "tests-")) or word.endswith(("-test", "-tests"))


def test_extras(extras: Iterable[str]) -> list[str]:
    """The extras to install, of those that the package's metadata provides."""
    found = sorted(set(extras))
    return [e for e in found if is_test_word(e)] or [e for e in found if canonicalize_name(e) in WIDE_WORDS]


def test_requirements(checkout: Checkout) -> list[str]:
    """Requirements beside extras, in the order of their sources, linters and the like left out."""
    found: dict[str, Requirement] = {}
    for source in (_groups, _setup, _files, _tox, _nox, _tools):
        for line in source(checkout):
            requirement = parse(line)
            if requirement is not None and requirement.url is None:
                found.setdefault(canonicalize_name(requirement.name), requirement)
    own = canonicalize_name(checkout.name)
    return [str(usable(r)) for name, r in found.items() if name not in NOT_NEEDED and name != own]


def parse(line: str) -> Requirement | None:
    """A requirement from a line of a requirements file; None for options, paths, addresses and nonsense."""
    text = re.sub(r"(^|\s)#.*$", "", line).strip()
    text = re.split(r"\s--", text)[0].strip()
    if not text or text.startswith(("-", ".", "/", "{")) or "://" in text.split(";")[0].split("@")[0]:
        return None
    try:
        return Requirement(text)
    except InvalidRequirement:
        return None


def usable(requirement: Requirement) -> Requirement:
    """pytest and its plugins without version bounds: old pins do not run on this Python."""
    if canonicalize_name(requirement.name).startswith("pytest"):
        return Requirement(requirement.name + (f"; {requirement.marker}" if requirement.marker else ""))
    return requirement


def _groups(checkout: Checkout) -> Iterator[str]:
    """PEP 735 dependency groups, with what they include."""
    groups = {canonicalize_name(name): value for name, value in checkout.table("dependency-groups").items()}
    wanted = [n for n in groups if is_test_word(n)] or [n for n in groups if n in WIDE_WORDS]
    done: set[str] = set()
    while wanted and len(done) <= MAX_INCLUDES:
        name = wanted.pop(0)
        if name in done:
            continue
        done.add(name)
        for item in groups.get(name, []) if isinstance(groups.get(name), list) else []:
            if isinstance(item, str):
                yield item
            elif isinstance(item, dict) and isinstance(item.get("include-group"), str):
                wanted.append(canonicalize_name(item["include-group"]))


def _setup(checkout: Checkout) -> Iterator[str]:
    yield from strings(checkout.setup_calls.get("tests_require"))
    extras = checkout.setup_calls.get("extras_require")
    if isinstance(extras, dict):
        for name in test_extras(extras):
            yield from strings(extras[name])
    cfg = checkout.setup_cfg
    yield from strings(cfg.get("options", "tests_require", fallback=""))
    if cfg.has_section("options.extras_require"):
        for name in test_extras(cfg.options("options.extras_require")):
            yield from strings(cfg.get("options.extras_require", name))


def _nox(checkout: Checkout) -> Iterator[str]:
    """What sessions with `test` in their names install, as far as it is written out."""
    try:
        tree = ast.parse(checkout.text("noxfile.py"))
    except (SyntaxError, ValueError, RecursionError):
        return
    for session in (n for n in tree.body if isinstance(n, ast.FunctionDef) and "test" in n.name):
        for call in ast.walk(session):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "install":
                words = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
                for before, word in zip(["", *words], words, strict=False):
                    if before in ("-r", "--requirement"):
                        yield from requirement_lines(checkout, word)
                    elif not before.startswith("-") or before in ("-U", "--upgrade"):
                        yield word


def _files(checkout: Checkout) -> Iterator[str]:
    paths = sorted(path for path in checkout.files if path.count("/") < 3 and FILES.search(path))
    tests = [p for p in paths if "test" in p]
    for path in tests or paths:
        yield from requirement_lines(checkout, path)


def requirement_lines(checkout: Checkout, path: str, depth: int = 0) -> Iterator[str]:
    """Lines of a requirements file and of those that it includes."""
    for line in checkout.text(path).splitlines():
        include = re.match(r"\s*(?:-r|--requirement)[ =]\s*(\S+)", line)
        if include and depth < MAX_INCLUDES:
            inner = str(PurePosixPath(path).parent / include[1])
            parts: list[str] = []
            for part in inner.split("/"):
                if part == ".." and parts:
                    parts.pop()
                elif part not in (".", ".."):
                    parts.append(part)
            yield from requirement_lines(checkout, "/".join(parts), depth + 1)
        else:
            yield line


def _tox(checkout: Checkout) -> Iterator[str]:
    tox = checkout.tox
    sections = [s for s in tox.sections() if s == "testenv" or re.match(r"testenv:(?:py|test|unit)", s)]
    for section in sections:
        for line in strings(tox.get(section, "deps", fallback="")):
            factors, _, plain = line.rpartition(": ")
            text = plain if re.fullmatch(r"[\w!,{}.-]*", factors) else line
            if include := re.match(r"-r\s*(?:\{toxinidir\}/)?(\S+)", text):
                yield from requirement_lines(checkout, include[1].removeprefix("./"))
            else:
                yield text
    env: Any = checkout.table("tool", "tox", "env_run_base").get("deps")
    yield from strings(env)


def _tools(checkout: Checkout) -> Iterator[str]:
    """poetry, pdm and hatch keep lists of their own."""
    poetry = checkout.table("tool", "poetry")
    groups = poetry.get("group")
    tables = {"dev": poetry.get("dev-dependencies")}
    if isinstance(groups, dict):
        tables |= {n: g.get("dependencies") for n, g in groups.items() if isinstance(g, dict)}
    for name in test_extras(tables):
        table = tables[name]
        for package, wanted in table.items() if isinstance(table, dict) else ():
            yield poetry_requirement(package, wanted)
    pdm = checkout.table("tool", "pdm", "dev-dependencies")
    for name in test_extras(pdm):
        yield from strings(pdm[name])
    envs = checkout.table("tool", "hatch", "envs")
    for name in ("default", *(n for n in envs if n != "default" and (is_test_word(n) or n.startswith("hatch-test")))):
        env = envs.get(name)
        if isinstance(env, dict):
            yield from strings(env.get("dependencies"))
            yield from strings(env.get("extra-dependencies"))
    yield from strings(checkout.table("tool", "uv").get("dev-dependencies"))


def poetry_requirement(package: str, wanted: object) -> str:
    """poetry's own notation as a requirement; its caret and tilde become lower bounds."""
    if isinstance(wanted, dict):
        extras = ",".join(strings(wanted.get("extras")))
        package = f"{package}[{extras}]" if extras else package
        wanted = wanted.get("version", "")
    if not isinstance(wanted, str) or wanted in ("", "*"):
        return package
    if found := re.fullmatch(r"[\^~](\d[\w.]*)", wanted.strip()):
        return f"{package}>={found[1]}"
    return f"{package}=={wanted}" if wanted[0].isdigit() else f"{package}{wanted}"
