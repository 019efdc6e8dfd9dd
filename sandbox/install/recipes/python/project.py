"""Metadata of a Python checkout: its modules, its test locations and its pytest configuration."""

from __future__ import annotations

import ast
import re
import sys
from dataclasses import dataclass
from pathlib import PurePosixPath

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from sandbox.install.recipes.python import examples, setup
from sandbox.repositories.checkout import Checkout, parse_toml, strings

NOT_PRODUCT = frozenset(
    [
        "test",
        "tests",
        "testing",
        "doc",
        "docs",
        "example",
        "examples",
        "benchmark",
        "benchmarks",
        "scripts",
        "tools",
        "ci",
        "tasks",
        "noxfile",
        "setup",
        "conftest",
        "build",
        "dist",
        "samples",
        "demo",
        "demos",
        "bench",
        "utils_test",
        "versioneer",
        "ez_setup",
        "fabfile",
        "extras",
        "misc",
        "contrib",
        "changelog",
        "bin",
    ]
)
TEST_FILE = re.compile(r"(?:^test[-_\w]*|[-\w]*_tests?|tests?)\.py$")
TEST_FOLDERS = ("tests", "test", "testing", "unittests", "unit_tests", "t")
IMPORTS = re.compile(r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import\b|import[ \t]+([\w., \t]+))", re.MULTILINE)
MAX_MODULES = 200
MAX_PATHS = 1000
"""Characters of all test paths: they are on command lines."""
OTHER_SYSTEMS = frozenset(["msvcrt", "winreg", "winsound", "_winapi", "nt", "_msi", "msilib"])
"""Modules of the standard library that this system does not have."""


@dataclass(frozen=True, slots=True)
class Layout:
    roots: tuple[str, ...]
    """Directories that hold top-level modules, `.` or `src`."""
    modules: tuple[str, ...]
    """Likely top-level modules, the likeliest first."""
    inner: tuple[str, ...]
    """Further importable modules below the first."""


def layout(checkout: Checkout) -> Layout:
    """Where the product is, guessed from names alone."""
    named = _declared(checkout)
    by_root: dict[str, list[str]] = {}
    for path in checkout.files:
        for root in ("src", "lib", "python", "."):
            prefix = "" if root == "." else f"{root}/"
            inner = path.removeprefix(prefix)
            if not path.startswith(prefix) or not inner.endswith(".py"):
                continue
            first, _, rest = inner.partition("/")
            if rest == "__init__.py" or (not rest and root in ("src", ".")):
                by_root.setdefault(root, []).append(first.removesuffix(".py"))
    wanted = canonicalize_name(checkout.name).replace("-", "_")
    for root in ("src", ".", "lib", "python"):
        modules = [
            m for m in dict.fromkeys(by_root.get(root, ())) if m.isidentifier() and m.lower() not in NOT_PRODUCT
            and not m.startswith(("test_", "_"))
        ]  # fmt: skip
        if not modules:
            continue
        modules.sort(key=lambda m: (m not in named, _distance(m, wanted), m))
        return Layout((root,), tuple(modules[:10]), tuple(_inner(checkout, root, modules[0])))
    return Layout((".",), tuple(named[:10]) or (wanted,), ())


def _declared(checkout: Checkout) -> list[str]:
    """Top-level names that packaging wrote into a source distribution, or that set-up declares."""
    for path in checkout.files:
        if path.endswith(".egg-info/top_level.txt") and path.count("/") < 3:
            return [line for line in strings(checkout.text(path)) if line.isidentifier()]
    declared = strings(checkout.setup_calls.get("packages")) + strings(checkout.setup_calls.get("py_modules"))
    settings = checkout.table("tool", "setuptools")
    declared += [name for key in ("packages", "py-modules") for name in strings(settings.get(key))]
    written = [
        checkout.table("tool", "flit", "module").get("name"),
        checkout.table("tool", "maturin").get("module-name"),
    ]
    crate = parse_toml(checkout.text("Cargo.toml")).get("lib")
    written += [crate.get("name") if isinstance(crate, dict) else None]
    declared += [name for name in written if isinstance(name, str)]
    return list(dict.fromkeys(name.split(".")[0] for name in declared))


def _distance(module: str, wanted: str) -> int:
    module = module.lower()
    if module == wanted:
        return 0
    shorter = wanted.removeprefix("python_").removeprefix("py").removesuffix("py").strip("_")
    return 1 if module in (shorter, wanted.replace("_", "")) else 2 if shorter in module or module in wanted else 3


