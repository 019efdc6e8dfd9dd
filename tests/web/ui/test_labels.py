"""Words that pages show for codes: the code stays in the database and the API."""

from __future__ import annotations

from composer_web.evals.models import Phase
from composer_web.evals.results.comparing import Change, Side
from composer_web.rollouts.models import GroupState
from composer_web.tasks.curation.filters import TaskFilter
from composer_web.ui.templatetags import states, ui


def test_a_consumed_group_is_shown_as_trained() -> None:
    assert GroupState.CONSUMED == "consumed"
    assert ui.badge("consumed") == '<span class="badge badge--good">trained</span>'
    assert ">trained</button>" in states.state("consumed", "group") and ui.words("consumed") == "trained"


def test_phases_of_evaluations_are_baseline_and_final() -> None:
    assert [(phase.value, phase.label) for phase in Phase] == [
        ("before", "Baseline"), ("during", "During training"), ("after", "Final"), ("alone", "on its own"),
    ]  # fmt: skip


def test_tasks_are_filtered_by_validation() -> None:
    assert TaskFilter.base_filters["controls"].label == "Validation"


def test_a_change_of_a_task_is_significant_by_its_p_value() -> None:
    before, after = Side(1, [1, 2], []), Side(2, [], [3, 4])
    sure, unsure = Change(None, before, after, 0.01), Change(None, before, after, 0.3)  # type: ignore[arg-type]
    assert (sure.word, sure.verdict, sure.significant) == ("worse", "clearly worse", True)
    assert (unsure.word, unsure.verdict, unsure.significant) == ("worse", "worse", False)
