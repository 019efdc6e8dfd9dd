import multiprocessing
import os
import subprocess
import time

import pytest

from sandbox.backends.choice import layer_owner
from sandbox.backends.machine import Machine
from sandbox.errors import EnvironmentMissing, TaskInvalid
from sandbox.repositories.history import TreeFile, write_history
from sandbox.tasks.environments import STALE_SECONDS, EnvironmentStore, Manifest, read_tree
from sandbox.tasks.skeleton import DAY, home_files
from sandbox.tasks.spec import BuiltEnvironment, InlineEnvironment

INLINE = InlineEnvironment(files={"a.py": "x = 1\n", "pkg/b.py": "y = 2\n", "pkg/sub/é.py": "", "pkg.txt": "\n"})


def git(repo, *arguments):
    command = ["git", "-c", "safe.directory=*", *arguments]
    done = subprocess.run(command, cwd=repo, capture_output=True, check=True)
    return done.stdout.decode("utf-8", "replace")


@pytest.fixture
def store(tmp_path):
    return EnvironmentStore(tmp_path / "environments")


def add(store, files, **manifest):
    tree = store.working_directory()
    for path, text in files.items():
        (tree / "repo" / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / "repo" / path).write_text(text)
    return store.add_built(tree, Manifest(name="shelf", version="1", **manifest))


def test_inline_environments_are_written_once(store):
    spec = store.spec(INLINE)
    assert [p.relative_to(store.root).parts[0] for p in spec.layers] == ["inline", "home"]
    assert read_tree(spec.layers[0] / "repo") == {p: TreeFile(t.encode()) for p, t in INLINE.files.items()}
    marker = spec.layers[0] / "marker"
    marker.touch()
    assert store.spec(INLINE) == spec
    assert EnvironmentStore(store.root).spec(INLINE) == spec
    assert marker.exists()
    other = store.spec(InlineEnvironment(files={**INLINE.files, "a.py": "x = 2\n"}))
    assert other.layers[0] != spec.layers[0] and other.layers[1] == spec.layers[1]


def test_the_home_looks_lived_in(store):
    home = store.spec(INLINE).layers[-1]
    found = {p.relative_to(home).as_posix() for p in home.rglob("*") if p.is_file()}
    assert found == home_files(Machine()).keys()
    assert (home / ".gitconfig").read_text().startswith("[user]\n")
    assert len((home / ".bash_history").read_text().splitlines()) == Machine().history_lines
    assert (home / ".ssh").stat().st_mode & 0o777 == 0o700 and (home / ".bash_history").stat().st_mode & 0o777 == 0o600
    ages = {path: (time.time() - (home / path).stat().st_mtime) / DAY for path in found}
    assert max(ages.values()) == pytest.approx(Machine().home_age_days, abs=1) and min(ages.values()) < 1
    assert len({round(age, 2) for age in ages.values()}) > len(ages) * 0.8
    assert {p.stat().st_mtime > time.time() - DAY for p in home.iterdir() if p.name in {".ssh", "Documents"}} == {False}


def test_a_machine_of_a_profile_has_its_own_home(store):
    other = Machine(person="Ada Quill", files=(("notes/plan.md", "- rest\n"),), variables=(("EDITOR", "vim"),))
    spec, usual = store.spec(INLINE, other), store.spec(INLINE)
    assert spec.env == (("EDITOR", "vim"),) and spec.layers[0] == usual.layers[0]
    assert "Ada Quill" in (spec.layers[1] / ".gitconfig").read_text()
    assert (spec.layers[1] / "notes/plan.md").read_text() == "- rest\n"
    assert "Ada Quill" not in (usual.layers[1] / ".gitconfig").read_text()
    built = add(store, {"a.py": "x = 1\n"}, env={"EDITOR": "ed"})
    assert store.spec(built, other).env == (("EDITOR", "ed"),), "what an environment needs comes first"


def test_layers_belong_to_the_user_of_sandboxes(store):
    for layer in store.spec(INLINE).layers:
        for folder, _, files in os.walk(layer):
            for path in (folder, *(os.path.join(folder, f) for f in files)):
                found = os.lstat(path)
                assert (found.st_uid, found.st_gid) == layer_owner()


def test_the_history_is_one_commit_that_git_accepts(store):
    repo = store.spec(INLINE).layers[0] / "repo"
    git(repo, "fsck", "--strict")
    assert git(repo, "status", "--short") == ""
    assert git(repo, "rev-list", "--count", "HEAD") == "1\n"
    assert git(repo, "log", "--format=%an %s") == "Robin Marsh Import current state\n"
    assert sorted(git(repo, "-c", "core.quotePath=false", "ls-files").split()) == sorted(INLINE.files)


