"""Harbor's task directories, schema 1.4: our tasks written as such, and such directories read.

Ours carry the whole bundle in `tests/opencomposer.json`, which Harbor brings into the container with the hidden tests only
after the agent has ended; read back, they are the same task under the same hash. Others' keep all of their files; they
become a task of ours where their oracle is files and their tests are pytest's.
"""

from __future__ import annotations

import ast
import json
import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import tomli_w
from pydantic import ValidationError

from sandbox.formats.base import FormatRefused, Losses, newer
from sandbox.repositories.files import MAX_BUNDLE_BYTES, MAX_FILES, check_relative_path
from sandbox.tasks.environments import EnvironmentStore, read_tree
from sandbox.tasks.spec import BuiltEnvironment, CallsVerifier, InlineEnvironment, PytestVerifier, TaskSpec

SCHEMA = "1.4"
BUNDLE = "tests/opencomposer.json"
REPO = "/app/repo"
IMAGE = "python:3.11-slim"
PYTEST = "pytest==9.0.2"

DOCKERFILE = """FROM {image}
RUN apt-get update && apt-get install -y --no-install-recommends git && rm -rf /var/lib/apt/lists/*
RUN pip install --no-cache-dir {pytest}
COPY repo {repo}
ENV PYTHONPATH={path} PYTHONDONTWRITEBYTECODE=1
WORKDIR {repo}
"""
SOLVE = f"""#!/bin/sh
set -e
cp -r /solution/files/. {REPO}/
"""
RUN_PYTEST = """#!/bin/sh
mkdir -p /logs/verifier
cp -r /tests/files/. {repo}/
cd {repo}
python -m pytest -c /dev/null --rootdir={repo} --import-mode=importlib -p no:cacheprovider -q {arguments}
status=$?
if [ $status -eq 0 ]; then echo 1 > /logs/verifier/reward.txt; else echo 0 > /logs/verifier/reward.txt; fi
exit 0
"""
RUN_CALLS = """#!/bin/sh
mkdir -p /logs/verifier
cd {repo}
if python /tests/run_calls.py; then echo 1 > /logs/verifier/reward.txt; else echo 0 > /logs/verifier/reward.txt; fi
exit 0
"""
CALLS = '''"""Compare calls with what they should give: (arguments, expected repr) of every case."""
import ast
import importlib.util
import json
import sys

with open("/tests/cases.json") as file:
    wanted = json.load(file)
spec = importlib.util.spec_from_file_location("subject", wanted["module"])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
function = getattr(module, wanted["function"])
sys.exit(any(repr(function(*ast.literal_eval(given))) != expected for given, expected in wanted["cases"]))
'''


