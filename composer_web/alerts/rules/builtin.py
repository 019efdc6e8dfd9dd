"""Rules that ship with the product: one for each detector, on by default."""

from __future__ import annotations

from composer_web.alerts.models import Kind, Rule
from composer_web.core.detectors import detectors


def ensure() -> int:
    """Create the missing ones; returns how many. A rule that somebody switched off stays off."""
    known = set(Rule.objects.filter(builtin=True).values_list("detector", flat=True))
    taken = set(Rule.objects.values_list("name", flat=True))
    missing = [one for one in detectors() if one.name not in known]
    Rule.objects.bulk_create(
        [
            Rule(
                name=one.title if one.title not in taken else f"{one.title} (built-in)",
                kind=Kind.DETECTOR,
                detector=one.name,
                builtin=True,
            )
            for one in missing
        ],
        ignore_conflicts=True,  # another process may do the same now
    )
    return len(missing)