def test_history_is_a_function_of_files_and_time(tmp_path):
    files = {"run.sh": TreeFile(b"#!/bin/sh\n", executable=True), "a-b": TreeFile(b"1"), "a/b": TreeFile(b"2")}
    ids = set()
    for name, when in (("x", 1), ("y", 1), ("z", 2)):
        (tmp_path / name).mkdir()
        ids.add(write_history(tmp_path / name, files, timestamp=when))
    assert len(ids) == 2
    git(tmp_path / "x", "fsck", "--strict")
    assert git(tmp_path / "x", "ls-files", "-s").split("\t")[0].startswith("100644")
    assert "100755" in git(tmp_path / "x", "ls-files", "-s", "run.sh")


def test_built_environments(store):
    env = add(store, {"shelf.py": "x = 1\n", "run.sh": "#!/bin/sh\n"}, env={"PATH": "/home/dev/.venv/bin"})
    again = add(store, {"shelf.py": "x = 1\n", "run.sh": "#!/bin/sh\n"}, tests={"t": 1.0})
    assert again == env and store.has(env.digest)
    assert store.manifest(env.digest).env == {"PATH": "/home/dev/.venv/bin"}
    assert dict(store.spec(env).env) == {"PATH": "/home/dev/.venv/bin"} | dict(Machine().variables)
    assert add(store, {"shelf.py": "x = 2\n"}).digest != env.digest


def test_overrides_lie_over_the_environment_and_its_history_knows_no_fix(store):
    env = add(store, {"shelf.py": "RIGHT = 1\n", "other.py": "y = 1\n"})
    spec = store.spec(BuiltEnvironment(digest=env.digest, overrides={"shelf.py": "WRONG = 1\n"}))
    assert [p.relative_to(store.root).parts[0] for p in spec.layers] == ["overrides", "built", "home"]
    top = spec.layers[0] / "repo"
    assert (top / "shelf.py").read_text() == "WRONG = 1\n" and not (top / "other.py").exists()
    objects = git(top, "cat-file", "--batch-all-objects", "--batch")
    assert "WRONG" in objects and "y = 1" in objects and "RIGHT" not in objects


async def test_a_sandbox_sees_one_clean_checkout(store, backend):
    env = add(store, {"shelf.py": "RIGHT = 1\n", "other.py": "y = 1\n"})
    task = BuiltEnvironment(digest=env.digest, overrides={"shelf.py": "WRONG = 1\n"})
    async with await backend.start(store.spec(task)) as sandbox:
        seen = await sandbox.exec(
            "cat *.py; git status --short; git config user.name; echo z >> other.py; git diff --stat | tail -1"
        )
        assert seen.output.decode() == "y = 1\nWRONG = 1\nRobin Marsh\n 1 file changed, 1 insertion(+)\n"
        assert [c.path for c in (await sandbox.diff()).changes] == ["other.py"]


def test_missing_and_unreadable_environments(store):
    with pytest.raises(EnvironmentMissing, match=r"is not in .*sandbox\.generators"):
        store.spec(BuiltEnvironment(digest="a" * 64))
    with pytest.raises(EnvironmentMissing):
        store.spec(BuiltEnvironment(digest="../../../etc"))
    env = add(store, {"a.py": ""})
    (store.root / "built" / env.digest / "manifest.json").write_text("{")
    with pytest.raises(TaskInvalid, match="unreadable"):
        store.spec(env)


def _materialise(root, barrier):
    barrier.wait(30)
    EnvironmentStore(root).spec(INLINE)


def test_many_processes_may_prepare_the_same_one(store):
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(4)
    workers = [context.Process(target=_materialise, args=(store.root, barrier)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0] * 4
    assert list((store.root / "tmp").iterdir()) == []
    assert len(list((store.root / "inline").glob("*/*"))) == 1
    git(store.spec(INLINE).layers[0] / "repo", "fsck", "--strict")


def test_what_a_killed_process_left_is_swept_after_a_day(store):
    old, new = store.working_directory(), store.working_directory()
    long_ago = time.time() - STALE_SECONDS - 60
    os.utime(old, (long_ago, long_ago))
    EnvironmentStore(store.root)
    assert not old.exists() and new.exists()


def test_a_full_disk_leaves_nothing_half_written(store, monkeypatch):
    """A write that fails half-way leaves no layer, and the next attempt succeeds."""
    import sandbox.tasks.environments as module

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(module, "write_history", full)
        with pytest.raises(OSError, match="No space left"):
            store.spec(INLINE)
    assert list((store.root / "tmp").iterdir()) == [] and not (store.root / "inline").exists()
    assert store.spec(INLINE).layers[0].is_dir()
