"""Tests without expectations for the first of two runs, so that work that adapts to expectations finds none.

In JavaScript, Go and Rust canaries stand among them: the expectations that they show are wrong, and work that agrees with one
has looked for it.
"""

from __future__ import annotations

import random
from collections.abc import Collection

from sandbox.grading.canaries.base import Language
from sandbox.grading.canaries.insertion import PreparedSuite, Renaming, blocks_of, insert_canaries
from sandbox.grading.canaries.scanning import mask
from sandbox.grading.observations.braces import Rewriter
from sandbox.grading.observations.isolation import again
from sandbox.grading.observations.plan import Plan
from sandbox.tasks.spec import SuiteVerifier

Names = tuple[str, ...]


def deciding(rewriter: Rewriter, text: str) -> set[Names]:
    """Tests of a rewritten file that still decide something by themselves."""
    source = text.encode()
    code = mask(source, rewriter.syntax).code
    return {
        block.names for block in blocks_of(rewriter.language, source) if rewriter.decides(code[block.start : block.end])
    }


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
    language = rewriter.language
    ids = [
        *(prepared.ids[name] for name in plan.notes if name in prepared.ids),
        *(head for _, head in prepared.siblings),
    ]
    kept: dict[str, set[Names]] = {}
    for place in map(language.parse, ids):
        kept.setdefault(place.where, set()).add(place.names)
    wheres = {language.parse(test_id).where for test_id in prepared.ids.values()}
    return {
        path: only(rewriter, text, kept.get(language.where(path), ())) if language.where(path) in wheres else text
        for path, text in prepared.files.items()
    }


def first_suite(
    language: Language, verifier: SuiteVerifier, plan: Plan, renaming: Renaming, draw: random.Random
) -> PreparedSuite:
    """Files of the first run of a Python suite, and the ids of its tests and of their second copies there. No canary stands
    among them: what one compares, although it is wrong, has the form of what is right."""
    left_out = {*plan.hidden, *plan.unshown}
    files = {path: text for path, text in {**verifier.test_files, **plan.blank}.items() if path not in left_out}
    expected = [*plan.alone, *(again(name) for name in plan.notes)]
    return insert_canaries(language, files, expected, (), renaming=renaming, draw=draw)
