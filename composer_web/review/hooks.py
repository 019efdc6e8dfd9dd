"""What `rollouts` asks this app, see `composer_web.rollouts.review_hooks`."""

from __future__ import annotations

from composer_web.review import annotated, blind, label_rules, selectors


class ReviewHooks:
    excluded_versions = staticmethod(label_rules.excluded_versions)
    ask = staticmethod(label_rules.ask)
    awaited = staticmethod(label_rules.awaited)
    paid = staticmethod(label_rules.paid)
    visible_findings = staticmethod(blind.findings)
    visible_quarantines = staticmethod(blind.quarantines)
    annotated_rollouts = staticmethod(annotated.annotated_rollouts)
    sheet = staticmethod(annotated.sheet_of)
    labelled_rollouts = staticmethod(selectors.labelled_rollouts)
