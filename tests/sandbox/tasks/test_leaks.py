"""What in an image gives an answer away is found; an image as the store makes it holds nothing of the kind."""

from __future__ import annotations

import os
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.errors import PackageError
from sandbox.tasks.environments import EnvironmentStore, Manifest
from sandbox.tasks.git_scan import scan_git
from sandbox.tasks.leaks import scan_environment, scan_layers, scan_task
from sandbox.tasks.spec import CallsVerifier, InlineEnvironment, TaskSpec
from tests.sandbox.shelf import FILES, PIN

GOLD = (
    "def keep(x):\n    return x\n\n\ndef frequencies(items):\n    return {item: items.count(item) for item in items}\n"
)
BROKEN = "def keep(x):\n    return x\n"
LINE = "    return {item: items.count(item) for item in items}"


def task(files: dict[str, str], **changes) -> TaskSpec:
    return TaskSpec(
        id="leaky",
        source="mutation",
        instruction="Count how often each item occurs.",
        environment=InlineEnvironment(files={"shop.py": BROKEN, "README.md": "# shop\n", **files}),
        verifier=CallsVerifier(module="shop.py", function="frequencies", cases=(("([1],)", "{1: 1}"),)),
        gold={"shop.py": GOLD},
        **changes,
    )


def leaks(tmp_path, files: dict[str, str], **changes) -> list[str]:
    return [str(leak) for leak in scan_task(EnvironmentStore(tmp_path), task(files).model_copy(update=changes))]


def test_a_plain_image_has_no_leaks(tmp_path):
    assert leaks(tmp_path, {"tests/test_shop.py": "from shop import keep\n"}) == []


@pytest.mark.parametrize(
    ("path", "text", "why"),
    [
        ("CHANGES.md", "New: `frequencies(items)`.", "holds 'frequencies', which the oracle restores"),
        ("docs/api.rst", "Counting.\n\n.. autofunction:: shop.frequencies\n", "holds 'frequencies'"),
        ("old/shop.py", f"def other(items):\n{LINE}\n", "holds 'return {item: items.count(item) for item in items}'"),
        ("__pycache__/shop.cpython-311.pyc", "x", "byte code"),
        (".mypy_cache/3.11/shop.data.json", "{}", "a cache of types"),
        ("src/.pytest_cache/v/lastfailed", "{}", "a cache of test runs"),
        ("shop.egg-info/SOURCES.txt", "shop.py", "metadata of a built package"),
        ("build/lib/x.py", "x = 1", "a folder of build products"),
        ("dist/readme.txt", "x", "a folder of build products"),
        ("shop.py.orig", "x", "a left-over"),
        (".coverage", "x", "coverage data"),
    ],
)
def test_each_kind_of_leak_is_named(tmp_path, path, text, why):
    (found,) = leaks(tmp_path, {path: text})
    assert found.startswith(f"repo/{path}: ") and why in found


def test_what_moves_between_changed_files_is_no_leak(tmp_path):
    """The agent sees it where it is now; a copy beside it tells no more."""
    gold = {"shop.py": BROKEN + "\n\nfrom counts import frequencies\n", "counts.py": GOLD.partition("\n\n\n")[2]}
    environment = InlineEnvironment(files={"shop.py": GOLD, "old/shop.py": f"def other(items):\n{LINE}\n"})
    assert leaks(tmp_path, {}, gold=gold, environment=environment) == []


def test_an_everyday_line_is_no_leak(tmp_path):
    """One of many lines of the oracle may be in another file by chance, two of five are not there by chance."""
    lines = [f"    assert frequencies({list(range(n))}) is not None" for n in range(5, 10)]
    gold = {"test_shop.py": "def test_shop():\n" + "\n".join(lines) + "\n"}
    assert leaks(tmp_path, {"test_other.py": f"def test_other():\n{lines[0]}\n"}, gold=gold) == []
    (found,) = leaks(tmp_path, {"test_other.py": "def test_other():\n" + "\n".join(lines[:2]) + "\n"}, gold=gold)
    assert found.startswith("repo/test_other.py: holds 'assert frequencies(")
    gold = {"test_shop.py": f"def test_shop():\n{lines[0]}\n"}
    others = {f"test_{n}.py": f"def test_{n}():\n{lines[0]}\n" for n in range(3)}
    assert leaks(tmp_path, others, gold=gold) == []
    assert len(leaks(tmp_path, dict(list(others.items())[:2]), gold=gold)) == 2


def test_what_the_instruction_tells_is_no_leak(tmp_path):
    assert leaks(tmp_path, {"CHANGES.md": "frequencies"}, instruction="Write `frequencies(items)`.") == []
    assert leaks(tmp_path, {"a.py": "frequencies_of = 1\nxfrequencies = 2\n"}) == []


