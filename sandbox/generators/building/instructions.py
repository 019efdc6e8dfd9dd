"""Instructions in three styles, derived from a failing test's observation or a feature's purpose, never from the change.

`precise` shows the check that fails; `issue` is a report with a traceback; `terse` is what people type in a hurry:
short, ambiguous, lower-case, with a typo or two.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from sandbox.generators.building.drafts import Draft
from sandbox.generators.building.pruning import function_text, functions_of

Style = Literal["precise", "issue", "terse"]
STYLES: tuple[Style, ...] = get_args(Style)
MAX_TEST_LINES = 30
MAX_ERROR_LINES = 12
MAX_ACCOUNT_LINES = 40
MIN_LINE = 12
"""Characters that make a line of code telling."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What an instruction may be made of."""

    package: str
    test_id: str = ""
    test: str = ""
    """Text of the failing test that is shown."""
    error: str = ""
    """What it saw."""
    account: str = ""
    """pytest's account with the traceback."""
    wanted: str = ""
    """Description of a feature: signature and docstring."""
    where: str = ""
    """File in which the feature belongs."""
    owner: str = ""
    """Class in which it belongs."""
    line: str = ""
    """Line of the shown test at which it fails; empty where it fails outside its own text, such as in a fixture."""

    @property
    def place(self) -> str:
        """Where a feature belongs."""
        return f"`{self.owner}` in `{self.where}`" if self.owner else f"`{self.where}`"

    @property
    def case(self) -> str:
        return self.test_id.partition("[")[2].removesuffix("]")

    @property
    def subject(self) -> str:
        """What the test is about, in the words of its name."""
        name = self.test_id.partition("[")[0].rpartition("::")[2].removeprefix("test")
        return name.strip("_").replace("_", " ") or self.package

    @property
    def told(self) -> str:
        return "\n".join((self.test, self.account, self.error, self.wanted))


def evidence_of(package: str, draft: Draft, failures: Mapping[str, str], read: Callable[[str], str]) -> Evidence | None:
    """From the failing test (id → pytest's account) that says most plainly what fails; None when none can be shown.

    Tests that contain the line at which they fail come first, then those with the shortest text. A benchmark measures
    time: what it asserts, if anything, is no description of behaviour, so it is never shown.
    """
    if draft.summary:
        owner = draft.functions[0].rpartition(".")[0] if draft.functions else ""
        return Evidence(package, wanted=draft.summary, where=next(iter(draft.gold)), owner=owner)
    best: Evidence | None = None
    for test_id in sorted(failures):
        ((path, functions),) = functions_of([test_id]).items()
        (function,) = functions
        text = function_text(read(path), function)
        error = error_lines(failures[test_id])
        if text is None or not error or len(text.splitlines()) > MAX_TEST_LINES or is_benchmark(test_id, text):
            continue
        if draft.shown and (test_id not in draft.shown or any(path in failures[test_id] for path in draft.gold)):
            continue  # what it saw may not lead straight to the cause
        account = "\n".join(failures[test_id].strip().splitlines()[:MAX_ACCOUNT_LINES])
        line = failing_line(failures[test_id], text)
        found = Evidence(package, test_id, text.rstrip(), error, account, line=line)
        if best is None or (not found.line, len(found.test)) < (not best.line, len(best.test)):
            best = found
    return best


def is_benchmark(test_id: str, text: str) -> bool:
    """Whether a test measures speed, by its file's place, its name or the fixture of pytest-benchmark."""
    head = text.partition("):")[0]
    return bool(re.search(r"(?<![a-z])bench(mark)?s?(?![a-z])", test_id.lower())) or "benchmark" in head


def failing_line(account: str, text: str) -> str:
    """The last line of `text` that a frame of pytest's account (`path:line: in name`) quotes; empty when none does."""
    own = {line.strip() for line in text.splitlines()}
    quoted = re.findall(r"(?m)^\S.*:\d+: in .*\n[ \t]+(\S.*)$", account)
    return next((line.strip() for line in reversed(quoted) if line.strip() in own), "")


def error_lines(account: str) -> str:
    """The lines of pytest's account that state the error (marked `E`), without the traceback's code."""
    lines = [line[1:].strip() for line in account.splitlines() if line.startswith("E ")]
    return "\n".join(lines[:MAX_ERROR_LINES])


def write(evidence: Evidence, style: Style, rng: random.Random) -> str:
    """The instruction in one style; the same for the same evidence and state of `rng`."""
    if evidence.wanted:
        return {"precise": _precise_feature, "issue": _feature_request, "terse": _terse_feature}[style](evidence, rng)
    return {"precise": _precise, "issue": _report, "terse": _terse}[style](evidence, rng)


def _precise(seen: Evidence, rng: random.Random) -> str:
    which = f" (case `{seen.case}`)" if seen.case else ""
    return (
        f"`{seen.package}` behaves wrongly. This check used to pass and fails now{which}:\n\n"
        f"```python\n{seen.test}\n```\n\n"
        f"{f'It fails at `{seen.line}` and reports' if seen.line else 'It reports'}:\n\n```\n{seen.error}\n```\n\n"
        "Find the cause in the package and correct it. The check above is not in the checkout; "
        "other checks of the same behaviour will be run as well, and everything that works now must keep working.\n"
    )


