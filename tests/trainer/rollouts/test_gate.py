from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from trainer.orchestrator.admission import (
    admissible_groups,
    concurrency_capacity,
    staleness_capacity,
)


def test_the_published_formula():
    assert (
        staleness_capacity(published_version=3, max_off_policy_steps=2, batch_rollouts=96, accepted=300, reserved=100)
        == 6 * 96 - 400
    )
    assert (
        staleness_capacity(
            published_version=0, max_off_policy_steps=0, batch_rollouts=8, accepted=8, reserved=0, accepted_offset=8
        )
        == -8
    )
    assert concurrency_capacity(limit=64, in_flight=60) == 4
    assert concurrency_capacity(limit=None, in_flight=60) is None


@given(st.integers(1, 16), st.integers(2, 16))
def test_on_policy_admits_exactly_one_batch_a_version(groups_per_step, group_size):
    common = {"max_off_policy_steps": 0, "groups_per_step": groups_per_step, "group_size": group_size}
    fresh = admissible_groups(published_version=5, accepted_groups=5 * groups_per_step, reserved_groups=0, **common)
    full = admissible_groups(published_version=5, accepted_groups=6 * groups_per_step, reserved_groups=0, **common)
    assert (fresh, full) == (groups_per_step, 0)


def test_a_group_is_admitted_whole_or_not_at_all():
    common = {"published_version": 0, "max_off_policy_steps": 0, "groups_per_step": 4, "group_size": 8}
    assert admissible_groups(accepted_groups=0, reserved_groups=3, **common) == 1
    assert admissible_groups(accepted_groups=0, reserved_groups=5, **common) == 0
    assert admissible_groups(accepted_groups=0, reserved_groups=0, in_flight_limit=2, **common) == 2
    assert admissible_groups(accepted_groups=1, reserved_groups=0, total_groups=2, **common) == 1


def test_surplus_is_dispatched_once_and_never_beyond_the_run():
    common = {
        "max_off_policy_steps": 0,
        "groups_per_step": 4,
        "group_size": 8,
        "over_sampled_groups": 2,
        "total_groups": 8,
    }
    assert admissible_groups(published_version=0, accepted_groups=0, reserved_groups=0, **common) == 6
    assert admissible_groups(published_version=0, accepted_groups=6, reserved_groups=0, **common) == 0
    assert admissible_groups(published_version=1, accepted_groups=6, reserved_groups=0, **common) == 2


def test_nothing_is_admitted_while_enough_wait_to_be_trained():
    common = {
        "max_off_policy_steps": 7,
        "groups_per_step": 4,
        "group_size": 8,
        "max_buffered_groups": 4,
        "reserved_groups": 2,
    }
    assert admissible_groups(published_version=0, accepted_groups=3, ready_groups=3, **common) == 27
    assert admissible_groups(published_version=0, accepted_groups=4, ready_groups=4, **common) == 0
    assert admissible_groups(published_version=1, accepted_groups=11, ready_groups=3, **common) == 23


def test_a_step_that_trains_while_the_version_before_it_is_written_opens_nothing():
    """Step 2 has taken its four groups; what starts now would start at version 0."""
    taken = {"accepted_groups": 9, "ready_groups": 1, "reserved_groups": 0, "max_off_policy_steps": 7}
    step = {"groups_per_step": 4, "group_size": 8}
    assert admissible_groups(published_version=0, max_buffered_groups=4, **taken, **step) == 0
    assert admissible_groups(published_version=1, max_buffered_groups=4, **taken, **step) == 27
    assert admissible_groups(published_version=0, **taken, **step) == 23


class AsynchronousLoop(RuleBasedStateMachine):
    """Dispatch, accept, lose and train in any order: the bound on staleness at dispatch always holds."""

    STEP, SIZE, LIMIT, TOTAL = 3, 4, 5, 30

    def __init__(self) -> None:
        super().__init__()
        self.staleness = 1
        self.version = 0
        self.flying: list[int] = []
        self.accepted: list[int] = []
        self.trained = 0

    def room(self) -> int:
        return admissible_groups(
            published_version=self.version,
            max_off_policy_steps=self.staleness,
            groups_per_step=self.STEP,
            group_size=self.SIZE,
            accepted_groups=len(self.accepted),
            reserved_groups=len(self.flying),
            in_flight_limit=self.LIMIT,
            total_groups=self.TOTAL,
            ready_groups=len(self.accepted) - self.trained,
            max_buffered_groups=self.STEP,
        )

    @precondition(lambda self: self.room() > 0)
    @rule()
    def dispatch(self) -> None:
        self.flying.append(self.version)

    @precondition(lambda self: self.flying)
    @rule(pick=st.integers(0, 4))
    def accept(self, pick: int) -> None:
        self.accepted.append(self.flying.pop(pick % len(self.flying)))

    @precondition(lambda self: self.flying)
    @rule(pick=st.integers(0, 4))
    def lose(self, pick: int) -> None:
        self.flying.pop(pick % len(self.flying))

    @precondition(lambda self: len(self.accepted) - self.trained >= self.STEP)
    @rule()
    def train(self) -> None:
        self.trained += self.STEP
        self.version += 1

    @invariant()
    def bounded(self) -> None:
        assert len(self.flying) <= self.LIMIT
        assert len(self.flying) + len(self.accepted) <= self.TOTAL
        assert len(self.flying) + len(self.accepted) <= (self.version + self.staleness + 1) * self.STEP

    @invariant()
    def never_stuck(self) -> None:
        waiting = len(self.accepted) - self.trained
        assert self.flying or waiting >= self.STEP or self.room() > 0 or len(self.accepted) == self.TOTAL


TestAsynchronousLoop = AsynchronousLoop.TestCase
