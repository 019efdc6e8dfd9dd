"""Find out with the oracle's work which tests of a Python suite hold in the first run, and what is compared between both runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from sandbox.grading.adapters.base import Hit, TestRun
from sandbox.grading.observations.python_tests.isolation import Isolated, Place, again, isolate, place_of, places_in
from sandbox.grading.observations.python_tests.literals import purge, shows_public_alone
from sandbox.grading.observations.python_tests.python import Rewritten
from sandbox.grading.observations.reports.base import Expected, Site
from sandbox.grading.observations.reports.comparing import alike, noted_values
from sandbox.grading.observations.reports.judge import judge_test

TRIES = 3

RunForm = Callable[[Mapping[str, str], Collection[str]], Awaitable[TestRun]]
"""Run the oracle's work with these files in place of the tests' own (path → text), and without those files."""


@dataclass(frozen=True, slots=True)
class FirstRun:
    """As the fields of `Plan` of the same names."""

    blank: dict[str, str]
    hidden: tuple[str, ...]
    alone: tuple[str, ...]
    beside: tuple[str, ...]
    notes: dict[str, tuple[int, ...]]
    run: TestRun


def residual_of(blank: Mapping[str, Rewritten], delivered: Mapping[str, Rewritten], files: Mapping[str, str]) -> int:
    """Assertions and tests that keep an expectation inside, and files with literals that are no input of the product. With 0
    there is nothing to isolate."""
    noted = sum(len(made.notes) for made in delivered.values())
    shown = sum(len(made.shows) for made in blank.values())
    read = {**_python(files), **{path: made.text for path, made in blank.items()}}
    unexplained = sum(text != read[path] for path, text in purge(read, public=_public(files)).items())
    return noted + shown + unexplained + sum(_unnoted(blank[path].text, made) for path, made in delivered.items())


def _python(files: Mapping[str, str]) -> dict[str, str]:
    return {path: text for path, text in files.items() if path.endswith(".py")}


def _public(files: Mapping[str, str]) -> frozenset[str]:
    """Test files that say of themselves that their literals are public; rewriting drops their comments."""
    return frozenset(path for path, text in files.items() if shows_public_alone(text))


def _purged(form: Isolated, files: Mapping[str, str]) -> Isolated:
    """The form without tests and statements that hold a literal which goes into no call of the product."""
    read = {path: text for path, text in {**_python(files), **form.files}.items() if path not in form.hidden}
    left = purge(_python(read), public=_public(files))
    changed = {path: text for path, text in left.items() if text != read[path]}
    tests = {place for path, text in left.items() for place in places_in(path, text)}
    return dataclasses.replace(form, files={**form.files, **changed}, tests=form.tests & tests)


def _unnoted(blank: str, made: Rewritten) -> int:
    """Whether a file decides inside where nothing is noted, as a block that must raise does."""
    return int(not made.notes and blank != made.text)


async def find_first_run(
    blank: Mapping[str, Rewritten], delivered: Mapping[str, Rewritten], files: Mapping[str, str], ids: Sequence[str],
    sites: Mapping[int, Site], expected: Mapping[str, Sequence[Expected]], real: TestRun, run: RunForm,
) -> FirstRun:  # fmt: skip
    """`ids` are those of the delivered tests; `real` is what the oracle's work did in their delivered form."""
    noted = frozenset(number for made in delivered.values() for number in made.notes)
    shows: set[Place] = {(path, names) for path, made in blank.items() for names in made.shows}
    providers = {name for made in blank.values() for name in made.providers}
    bare, full = ({path: made.text for path, made in form.items()} for form in (blank, delivered))
    twice = {place_of(name) for name in ids if any(hit.site in noted for hit in real.observed.get(name, ()))}
    for attempt in range(TRIES):
        form = _purged(isolate(bare, full, files, shows=shows, providers=providers, twice=twice), files)
        ran = await run(form.files, form.hidden)
        left = [
            name for name in ids if place_of(name) in form.tests and (expected.get(name) or place_of(name) in twice)
        ]
        alone = [name for name in left if _holds(name, sites, expected, ran)]
        if len(alone) == len(left):
            break
        if attempt == 0 and twice:
            twice = set()  # a second copy may be what they do not bear
        else:
            shows |= {place_of(name) for name in left} - {place_of(name) for name in alone}
    return FirstRun(
        blank=form.files,
        hidden=form.hidden,
        alone=tuple(alone),
        beside=_beside(ids, alone, form, expected),
        notes=_notes(alone, noted, ran, real),
        run=ran,
    )


def _holds(name: str, sites: Mapping[int, Site], expected: Mapping[str, Sequence[Expected]], ran: TestRun) -> bool:
    passed = ran.finished and ran.status(name) == "passed"
    return passed and not judge_test(sites, expected.get(name, ()), ran.observed.get(name, ()))


def _beside(
    ids: Sequence[str], alone: Collection[str], form: Isolated, expected: Mapping[str, Sequence[Expected]]
) -> tuple[str, ...]:
    judged = {name for name in alone if expected.get(name) and place_of(name) not in form.deciding}
    return tuple(name for name in ids if name not in judged)


def _notes(alone: Sequence[str], noted: Collection[int], first: TestRun, second: TestRun) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for name in alone:
        here, there, copy = (noted_values(hits, noted) for hits in _three(name, first, second))
        steady = tuple(sorted(number for number in here if alike(here, there, number, copy)))
        if steady:
            found[name] = steady
    return found


def _three(name: str, first: TestRun, second: TestRun) -> tuple[Sequence[Hit], Sequence[Hit], Sequence[Hit]]:
    return first.observed.get(name, ()), second.observed.get(name, ()), first.observed.get(again(name), ())