def test_a_package_keeps_no_second_copy_and_no_archive(tmp_path):
    store = EnvironmentStore(tmp_path)
    tree = store.working_directory()
    for path, text in {
        "repo/shelf/__init__.py": "x = 1\n",
        ".venv/lib/python3.11/site-packages/shelf/__init__.py": "x = 2\n",
        ".venv/lib/python3.11/site-packages/pytest/__init__.py": "",
        ".cache/pip/Shelf-1.3.tar.gz": "x",
        ".cache/pip/other-1.0.tar.gz": "x",
    }.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_text(text)
    environment = store.add_built(tree, Manifest(name="shelf", version="1.2"))
    assert sorted(map(str, scan_environment(store, environment))) == [
        ".cache/pip/Shelf-1.3.tar.gz: an archive of shelf",
        ".venv/lib/python3.11/site-packages/shelf/__init__.py: a second copy of a module of the checkout",
    ]


async def test_a_package_whose_image_leaks_is_refused(build):
    """Caches and build products are left out of an environment; what else is found there refuses it."""
    with pytest.raises(PackageError, match=r"give fixes away: repo/docs/shelf-1.3.zip: an archive of shelf"):
        await build({**FILES, "docs/shelf-1.3.zip": "x", ".mypy_cache/a.json": "{}", "old.whl": "x"}, PIN)


@pytest.fixture
def repository(tmp_path):
    """A repository of one commit as git itself makes it."""
    folder = tmp_path / "repo"
    folder.mkdir()
    (folder / "shop.py").write_text(BROKEN)
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "first")
    for sample in (folder / ".git" / "hooks").iterdir():
        sample.unlink()
    return folder


def git(folder, *words):
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_AUTHOR_DATE": "2020-01-01T00:00:00Z"}
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "gc.auto=0", *words]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, env=environment)


def found(folder) -> list[str]:
    root = folder / ".git"
    files = {p.relative_to(root).as_posix(): p for p in root.rglob("*") if p.is_file() or p.is_symlink()}
    (root / "COMMIT_EDITMSG").unlink(missing_ok=True)
    files.pop("COMMIT_EDITMSG", None)
    return [f"{entry}: {why}" for entry, why in scan_git(files)]


def test_a_repository_of_one_commit_is_fresh(repository):
    assert found(repository) == []


@pytest.mark.parametrize(
    ("commands", "why"),
    [
        ([["commit", "-q", "--allow-empty", "-m", "second"]], "a commit with a parent"),
        ([["commit", "-q", "--amend", "-m", "other"]], "a reflog of more than one entry"),
        ([["tag", "v1"]], "refs/tags/v1: not the one branch"),
        ([["branch", "fix"]], "refs/heads/fix: not the one branch"),
        ([["remote", "add", "origin", "https://example.org/x"]], "config: a remote"),
        ([["gc", "-q"]], "packed or borrowed objects"),
        ([["stash", "push", "-q"]], "refs/stash"),
        ([["hash-object", "-w", "../fixed.py"]], "an object that the one commit does not hold"),
    ],
)
def test_more_than_one_commit_is_found(repository, commands, why):
    (repository.parent / "fixed.py").write_text(GOLD)
    if commands[0][0] == "stash":
        (repository / "shop.py").write_text(GOLD)
    for words in commands:
        git(repository, *words)
    assert any(why in line for line in found(repository)), found(repository)


def test_links_and_alternates_in_git_data(repository):
    (repository / ".git/objects/info/alternates").write_text("/elsewhere\n")
    (repository / ".git/hooks/pre-commit").write_text("#!/bin/sh\n")
    (repository / ".git/refs/heads/link").symlink_to("/etc/passwd")
    lines = found(repository)
    assert "objects/info/alternates: packed or borrowed objects" in lines
    assert "refs/heads/link: a link inside the repository's data" in lines
    assert any(line.startswith("hooks/pre-commit: not part of") for line in lines)


def test_an_object_of_the_oracle_is_found(tmp_path):
    """In the store's own format: the oracle's file as a blob, beside the commit."""
    store = EnvironmentStore(tmp_path)
    leaky = task({"fixed.py": GOLD})
    assert any("a file of the oracle" in str(leak) for leak in scan_task(store, leaky))


def test_links_of_an_image_are_not_followed(tmp_path):
    layer = tmp_path / "layer"
    (layer / "repo").mkdir(parents=True)
    (layer / "repo" / "everything").symlink_to("/")
    (layer / "repo" / "self").symlink_to(".")
    assert scan_layers([layer]) == []


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.sampled_from(["HEAD", "refs/heads/main", "objects/" + "a" * 2 + "/" + "b" * 38, "config",
                                        "logs/HEAD", "packed-refs"]), st.binary(max_size=80)))  # fmt: skip
def test_any_git_folder_is_answered(tmp_path_factory, contents):
    folder = tmp_path_factory.mktemp("git")
    files = {}
    for number, (entry, data) in enumerate(contents.items()):
        files[entry] = folder / str(number)
        files[entry].write_bytes(data)
    assert all(isinstance(why, str) for _, why in scan_git(files))
