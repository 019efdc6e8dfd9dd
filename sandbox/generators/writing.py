"""Work that adds no product code: tests (that must fail for wrong code) and examples in a docstring (that must be right and
must tell wrong code from right). The wrong code are mutants that the package's own tests notice."""

from __future__ import annotations

import ast
import doctest
import random
from collections.abc import Sequence

from sandbox.generators.analysis.package import module_of
from sandbox.generators.analysis.targets import Target
from sandbox.generators.building.builder import TaskBuilder, judge, tests_near
from sandbox.generators.building.drafts import Draft, Reason, Rejected
from sandbox.generators.building.pruning import functions_of, remove_functions
from sandbox.generators.building.screening import screen
from sandbox.generators.building.verifiers import Work
from sandbox.generators.mutation.mutants import mutants_of

WRONG = 2
"""Mutants that written tests must kill: each costs two runs in every grading."""
EXAMPLES = 2
"""Examples asked for at most."""


async def write_tests(builder: TaskBuilder, target: Target, rng: random.Random) -> Work | Rejected:
    """The tests of a function in one file are taken out and to be written again."""
    by_file: dict[str, list[str]] = {}
    for test_id in target.tests:
        by_file.setdefault(test_id.split("::", 1)[0], []).append(test_id)
    path = max(sorted(by_file), key=lambda one: len(by_file[one]))
    text = builder.read(path)
    removed = functions_of(by_file[path])[path]
    # The scan for leaks would find such a name in the other file: said before anything is run.
    if any(f"def {where[-1]}(" in builder.read(other) for where in removed for other in _other_tests(builder, path)):
        return Rejected(Reason.UNSUITED, "another file has a test of the same name")
    wrong = await _wrong(builder, target, rng, frozenset(by_file[path]))
    if not wrong:
        return Rejected(Reason.UNNOTICED, target.name)
    try:
        pruned = remove_functions(text, removed)
        right = ast.unparse(ast.parse(builder.read(target.path)))
    except SyntaxError as error:
        return Rejected(Reason.INVALID, str(error))
    variants = _shuffled([right], wrong, rng)
    return Work(
        source="tests", category="tests", check="tests_written.py", gold={path: text}, begin={path: pruned},
        request=f"Write tests for `{target.name}` of `{target.path}` in `{path}`.",
        terms="They are run with pytest, must pass for the code as it is however it is laid out, and must fail when the function "
        "gives wrong results. Change nothing but that file.",
        family=f"{builder.built.name}:{target.path}:{target.name}:tests",
        facts={
            "path": target.path, "file": path, "roots": list(builder.built.source_roots),
            "variants": [text for text, _ in variants], "codes": [int(bad) for _, bad in variants],
        },
        fail_to_pass=("test_the_tests_tell_right_from_wrong",),
    )  # fmt: skip


def _other_tests(builder: TaskBuilder, path: str) -> list[str]:
    return sorted({test.split("::", 1)[0] for test in builder.built.tests} - {path})


async def write_examples(builder: TaskBuilder, target: Target, rng: random.Random) -> Work | Rejected:
    """The docstring of a top-level function, which had examples, is taken out and to be written again."""
    text = builder.read(target.path)
    node = next((n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef) and n.name == target.name), None)
    said = ast.get_docstring(node) if node is not None else None
    if node is None or said is None:
        return Rejected(Reason.NOTHING_TO_SHOW, target.name)
    try:
        shown = [one for one in doctest.DocTestParser().get_examples(said) if target.name in one.source and one.want]
    except ValueError as error:
        return Rejected(Reason.INVALID, str(error))
    if not shown or len(node.body) < 2:
        return Rejected(Reason.NOTHING_TO_SHOW, target.name)
    wrong = await _wrong(builder, target, rng, frozenset(target.tests))
    if not wrong:
        return Rejected(Reason.UNNOTICED, target.name)
    lines = text.split("\n")
    first = node.body[0]
    assert first.end_lineno is not None
    del lines[first.lineno - 1 : first.end_lineno]
    variants = _shuffled([text, ast.unparse(ast.parse(text))], wrong, rng)
    least = min(EXAMPLES, len(shown))
    return Work(
        source="examples", category="docs", check="examples_written.py", gold={target.path: text},
        begin={target.path: "\n".join(lines)},
        request=f"Document `{target.name}` in `{target.path}`: give it a docstring with at least {least} doctest examples.",
        terms="The examples must be right, and such that one of them would fail if the function went wrong. Leave the code "
        "as it is.",
        family=f"{builder.built.name}:{target.path}:{target.name}:docs",
        facts={
            "module": module_of(target.path, builder.built.source_roots), "name": target.name, "min_examples": least,
            "variants": [text for text, _ in variants], "refused": [bad for _, bad in variants],
        },
        fail_to_pass=(
            "test_there_are_examples_of_the_function", "test_the_examples_are_right",
            "test_the_examples_tell_right_from_wrong",
        ),
        tests=tests_near(builder.built, (target.path,), target.tests),
    )  # fmt: skip


def _shuffled(right: Sequence[str], wrong: Sequence[str], rng: random.Random) -> list[tuple[str, bool]]:
    """(text, whether it is wrong) in an order that tells nothing."""
    made = [*((text, False) for text in right), *((text, True) for text in wrong)]
    rng.shuffle(made)
    return made


async def _wrong(builder: TaskBuilder, target: Target, rng: random.Random, within: frozenset[str]) -> list[str]:
    """Texts of the module with a bug in the function that tests of `within` notice."""
    drafts = [draft for draft in mutants_of(builder, target, rng) if isinstance(draft, Draft)]
    found = []
    for draft, run in zip(drafts, await screen(builder, drafts), strict=True):
        judged = judge(run, draft.expected)
        noticed = not isinstance(judged, Rejected) and within & set(judged[0])
        everything = isinstance(judged, Rejected) and judged.reason in (Reason.NOTHING_LEFT, Reason.BREAKS_TOO_MUCH)
        if noticed or (everything and run.finished):
            found.append(draft.broken[target.path])
    return found[:WRONG]
