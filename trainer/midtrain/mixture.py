"""A mixture of sources by weight, counted in tokens: the source that is furthest behind its share comes next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainer.learning.supervised import Example


def mixed(sources: Sequence[tuple[Iterator[Example], float]]) -> Iterator[Example]:
    """Examples of endless (examples, weight) sources. Draws no random number: each source has its own order."""
    served = [0.0] * len(sources)
    while True:
        chosen = min(range(len(sources)), key=served.__getitem__)
        examples, weight = sources[chosen]
        example = next(examples, None)
        if example is None:
            return
        served[chosen] += len(example.ids) / weight
        yield example