@dataclass(slots=True)
class HarborTask:
    """A directory as it lies there: configuration, instruction, and every other file."""

    name: str
    config: dict[str, Any]
    instruction: str
    files: dict[str, bytes] = field(default_factory=dict)
    """Path below the directory → content, without `task.toml` and `instruction.md`."""

    def write(self, folder: Path) -> None:
        """Raises FileExistsError when something lies there."""
        folder.mkdir(parents=True)
        (folder / "task.toml").write_bytes(tomli_w.dumps(self.config).encode())
        (folder / "instruction.md").write_text(self.instruction, encoding="utf-8")
        for path, content in self.files.items():
            target = folder / check_relative_path(path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
            if path.endswith(".sh"):
                target.chmod(0o755)


def export(task: TaskSpec, store: EnvironmentStore) -> tuple[HarborTask, Losses]:
    """A task of ours as a directory. Raises FormatRefused for a verifier that Harbor cannot run, EnvironmentMissing."""
    losses = Losses()
    losses.add("isolation", "Harbor grades in the agent's own container: canaries and the second sandbox stay behind")
    files: dict[str, bytes] = {BUNDLE: task.model_dump_json().encode()}
    path = REPO
    if isinstance(task.environment, InlineEnvironment):
        files |= {f"environment/repo/{p}": text.encode() for p, text in task.environment.files.items()}
    else:
        manifest = store.manifest(task.environment.digest)
        tree = read_tree(store.repository(task.environment.digest))
        files |= {f"environment/repo/{p}": file.content for p, file in tree.items()}
        files |= {f"environment/repo/{p}": text.encode() for p, text in task.environment.overrides.items()}
        path = ":".join(REPO if root == "." else f"{REPO}/{root}" for root in manifest.source_roots)
        losses.add("environment", "the image is built anew by the Dockerfile; installed dependencies are not carried")
    files["environment/Dockerfile"] = DOCKERFILE.format(image=IMAGE, pytest=PYTEST, repo=REPO, path=path).encode()
    files["solution/solve.sh"] = SOLVE.encode()
    files |= {f"solution/files/{p}": text.encode() for p, text in task.gold.items()}
    verifier = task.verifier
    if isinstance(verifier, PytestVerifier):
        ids = (*verifier.fail_to_pass, *verifier.pass_to_pass)
        given = " ".join(map(shlex.quote, (*verifier.pytest_args, *ids)))
        files["tests/test.sh"] = RUN_PYTEST.format(repo=REPO, arguments=given).encode()
        files |= {f"tests/files/{p}": text.encode() for p, text in verifier.test_files.items()}
    elif isinstance(verifier, CallsVerifier):
        wanted = {"module": verifier.module, "function": verifier.function, "cases": verifier.cases}
        files["tests/test.sh"] = RUN_CALLS.format(repo=REPO).encode()
        files["tests/run_calls.py"], files["tests/cases.json"] = CALLS.encode(), json.dumps(wanted).encode()
    else:
        raise FormatRefused(
            f"task {task.id} is verified by {verifier.framework}, whose runner Harbor does not have",
            remedy="Export tasks that are verified by pytest or by calls",
        )
    if task.protected:
        losses.add("protected", "Harbor has no list of paths whose changes are dropped")
    config = {
        "schema_version": SCHEMA,
        "task": {"name": f"opencomposer/{task.id}", "description": task.instruction[:200], "keywords": [task.category]},
        "metadata": {
            "category": task.category, "source": task.source, "family": task.family, "bundle_hash": task.bundle_hash,
        },
        "agent": {"timeout_sec": 3600.0},
        "verifier": {"timeout_sec": max(60.0, 3.0 * verifier.timeout_seconds)},
        "environment": {"network_mode": "no-network", "workdir": REPO},
    }  # fmt: skip
    return HarborTask(task.id, config, task.instruction, files), losses


def read(folder: Path) -> HarborTask:
    """A directory, within bounds; links in it are refused. Raises FormatRefused with the path."""
    files: dict[str, bytes] = {}
    total = 0
    for file in sorted(folder.rglob("*")):
        path = file.relative_to(folder).as_posix()
        if file.is_symlink():
            raise FormatRefused(f"{path} is a link", remedy="A task directory holds plain files")
        if file.is_dir():
            continue
        total += file.stat().st_size
        if len(files) >= MAX_FILES or total > MAX_BUNDLE_BYTES:
            raise FormatRefused(f"{folder.name} holds more than {MAX_FILES} files or {MAX_BUNDLE_BYTES} bytes")
        files[path] = file.read_bytes()
    return from_files(folder.name, files)


def from_files(name: str, files: Mapping[str, bytes]) -> HarborTask:
    """The same from files in memory (an upload). Raises FormatRefused."""
    rest = dict(files)
    try:
        config = tomllib.loads(rest.pop("task.toml").decode())
        instruction = rest.pop("instruction.md").decode()
        for path in rest:
            check_relative_path(path)
    except KeyError as error:
        raise FormatRefused(f"{name} has no {error.args[0]}", remedy="It is no task directory of Harbor") from None
    except UnicodeDecodeError as error:
        raise FormatRefused(f"{name}: task.toml or instruction.md is not UTF-8 at byte {error.start}") from None
    except tomllib.TOMLDecodeError as error:
        raise FormatRefused(f"{name}: task.toml: {error}") from None
    except ValueError as error:
        raise FormatRefused(f"{name}: {error}") from None
    version = str(config.get("schema_version", config.get("version", "1.0")))
    if newer(version, SCHEMA):
        raise FormatRefused(f"{name}: schema_version {version} is newer than {SCHEMA}, which this version reads")
    if "steps" in config or any(path.startswith("steps/") for path in rest):
        raise FormatRefused(f"{name} has several steps", remedy="Tasks here have one instruction; split it")
    return HarborTask(name, config, instruction, rest)


def to_task(task: HarborTask, store: EnvironmentStore) -> tuple[TaskSpec, Losses]:
    """The directory as a task of ours. Raises FormatRefused that says what stands in the way."""
    losses = Losses()
    if BUNDLE in task.files:
        return _own(task, store, losses), losses
    folder = "environment/"
    docker = task.files.get("environment/Dockerfile")
    if docker is None:
        raise FormatRefused(f"{task.name} has no environment/Dockerfile", remedy="Build its environment here first")
    losses.add("environment/Dockerfile", "its commands are not run: the checkout starts on the plain base system")
    prefix = "environment/repo/" if any(p.startswith("environment/repo/") for p in task.files) else folder
    repo = {
        p.removeprefix(prefix): c
        for p, c in task.files.items()
        if p.startswith(prefix) and p != "environment/Dockerfile"
    }
    gold = {p.removeprefix("solution/files/"): c for p, c in task.files.items() if p.startswith("solution/files/")}
    if not gold:
        raise FormatRefused(
            f"{task.name}: solution/solve.sh is a program, and an oracle here is files",
            remedy="Run it over the checkout and put what it changes under solution/files/",
        )
    inside = {p: c for p, c in task.files.items() if p.startswith("tests/") and p.endswith(".py")}
    ids = [f"{path}::{name}" for path, content in sorted(inside.items()) for name in _tests(path, content)]
    if not ids:
        raise FormatRefused(f"{task.name}: no test function under tests/", remedy="Its tests must be pytest's")
    losses.add("tests/test.sh", "the tests run by pytest here, and all must pass")
    for name in ("agent", "environment", "solution"):
        if task.config.get(name):
            losses.add(f"[{name}]", "limits and settings are those of a run here")
    verifier = task.config.get("verifier") or {}
    try:
        made = TaskSpec(
            id=f"harbor-{task.name.lower().replace('_', '-')}"[:128],
            source="harbor",
            category="other",
            instruction=task.instruction,
            environment=InlineEnvironment(files=_texts(repo)),
            verifier=PytestVerifier(
                test_files=_texts(inside), fail_to_pass=tuple(ids),
                timeout_seconds=float(verifier.get("timeout_sec", 600.0)),
            ),
            gold=_texts(gold),
            protected=tuple(sorted(inside)),
            family=str((task.config.get("task") or {}).get("name", task.name)),
        )  # fmt: skip
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)[0]
        raise FormatRefused(f"{task.name}: {'.'.join(map(str, found['loc']))}: {found['msg']}") from error
    return made, losses