def _inner(checkout: Checkout, root: str, module: str) -> list[str]:
    prefix = f"{module}/" if root == "." else f"{root}/{module}/"
    found = []
    for path in sorted(checkout.files)[:100_000]:
        inner = path.removeprefix(prefix)
        if path.startswith(prefix) and inner.endswith(".py") and inner.count("/") <= 1:
            parts = inner.removesuffix(".py").removesuffix("/__init__").split("/")
            plain = all(p.isidentifier() and not p.startswith("_") and p not in NOT_PRODUCT for p in parts)
            usual = plain and not any(p.startswith("test") or p in ("compat", "cli", "gui") for p in parts)
            if usual and _loads_anywhere(checkout.text(path), module):
                found.append(".".join([module, *parts]))
        if len(found) == MAX_MODULES:
            break
    return found


def _loads_anywhere(text: str, own: str) -> bool:
    """Whether a module needs nothing but the standard library, on any system, and its own package: others are optional."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return False
    imported = {a.name for node in tree.body if isinstance(node, ast.Import) for a in node.names}
    imported |= {str(node.module) for node in tree.body if isinstance(node, ast.ImportFrom) and node.level == 0}
    tops = {name.partition(".")[0] for name in imported} - {own}
    return tops <= sys.stdlib_module_names - OTHER_SYSTEMS and not re.search(r"\b(?:windll|WinDLL)\b", text)


def python_specifier(checkout: Checkout) -> SpecifierSet | None:
    """`requires-python`, wherever it is written; None where nothing is said."""
    poetry = checkout.table("tool", "poetry", "dependencies").get("python")
    candidates = [
        checkout.table("project").get("requires-python"),
        checkout.setup_cfg.get("options", "python_requires", fallback=None),
        checkout.setup_calls.get("python_requires"),
        re.sub(r"\^", ">=", poetry) if isinstance(poetry, str) else None,
    ]
    for text in candidates:
        if isinstance(text, str):
            try:
                return SpecifierSet(text)
            except InvalidSpecifier:
                continue
    return None


def test_paths(checkout: Checkout) -> tuple[str, ...]:
    """Files and directories that pytest is to collect; empty where the checkout has no tests."""
    tests = _test_files(checkout)
    if not tests:
        return (examples.FOLDER,) if example_files(checkout) else ()
    folders = set(checkout.folders())
    declared = [p.strip("/").removeprefix("./") for p in setup.options(checkout).get("testpaths", "").split()]
    declared = [p for p in declared if (p in folders and p != ".") or p in checkout.files]
    if declared and any(t == p or t.startswith(f"{p}/") for t in tests for p in declared):
        return tuple(dict.fromkeys(declared))
    found: list[str] = []
    for path in sorted(tests):
        parts = path.split("/")
        at = next((i for i, part in enumerate(parts[:-1]) if part.lower() in TEST_FOLDERS), None)
        place = "/".join(parts[: at + 1]) if at is not None else path
        if parts[0] not in ("docs", "doc", "examples", "example", "benchmarks", "bench") and place not in found:
            found.append(place)
    if sum(map(len, found)) > MAX_PATHS:  # strewn about: then the folders that hold them all
        found = list(dict.fromkeys(path.split("/")[0] for path in found))
    return tuple(found)


def example_files(checkout: Checkout) -> dict[str, str]:
    """Test files to add, where the checkout has none of its own; empty where it has."""
    if _test_files(checkout):
        return {}
    where = layout(checkout)
    return examples.files(checkout, where.roots[0], where.modules)


def imported(checkout: Checkout) -> frozenset[str]:
    """Top-level modules that the checkout's files import, where a statement says so."""
    found: set[str] = set()
    for path in checkout.files:
        if path.endswith(".py"):
            for module, several in IMPORTS.findall(checkout.text(path)):
                found |= {name.split()[0].split(".")[0] for name in (module or several).split(",") if name.strip()}
    return frozenset(found)


def tests_in(checkout: Checkout) -> list[str]:
    """Test files that are not asked for by name: those of folders."""
    paths = test_paths(checkout)
    return [path for path in _test_files(checkout) if path not in paths]


def _test_files(checkout: Checkout) -> list[str]:
    return [path for path in checkout.files if is_test_file(checkout, path)]


def is_test_file(checkout: Checkout, path: str) -> bool:
    name = PurePosixPath(path).name
    if not name.endswith(".py") or path == "test/__init__.py" or name in ("conftest.py", "__init__.py"):
        return False
    if not TEST_FILE.search(name) and not any(p.lower() in TEST_FOLDERS for p in path.split("/")[:-1]):
        return False
    return bool(re.search(r"def test|TestCase|def runTest|^\s*>>> ", checkout.text(path), re.MULTILINE))
