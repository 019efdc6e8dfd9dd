"""What hidden tests in Go and Rust do not need leaves their files: comments, messages, and all that no expected test uses."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sandbox.grading.canaries.insertion import blocks_of
from sandbox.grading.canaries.scanning import mask
from sandbox.grading.observations.brace_tests.braces import Edit, Rewriter, applied
from sandbox.grading.observations.brace_tests.items import Itemised, without_remarks
from sandbox.grading.observations.hiding import deciding_tests, only_tests
from sandbox.tasks.spec import SuiteVerifier

SOURCES = (".go", ".rs")
Names = tuple[str, ...]


def without_remarks_of(rewriter: Rewriter, verifier: SuiteVerifier) -> dict[str, str]:
    """Files of hidden tests without comments. The product could be compiled from them."""
    if not isinstance(rewriter, Itemised):
        return {}
    return {
        path: without_remarks(rewriter, path, text.encode()).decode()
        for path, text in verifier.test_files.items()
        if path.endswith(SOURCES)
    }


def trimmed(rewriter: Itemised, texts: Mapping[str, str], expected: Mapping[str, Collection[Names]]) -> dict[str, str]:
    """`texts` with the expected tests alone (path → names); those that only report say nothing where they complain."""
    held = {path: text.decode() for path, text in only_tests(rewriter, _encoded(texts), expected).items()}
    decide = deciding_tests(rewriter, held)
    return {path: _silenced(rewriter, text.encode(), decide.get(path, set())).decode() for path, text in held.items()}


def without_block(
    rewriter: Itemised, texts: Mapping[str, str], expected: Mapping[str, Collection[Names]]
) -> set[Names]:
    """Expected tests that stand nowhere as a test, as examples of Go: they decide, and nothing can be said of what they use."""
    found = {block.names for text in texts.values() for block in blocks_of(rewriter.language, text.encode())}
    return {names for each in expected.values() for names in each} - found


def _silenced(rewriter: Itemised, source: bytes, decide: Collection[Names]) -> bytes:
    code = mask(source, rewriter.syntax).code
    edits: list[Edit] = []
    blocks = blocks_of(rewriter.language, source)
    for block in blocks:
        if block.names not in decide:
            edits.extend(rewriter.said(code, block.start, block.end))
    if b"should_panic" not in source:  # what helpers say, too
        said = rewriter.said(code, 0, len(code))
        edits = [edit for edit in said if not any(b.names in decide and b.start <= edit.start < b.end for b in blocks)]
    return applied(source, edits)


def _encoded(texts: Mapping[str, str]) -> dict[str, bytes]:
    return {path: text.encode() for path, text in texts.items()}
