"""`make bench NAME=house`: how the tree is built: import cycles, folder sizes, retired terms, maintained lines.

- `cycles_files`, `cycles_packages`: files (folders of files) inside `sandbox`, `trainer` and `composer_web` that import each
  other in a circle, as strongly connected components of more than one member. Imports inside functions count, imports
  under TYPE_CHECKING do not.
- `lines_maintained_change`: lines of code, templates and generated files in git, against commit 43c5eb9 counted the same way.
- `torch_in_rollout_worker`: 1 when the modules that a rollout worker imports load torch, in a fresh interpreter.
- `test_minutes`: of the last whole `make test` (lint and the fast tests), from `.data/test_seconds`; absent when there was none.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import grimp

from scripts import words
from scripts.lock import REPOSITORY
from tests.bench import report

BASE = "43c5eb9"
PACKAGES = ("sandbox", "trainer", "composer_web")
MAINTAINED = (".py", ".html", ".js", ".css", ".sh", ".toml", ".yml", ".sql")
WORKER = "composer_web.rollouts.worker.execution"
TIMES = REPOSITORY / ".data" / "test_seconds"
GOALS: dict[str, report.Goal] = {
    "cycles_files": ("==", 0),
    "cycles_packages": ("==", 0),
    "files_per_folder_max": ("<=", 20),
    "words_forbidden": ("==", 0),
    "empty_front_doors": ("==", 0),
    "torch_in_rollout_worker": ("==", 0),
    "lines_maintained_change": ("<=", -12_000),
    "test_minutes": ("<=", 15),
}


def components(edges: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Strongly connected components of more than one node (Tarjan), the largest first."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(root: str) -> None:
        work = [(root, iter(sorted(edges.get(root, ()))))]
        index[root] = low[root] = len(index)
        stack.append(root)
        while work:
            node, rest = work[-1]
            for other in rest:
                if other not in index:
                    index[other] = low[other] = len(index)
                    stack.append(other)
                    work.append((other, iter(sorted(edges.get(other, ())))))
                    break
                if other in stack:
                    low[node] = min(low[node], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    members = []
                    while True:
                        members.append(stack.pop())
                        if members[-1] == node:
                            break
                    if len(members) > 1:
                        found.append(sorted(members))

    for node in sorted(edges):
        if node not in index:
            visit(node)
    return sorted(found, key=len, reverse=True)


def cycles() -> tuple[list[list[str]], list[list[str]]]:
    """Circles of files, and circles of packages (the folder of a file)."""
    graph = grimp.build_graph(*PACKAGES, include_external_packages=False, exclude_type_checking_imports=True)
    files = {module: set(graph.find_modules_directly_imported_by(module)) for module in graph.modules}
    folders = {module: module if graph.find_children(module) else module.rpartition(".")[0] for module in graph.modules}
    packages: defaultdict[str, set[str]] = defaultdict(set)
    for module, imported in files.items():
        for other in imported:
            if (here := folders[module]) != (there := folders[other]):
                packages[here].add(there)
    return components(files), components(packages)


def listed(commit: str = "HEAD") -> list[str]:
    done = subprocess.run(
        ["git", "ls-tree", "-r", "--name-only", commit], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def maintained(commit: str) -> int:
    """Lines of files that somebody maintains, at a commit."""
    names = [name for name in listed(commit) if name.endswith(MAINTAINED) and "auditor_blind" not in name]
    total = 0
    process = subprocess.Popen(
        ["git", "cat-file", "--batch"], cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None and process.stdout is not None
    for name in names:
        process.stdin.write(f"{commit}:{name}\n".encode())
        process.stdin.flush()
        size = int(process.stdout.readline().split()[2])
        total += process.stdout.read(size + 1)[:-1].count(b"\n")
    process.stdin.close()
    process.wait(timeout=60)
    return total


def front_doors() -> list[str]:
    """Packages whose `__init__.py` says nothing."""
    empty = []
    for name in listed():
        path = REPOSITORY / name
        if path.name != "__init__.py" or not name.startswith(PACKAGES) or not path.is_file():
            continue
        silent = not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
        if silent and not any(part in name for part in ("/migrations/", "/management/", "/templatetags/")):
            empty.append(name)
    return empty


def torch_in_worker() -> bool:
    code = (
        "import os, sys, django; os.environ.setdefault('DJANGO_SETTINGS_MODULE', 'composer_web.settings');"
        f"django.setup(); import {WORKER}; sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise RuntimeError(done.stderr)
    return done.returncode == 1


def main() -> None:
    files, packages = cycles()
    folders = Counter(
        str(Path(name).parent)
        for name in listed()
        if name.endswith(".py") and name.startswith((*PACKAGES, "tests")) and "/migrations/" not in name
    )
    doors, terms = front_doors(), words.problems()
    for title, rows in (
        ("circles of files", [f"{len(one)}: {', '.join(one[:8])}" for one in files]),
        ("circles of packages", [f"{len(one)}: {', '.join(one[:8])}" for one in packages]),
        ("largest folders", [f"{count} {name}" for name, count in folders.most_common(12)]),
        ("packages without a docstring", doors),
        ("retired terms", terms[:20]),
    ):
        sys.stdout.write(f"{title}:\n" + "".join(f"  {row}\n" for row in rows))
    metrics = {
        "cycles_files": float(len(files)),
        "cycles_packages": float(len(packages)),
        "files_per_folder_max": float(max(folders.values())),
        "words_forbidden": float(len(terms)),
        "empty_front_doors": float(len(doors)),
        "torch_in_rollout_worker": float(torch_in_worker()),
        "lines_maintained_change": float(maintained("HEAD") - maintained(BASE)),
    }
    if TIMES.is_file():
        metrics["test_minutes"] = round(float(TIMES.read_text()) / 60, 1)
    report.emit("house", metrics, goals=GOALS)


if __name__ == "__main__":
    main()
