"""How far the rates of sessions may move before a guard speaks: the same bounds for a run and for a canary."""

from __future__ import annotations

from trainer.config.parts import Part, setting


class Guards(Part):
    """Bounds on how far the rates may move, in shares of turns."""

    edit_drop: float = setting(0.15, "Largest fall of the share of turns that edit", gt=0, le=1, advanced=True)
    question_rise: float = setting(0.15, "Largest rise of the share of turns that only ask", gt=0, le=1, advanced=True)
    malformed_rise: float = setting(
        0.05, "Largest rise of the share of turns with a malformed tool call", gt=0, le=1, advanced=True
    )
    min_turns: int = setting(50, "Turns on each side before a guard judges", ge=1, le=1_000_000_000, advanced=True)
    z_score: float = setting(
        2.0, "Standard errors by which a difference must exceed chance", ge=0, le=10, advanced=True
    )
