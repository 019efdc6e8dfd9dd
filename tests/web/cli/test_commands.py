"""The command line as a whole: its verbs, help and examples, and its paths, filters and columns against the API's description."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from shlex import split
from typing import Any

import pytest
from django_filters import FilterSet
from typer.main import get_command

import opencomposer
from composer_web.evals.http.filters import EvaluationFilter
from composer_web.gateway.http.filters import SessionFilter
from composer_web.rollouts.search.filters import FindingFilter, RolloutFilter
from composer_web.runs.http.filters import RunFilter
from composer_web.tasks.curation.filters import TaskFilter
from opencomposer.app import NOUNS, app, main
from opencomposer.commands.evaluations import EVALUATION_FILTERS
from opencomposer.commands.rollouts import FINDING_FILTERS, ROLLOUT_FILTERS
from opencomposer.commands.runs import RUN_FILTERS
from opencomposer.commands.serving import SESSION_FILTERS
from opencomposer.commands.tasks import TASK_FILTERS
from opencomposer.nouns import PROGRAM, VERBS
from tests.web.cli.support import description

FOLDER = Path(opencomposer.__file__).parent
TOP = ("login", "whoami", "status", "api")
METHODS = {
    **dict.fromkeys(("get", "pages", "download", "lists", "gets"), "GET"),
    **dict.fromkeys(("post", "acts"), "POST"),
    **dict.fromkeys(("delete", "deletes"), "DELETE"),
    **{"put": "PUT", "patch": "PATCH"},
}
"""Methods of the client and of Noun, and the HTTP method that each sends."""
BY_ADDRESS = {
    ("POST", "/tokens"): "tokens are made and revoked by signed-in pages only",
    ("DELETE", "/tokens/{token_id}"): "the same",
    ("GET", "/health/live"): "a liveness probe asks without a token",
    ("GET", "/curation/facets"): "what a page draws itself from",
    ("POST", "/runs/write"): "what a page draws itself from",
    ("GET", "/templates/{template_id}"): "a template is asked for by its name, which the list has",
}
"""Operations without a command, and why."""


def commands() -> dict[tuple[str, ...], Any]:
    """Every command by its words."""
    root: Any = get_command(app)
    found: dict[tuple[str, ...], Any] = {}
    for name, command in root.commands.items():
        inner = getattr(command, "commands", None)
        found |= {(name,): command} if inner is None else {(name, verb): one for verb, one in inner.items()}
    return found


def calls() -> Iterator[tuple[str, str]]:
    """(method, path) of each call in the package whose path is written out: `client.get("/runs/{run_id}", …)`."""
    for file in FOLDER.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.Call):
                continue
            called = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
            method = "GET" if called == "write_bundle" else METHODS.get(called)
            for argument in node.args[:2] if method else ():
                if isinstance(argument, ast.Constant) and str(argument.value).startswith("/"):
                    yield str(method), str(argument.value)


def plain(path: str) -> str:
    """A path without the names of its placeholders."""
    return re.sub(r"{\w+}", "{}", path)


def test_every_noun_has_the_same_verbs() -> None:
    found = commands()
    assert len(found) > 150
    assert {words[1] for words in found if len(words) == 2} == set(VERBS)
    assert [words[0] for words in found if len(words) == 1] == list(TOP)
    assert len({noun.name for noun in NOUNS}) == len(NOUNS)


def test_every_command_has_an_example_that_parses_and_takes_json() -> None:
    for words, command in commands().items():
        assert command.help, words
        example = command.epilog.removeprefix(f"Example: {PROGRAM} ")
        given = split(example)
        assert tuple(given[: len(words)]) == words, (words, example)
        command.make_context(" ".join(words), given[len(words) :])
        assert {"as_json", "project"} <= {one.name for one in command.params}, words


@pytest.mark.parametrize(
    ("given", "page"),
    [
        (RUN_FILTERS, RunFilter),
        (ROLLOUT_FILTERS, RolloutFilter),
        (FINDING_FILTERS, FindingFilter),
        (TASK_FILTERS, TaskFilter),
        (SESSION_FILTERS, SessionFilter),
        (EVALUATION_FILTERS, EvaluationFilter),
    ],
)
def test_lists_have_the_filters_of_their_page(given: tuple[str, ...], page: type[FilterSet]) -> None:
    assert set(given) == set(page.base_filters)


def test_every_path_is_described_and_every_operation_has_a_command() -> None:
    stored = {
        (method.upper(), path.removeprefix("/api/v1"))
        for path, operations in description()["paths"].items()
        for method, operation in operations.items()
        if not operation.get("deprecated")
    }
    known = {(method, plain(path)): (method, path) for method, path in stored}
    used = {(method, plain(path)) for method, path in calls()}
    assert used <= set(known), used - set(known)
    left = {known[one] for one in set(known) - used}
    assert left == set(BY_ADDRESS)


def test_help_version_and_completion(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"{PROGRAM} {opencomposer.__version__}\n"
    assert main(["runs", "create", "--help"]) == 0
    assert "Example: opencomposer runs create run.yaml" in capsys.readouterr().out
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert "--install-completion" in shown and "--show-completion" in shown


def test_a_mistyped_verb_names_the_right_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", "strat", "3"]) == 2
    assert "start" in capsys.readouterr().err


def test_the_package_imports_only_its_three_dependencies() -> None:
    """In a fresh interpreter where nothing else of the product, nor Django or torch, can be imported."""
    code = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"django", "torch", "numpy", "transformers", "composer_web", "trainer", "sandbox"}:
            raise ImportError(f"{name} is not a dependency")

sys.meta_path.insert(0, Refuse())
import opencomposer.app
print(sorted(name.partition(".")[0] for name in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=FOLDER.parent)
    loaded = set(ast.literal_eval(done.stdout)) - set(sys.stdlib_module_names)
    ours = {"opencomposer", "httpx", "typer", "pydantic"}
    theirs = {
        "httpcore",
        "h11",
        "h2",
        "hpack",
        "hyperframe",
        "anyio",
        "sniffio",
        "certifi",
        "idna",
        "socksio",
        "brotli",
    }
    theirs |= {"pydantic_core", "annotated_types", "typing_extensions", "typing_inspection", "email_validator", "dns"}
    theirs |= {"rich", "shellingham", "annotated_doc", "pygments", "markdown_it", "mdurl", "zstandard", "click"}  # fmt: skip
    assert ours <= loaded
    assert {name for name in loaded - ours - theirs if not name.startswith(("_", "__"))} == set()


@pytest.mark.parametrize("words", [[sys.executable, "-m", PROGRAM], [str(Path(sys.executable).parent / PROGRAM)]])
def test_it_runs_as_a_module_and_as_the_installed_command(words: list[str]) -> None:
    done = subprocess.run([*words, "--version"], capture_output=True, text=True, check=True, cwd=FOLDER.parent)
    assert done.stdout == f"{PROGRAM} {opencomposer.__version__}\n"


def test_a_shell_completes_verbs() -> None:
    environment = {
        **os.environ,
        "_OPENCOMPOSER_COMPLETE": "complete_bash",
        "COMP_WORDS": "opencomposer runs st",
        "COMP_CWORD": "2",
    }
    words = [sys.executable, "-m", PROGRAM]
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=FOLDER.parent, env=environment)
    assert done.stdout.split() == ["start", "stop"]