def _report(seen: Evidence, rng: random.Random) -> str:
    title = rng.choice(("Wrong result", "Regression", "Unexpected behaviour", "Something broke"))
    opener = rng.choice(
        (
            "After the last update our build is red.",
            "I ran into this while upgrading.",
            "This worked in the release before.",
            "Found by our nightly run, happens every time.",
        )
    )
    which = f"\n\nThe failing case is `{seen.case}`." if seen.case else ""
    return (
        f"# {title}: {seen.subject}\n\n{opener}\n\n"
        f"**To reproduce**\n\n```python\n{seen.test}\n```{which}\n\n"
        f"**Traceback**\n\n```\n{seen.account}\n```\n\n"
        f"**Expected**: the code above runs without an error, as it did before.\n\n"
        f"I did not look for the cause in `{seen.package}` itself.\n"
    )


def _terse(seen: Evidence, rng: random.Random) -> str:
    first = seen.error.splitlines()[0].removeprefix("AssertionError: ").strip()
    brief = first if len(first) <= 100 else f"{first[:97]}..."
    words = rng.choice(
        (
            f"{seen.subject} is broken, getting `{brief}`",
            f"why does {seen.subject} fail? it says `{brief}`, please fix",
            f"something is wrong with {seen.subject} (`{brief}`). can you fix it",
            f"fix {seen.subject}. `{brief}`",
            f"{seen.subject} does not work any more since the last change: `{brief}`",
        )
    )
    return hurried(words, rng)


def _precise_feature(seen: Evidence, rng: random.Random) -> str:
    return (
        f"Add this to {seen.place} of `{seen.package}`:\n\n```python\n{seen.wanted}\n```\n\n"
        f"{'' if seen.owner else 'Make it available where the package offers its public names. '}"
        "Hidden checks will use it as described, and everything that works now must keep working.\n"
    )


def _feature_request(seen: Evidence, rng: random.Random) -> str:
    need = rng.choice(
        (
            "We write this by hand in several places and would rather have it in the library.",
            "Other libraries of this kind have it, and I miss it here.",
            "Our code needs it; a helper on our side would be a poor copy.",
        )
    )
    export = "" if seen.owner else "\n\nIt should be exported beside the other public names."
    return (
        f"# Feature request for {seen.package}\n\n{need} It should live in {seen.place} and behave like this:\n\n"
        f"```python\n{seen.wanted}\n```{export}\n"
    )


def _terse_feature(seen: Evidence, rng: random.Random) -> str:
    lines = seen.wanted.split("\n")
    start = next((at for at, line in enumerate(lines) if not line.startswith("@")), 0)
    head, rest = lines[start], "\n".join(lines[start + 1 :])
    head = re.sub(r"^(async )?def |^class |:$", "", head)
    doc = next((line.strip("\"' ") for line in rest.splitlines() if line.strip("\"' ")), "")
    opener = rng.choice(("add", "we need", "please add", "can you add"))
    return hurried(f"{opener} `{head}` to {f'`{seen.owner}` in ' * bool(seen.owner)}{seen.where}. {doc}", rng)


def hurried(words: str, rng: random.Random) -> str:
    """Lower case, no full stop, a typo or two; what stands between backticks is left alone."""
    parts = words.split("`")
    for at in range(0, len(parts), 2):
        parts[at] = parts[at].lower()
    places = [
        (at, match.start())
        for at in range(0, len(parts), 2)
        for match in re.finditer(r"\b[a-z]{5,}\b", parts[at])
        if "/" not in parts[at][max(0, match.start() - 1) : match.end() + 1]
    ]
    for at, start in sorted(rng.sample(places, min(len(places), rng.randint(0, 2))), reverse=True):
        turn = start + rng.randint(1, 3)
        text = parts[at]
        parts[at] = text[:turn] + text[turn + 1] + text[turn] + text[turn + 2 :]
    return "`".join(parts).strip().rstrip(".") + "\n"


def reveals(
    said: str, text: str, gold: Mapping[str, str], begin: Mapping[str, str], hidden: Collection[str] = ()
) -> str:
    """What `said`, which should be `text` in other words, tells besides: a name that only the oracle's files have, or that
    of a hidden test. Empty when it tells nothing."""
    names = {word for path, right in gold.items() for word in _names(right) - _names(begin.get(path, ""))}
    names |= {test_id.partition("[")[0].rpartition("::")[2] for test_id in hidden}
    return min(_names(said) & names - _names(text), default="")


def _names(text: str) -> set[str]:
    return set(re.findall(r"[^\W\d]\w{3,}", text))


def leaks_answer(text: str, draft: Draft, evidence: Evidence) -> str:
    """What of the oracle `text` tells that the evidence did not: a line of code, or the name of what was changed."""
    flat = " ".join(text.split())
    told = " ".join(evidence.told.split())
    for path, right in draft.gold.items():
        broken = {line.strip() for line in draft.broken.get(path, "").split("\n")}
        for line in map(str.strip, right.split("\n")):
            bare = " ".join(line.split())
            if len(line) >= MIN_LINE and line not in broken and bare in flat and bare not in told:
                return line
    for name in () if draft.summary else draft.functions:
        short = name.rpartition(".")[2]
        if len(short) > 3 and re.search(rf"(?<!\w){re.escape(short)}(?!\w)", text) and short not in told:
            return short
    return ""
