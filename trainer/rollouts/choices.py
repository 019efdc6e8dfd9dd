"""Sampler choices beside the tokens of one context window, for replay in the trainer (`trainer/router_replay`)."""

from __future__ import annotations

from dataclasses import dataclass, field

from trainer.inference.contract import GenerateResponse, InferenceError
from trainer.routed_experts import ReplayRefused, RoutedExperts, SamplingMasks, merge
from trainer.types import Segment


@dataclass(slots=True)
class Choices:
    open_ids: list[list[int]] = field(default_factory=list)
    """Sampling mask by token of the window; empty where sampling was unrestricted."""
    experts: list[RoutedExperts] = field(default_factory=list)
    """Routed experts in order of arrival; each record starts where the previous one ends."""

    @classmethod
    def of(cls, segment: Segment) -> Choices:
        """Choices of a resumed window. Raises ReplayRefused."""
        open_ids = segment.support.unpack() if segment.support else [[] for _ in segment.tokens]
        return cls(open_ids, [segment.experts] if segment.experts else [])

    @property
    def experts_known(self) -> int:
        """Number of positions with known experts; the next request asks for those that follow."""
        return self.experts[-1].stop if self.experts else 0

    def read(self, tokens: int) -> None:
        self.open_ids += [[] for _ in range(tokens)]

    def wrote(self, response: GenerateResponse, before: int) -> None:
        """Record a response. `before`: tokens of the window before it. Raises InferenceError when its choices are
        inconsistent."""
        read = before + len(response.token_ids) - 1  # the last token of all was written, not read
        routed = response.experts
        if routed is not None and (routed.start, routed.stop) != (self.experts_known, read):
            raise InferenceError(
                f"the engine returned experts of positions {routed.start} to {routed.stop}, "
                f"{self.experts_known} to {read} were asked for"
            )
        try:
            open_ids = response.support.unpack() if response.support else [[] for _ in response.token_ids]
            if routed is not None:
                merge([*self.experts[:1], routed], read + 1)
        except ReplayRefused as error:
            raise InferenceError(f"the engine returned choices that cannot be repeated: {error}") from error
        if len(open_ids) != len(response.token_ids) or any(
            ids and token not in ids for ids, token in zip(open_ids, response.token_ids, strict=True)
        ):
            raise InferenceError("the engine sampled tokens that its own sampling support leaves out")
        if routed is not None:
            self.experts.append(routed)
        self.open_ids += open_ids

    def routed(self) -> RoutedExperts | None:
        return merge(self.experts, len(self.open_ids))

    def support(self) -> SamplingMasks | None:
        return SamplingMasks.pack(self.open_ids) if any(self.open_ids) else None
