"""Tests without expectations for the first of two runs, so that work that adapts to expectations finds none.

In JavaScript, Go and Rust canaries stand among them: the expectations that they show are wrong, and work that agrees with one
has looked for it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from sandbox.grading.canaries.base import Language
from sandbox.grading.canaries.insertion import PreparedSuite, Renaming, blocks_of, insert_canaries
from sandbox.grading.canaries.javascript import HEAD, TITLE
from sandbox.grading.canaries.scanning import mask
from sandbox.grading.observations.brace_tests.braces import Edit, Rewriter, applied
from sandbox.grading.observations.brace_tests.deciding import SCRIPTS, TestFile
from sandbox.grading.observations.brace_tests.items import Itemised, Reached
from sandbox.grading.observations.brace_tests.javascript import JavaScriptRewriter
from sandbox.grading.observations.brace_tests.settling import settled
from sandbox.grading.observations.js_first_run import is_alone
from sandbox.grading.observations.plan import Plan
from sandbox.grading.observations.python_tests.isolation import again
from sandbox.tasks.spec import SuiteVerifier

Names = tuple[str, ...]


def deciding_tests(rewriter: Rewriter, texts: Mapping[str, str]) -> dict[str, set[Names]]:
    """Path → its tests that show an expectation themselves or by what they lead to."""
    if isinstance(rewriter, Itemised):
        found = Reached(rewriter, {path: text.encode() for path, text in texts.items()}).deciding()
        return {path: found.get(path, set()) for path in texts}
    return {path: TestFile(path, text.encode(), texts).deciding_tests() for path, text in texts.items()}


def only_tests(
    rewriter: Rewriter, texts: Mapping[str, bytes], kept: Mapping[str, Collection[Names]]
) -> dict[str, bytes]:
    """Files without what other tests do than `kept` (path → names); in Go and Rust also without what only those use."""
    if isinstance(rewriter, Itemised):
        return {**texts, **Reached(rewriter, texts).only(kept)}
    return {path: only(rewriter, text, kept.get(path, ())) for path, text in texts.items()}


def only(rewriter: Rewriter, text: bytes, kept: Collection[Names]) -> bytes:
    """`text` without what its other tests do."""
    out, position = bytearray(), 0
    for block in blocks_of(rewriter.language, text):
        if block.names not in kept and block.start >= position:
            out += text[position : block.start] + rewriter.emptied(text[block.start : block.end])
            position = block.end
    return bytes(out + text[position:])


def kept_files(rewriter: Rewriter, plan: Plan, prepared: PreparedSuite) -> dict[str, bytes]:
    """Prepared files of JavaScript, Go or Rust with the tests that the first run compares, and canaries alone."""
    if isinstance(rewriter, JavaScriptRewriter):
        return _javascript_files(plan, prepared)
    language = rewriter.language
    needed = _places(language, (prepared.ids[name] for name in plan.notes if name in prepared.ids))
    canaries = _places(language, (head for _, head in prepared.siblings))
    wheres = {language.parse(test_id).where for test_id in prepared.ids.values()}
    files = {path: text for path, text in prepared.files.items() if path not in (*plan.unshown, *plan.first_without)}
    texts = {p: text for p, text in files.items() if isinstance(rewriter, Itemised) or language.where(p) in wheres}
    compared, others = ({path: each.get(language.where(path), set()) for path in texts} for each in (needed, canaries))
    if isinstance(rewriter, Itemised):  # canaries may need what holds a right expectation
        others = Reached(rewriter, texts).beside(compared, others)
    return {**files, **only_tests(rewriter, texts, {path: compared[path] | others[path] for path in texts})}


def _places(language: Language, ids: Iterable[str]) -> dict[str, set[Names]]:
    found: dict[str, set[Names]] = {}
    for place in map(language.parse, ids):
        found.setdefault(place.where, set()).add(place.names)
    return found


def _javascript_files(plan: Plan, prepared: PreparedSuite) -> dict[str, bytes]:
    """Prepared files with the tests that the first run compares, what these need, and canaries that show nothing besides."""
    language = JavaScriptRewriter.language
    needed: dict[str, set[Names]] = {}
    for place in (language.parse(prepared.ids[name]) for name in plan.notes):
        needed.setdefault(place.where, set()).add(place.names)
    kept = {path: set(names) for path, names in needed.items()}
    for _, head in prepared.siblings:
        place = language.parse(head)
        block = _block(language, [prepared.files.get(place.where, b"")], place.names)
        if block is not None and is_alone(block):
            kept.setdefault(place.where, set()).add(place.names)
    wheres = {language.parse(test_id).where for test_id in prepared.ids.values()}
    texts = {path: text.decode() for path, text in prepared.files.items()}
    others = {path: text for path, text in prepared.files.items() if path not in (*wheres, *plan.first_without)}
    files = {path: TestFile(path, prepared.files[path], texts) for path in wheres & texts.keys()}
    return {
        **others,
        **{path: text.encode() for path, text in plan.first.items()},
        **_left(files, needed, kept, hooks=plan.hooks),
    }


def _left(
    files: Mapping[str, TestFile], needed: Mapping[str, Collection[Names]], kept: Mapping[str, Collection[Names]], *, hooks: bool
) -> dict[str, bytes]:  # fmt: skip
    """Files with the tests `kept`, and of hooks only those that show nothing beside the tests `needed`, as in the plan."""
    left = settled(files, needed, hooks=True).texts if hooks else {}
    made = {}
    for path, file in files.items():
        stay = TestFile(path, left[path].encode(), {**file.files, **left}).hooks if hooks else None
        made[path] = file.without(needed.get(path, ()), kept.get(path, ()), hooks=hooks, among=stay)
    return made


def untitled(files: Mapping[str, bytes]) -> tuple[dict[str, bytes], Callable[[str], str]]:
    """JavaScript files whose groups have titles that say nothing, and what makes the id of a test there of its id before."""
    language = JavaScriptRewriter.language
    made, new = {}, dict[tuple[str, str], str]()
    for path, text in files.items():
        code = mask(text, language.syntax).code if path.endswith(SCRIPTS) else b""
        edits = []
        for head in HEAD.finditer(code):
            title = TITLE.match(text, head.end())
            if head[1] in (b"describe", b"suite") and title is not None:
                key = (language.where(path), title[2].decode("utf-8", "replace"))
                edits.append(Edit(*title.span(2), new.setdefault(key, f"part {len(new) + 1}")))
        made[path] = applied(text, edits)

    def renamed(test_id: str) -> str:
        place = language.parse(test_id)
        above = (new.get((place.where, name), name) for name in place.names[:-1])
        return language.identify(replace(place, names=(*above, *place.names[-1:])))

    return made, renamed


def first_suite(
    language: Language, verifier: SuiteVerifier, plan: Plan, renaming: Renaming, draw: random.Random
) -> PreparedSuite:
    """Files of the first run of a Python suite, and the ids of its tests and of their second copies there. No canary stands
    among them: what one compares, although it is wrong, has the form of what is right."""
    left_out = {*plan.hidden, *plan.unshown}
    files = {path: text for path, text in {**verifier.test_files, **plan.blank}.items() if path not in left_out}
    expected = [*plan.alone, *(again(name) for name in plan.notes)]
    return insert_canaries(language, files, expected, (), renaming=renaming, draw=draw)


def _block(language: Language, files: Iterable[bytes], names: Names) -> bytes | None:
    for text in files:
        for block in blocks_of(language, text):
            if block.names == names:
                return text[block.start : block.end]
    return None
