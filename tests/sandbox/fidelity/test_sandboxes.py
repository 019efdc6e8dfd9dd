"""The probe in real sandboxes: what was mended stays mended, and a whole measurement."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from sandbox import fidelity
from sandbox.backends.base import Backend
from sandbox.backends.machine import Machine
from sandbox.fidelity.measure import KINDS, look, sandbox_names
from sandbox.fidelity.record import record
from sandbox.tasks.environments import EnvironmentStore

MACHINE = Machine()
MENDED = {
    *("users", "groups", "variables", "home_entries", "home_files", "home_age_days", "history_lines", "email_domain"),
    *("root_entries", "init_padded"),
}
OF_THE_HOST = {"tools", "python_of_root"}
"""Cheap to mend, but by whoever sets the host up."""


@pytest.fixture(scope="module")
def two(environments: EnvironmentStore):
    return fidelity.checkouts(environments, MACHINE, 2)


async def test_what_can_be_mended_cheaply_is(backend: Backend, two) -> None:
    printed = await look(backend, two["project-00"], ("probe",))
    verdict = fidelity.judge(fidelity.facets(printed["probe"]), fidelity.reference())
    tells = {tell.facet: tell for tell in verdict.tells}
    assert not MENDED & tells.keys()
    assert {name for name, tell in tells.items() if tell.effort == "cheap"} <= OF_THE_HOST
    assert {"seccomp", "no_new_privileges", "capabilities_bounded"} <= tells.keys(), (
        "what isolation needs is not given up"
    )


async def test_a_measurement(backend: Backend, two) -> None:
    found = await fidelity.measure(
        backend, two, machine=MACHINE, profile=fidelity.reference(), turns=fidelity.recorded_turns(), name="namespaces"
    )
    assert found.checkouts == 2 and found.backend == "namespaces"
    for command in ("pwd", "git status", "ls", "whoami", "hostname", "git config user.name"):
        assert found.early.commands[command] <= 0.5, command
    assert found.curious.commands["mount"] == 1.0, "a sandbox that mounts what a machine mounts is news"
    assert fidelity.Result.model_validate_json(found.model_dump_json()) == found


async def test_what_a_profile_says_is_what_a_sandbox_shows(
    backend: Backend, environments: EnvironmentStore, tmp_path: Path
) -> None:
    """A sandbox recorded as a machine: against itself it has no tell, and another machine's look is one."""
    machine = dataclasses.replace(MACHINE, person="Ada Quill", history_lines=3, home_age_days=2.0)
    places = fidelity.checkouts(environments, machine, 2)
    for name, environment in places.items():
        for kind, text in (await look(backend, environment, ("probe", *KINDS))).items():
            (tmp_path / f"{name}.{kind}").write_text(text)
    profile, turns = record(
        tmp_path, how="a sandbox", user="dev", host="workstation", home="/home/dev", person="Ada Quill"
    )
    assert turns.checkouts.keys() == places.keys()
    assert turns.checkouts["project-00"]["early"]["git config user.name"] == "PERSON"
    assert sandbox_names(machine)["Ada Quill"] == "PERSON"
    bare = profile.model_copy(update={"stated": {}})
    assert fidelity.judge(profile.facets, bare).score == 100.0
    usual = await look(backend, fidelity.checkouts(environments, MACHINE, 1)["project-00"], ("probe",))
    told = {tell.facet for tell in fidelity.judge(fidelity.facets(usual["probe"]), bare).tells}
    assert {"history_lines", "home_age_days"} <= told


def test_a_folder_without_recordings_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"holds no NAME\.probe"):
        record(tmp_path, how="", user="a", host="b", home="/home/a", person="")
