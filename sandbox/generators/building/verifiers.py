"""Tasks whose verifier the generator writes: checks of the work's result, beside the package's own tests.

They cover work other than bug fixes. A check inspects the result as code (a name, a location, callers and callees), or runs it
on right and wrong code (tests, examples). The package's tests must keep passing. Checks are files below `checks/`; their
parameters precede their text. Prose and taste are not judged: that takes a rubric.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.generators.building.builder import TaskBuilder, controlled, seconds_for
from sandbox.generators.building.drafts import Rejected
from sandbox.generators.building.instructions import Evidence, Style, hurried, reveals
from sandbox.tasks.spec import BuiltEnvironment, Category, PytestVerifier, TaskSource, TaskSpec

CHECKS = Path(__file__).parent / "checks"
CHECK_SECONDS = 60.0
"""Processor time for the checks themselves, beyond that of the tests."""


@dataclass(frozen=True, slots=True)
class Work:
    """A piece of work with its oracle and its checks."""

    source: TaskSource
    category: Category
    request: str
    """What is wanted, in one sentence that every style keeps."""
    terms: str
    """What else holds, for styles that say more."""
    family: str
    gold: dict[str, str]
    check: str
    """File below `checks/`."""
    facts: Mapping[str, object]
    """What the check looks for; it reads each as a constant in capitals."""
    fail_to_pass: tuple[str, ...]
    """Names of checks that fail at first."""
    pass_to_pass: tuple[str, ...] = ()
    """Names of checks that hold from the beginning."""
    begin: dict[str, str] = field(default_factory=dict)
    """Files of the checkout as the agent gets them, where they are not pristine."""
    tests: tuple[str, ...] = ()
    """Tests of the package that must go on passing."""
    rewritten: dict[str, str] = field(default_factory=dict)
    """Files of these tests as they judge, where the work asks for other ones than the checkout has."""


def write(work: Work, style: Style, rng: random.Random) -> str:
    """The instruction."""
    if style == "terse":
        return hurried(work.request, rng)
    if style == "issue":
        title = work.request.partition("`")[0].strip() or "Change"
        return f"# {title.rstrip('.,:')}\n\n{work.request}\n\n{work.terms}\n"
    return f"{work.request} {work.terms}\n"


async def verified_task(builder: TaskBuilder, work: Work, rng: random.Random) -> TaskSpec | Rejected:
    """The task if its controls hold. Raises SandboxError."""
    style = rng.choice(builder.styles)
    told = write(work, style, rng)
    if builder.rewrite is not None:
        kept = told if style == "terse" else work.request
        said, tokens = await builder.rewrite(told, Evidence(builder.built.name, wanted=kept))
        builder.found.model_tokens += tokens
        begin = {path: work.begin.get(path) or builder.pristine(path) for path in work.gold}
        told = told if reveals(said, told, work.gold, begin, work.fail_to_pass) else said
    return await controlled(builder, spec_of(builder, work, told))


def spec_of(builder: TaskBuilder, work: Work, instruction: str) -> TaskSpec:
    built = builder.built
    repo = builder.store.repository(built.environment.digest)
    # One constant for each fact: those that only assertions use are expectations, which never enter the sandbox.
    constants = "".join(f"{name.upper()} = {value!r}\n" for name, value in work.facts.items())
    text = constants + (CHECKS / work.check).read_text(encoding="utf-8")
    digest = hashlib.sha256(f"{work.family}\0{text}".encode()).hexdigest()[:10]
    place = _folder_of_tests(built.tests)
    hidden = f"{place}test_{work.category}_{digest}.py"
    conftests = sorted(path.relative_to(repo).as_posix() for path in repo.rglob("conftest.py"))
    # A test file that the work itself changes is not laid over it.
    files = sorted({test.split("::", 1)[0] for test in work.tests} - work.gold.keys())
    tests = tuple(test for test in work.tests if test.split("::", 1)[0] in files)
    judging = {p: work.rewritten.get(p) or text for p, text in builder.texts((*files, *conftests)).items()}
    return TaskSpec(
        id=f"{work.source}-{built.name}-{digest}".lower(),
        source=work.source,
        category=work.category,
        instruction=instruction,
        environment=BuiltEnvironment(digest=built.environment.digest, overrides=work.begin),
        verifier=PytestVerifier(
            test_files={hidden: text, **judging},
            fail_to_pass=tuple(f"{hidden}::{name}" for name in work.fail_to_pass),
            pass_to_pass=(*(f"{hidden}::{name}" for name in work.pass_to_pass), *tests),
            timeout_seconds=CHECK_SECONDS + seconds_for(built, tests),
            pytest_args=built.pytest_args,
        ),
        gold=work.gold,
        protected=tuple(sorted({hidden, *files, *conftests})),
        family=work.family[:200],
    )  # fmt: skip


def _folder_of_tests(tests: Sequence[str] | Mapping[str, float]) -> str:
    first = sorted(tests)[0].split("::", 1)[0]
    return first[: first.rfind("/") + 1]