def _own(task: HarborTask, store: EnvironmentStore, losses: Losses) -> TaskSpec:
    try:
        spec = TaskSpec.model_validate_json(task.files[BUNDLE])
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)[0]
        raise FormatRefused(f"{task.name}: {BUNDLE}: {'.'.join(map(str, found['loc']))}: {found['msg']}") from error
    wanted = (task.config.get("metadata") or {}).get("bundle_hash")
    if wanted not in (None, spec.bundle_hash):
        raise FormatRefused(f"{task.name}: {BUNDLE} was changed: its hash is not the one in task.toml")
    if task.instruction != spec.instruction:
        # People edit the file that they see.
        spec = TaskSpec.model_validate({**spec.model_dump(), "instruction": task.instruction})
    if isinstance(spec.environment, BuiltEnvironment) and not store.has(spec.environment.digest):
        losses.add("environment", f"{spec.environment.digest[:16]} is not built here; build it before the task can run")
    return spec


def _tests(path: str, content: bytes) -> list[str]:
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError) as error:
        raise FormatRefused(f"{path} is not Python: {error}") from None
    found = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
            found.append(node.name)
        elif isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            found += [
                f"{node.name}::{inner.name}"
                for inner in node.body
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef) and inner.name.startswith("test")
            ]
    return found


def _texts(files: Mapping[str, bytes]) -> dict[str, str]:
    texts = {}
    for path, content in files.items():
        try:
            texts[str(PurePosixPath(path))] = content.decode()
        except UnicodeDecodeError as error:
            raise FormatRefused(f"{path} is not UTF-8 at byte {error.start}", remedy="Bundles hold text only") from None
    return texts
