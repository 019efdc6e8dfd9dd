"""Profiles: which tools an episode offers, how much of their output a policy reads, and whose machine it works on."""

from __future__ import annotations

from dataclasses import dataclass

from sandbox.backends.machine import MACHINE, Machine

ALL_TOOLS = (
    "read_file",
    "list_dir",
    "edit_file",
    "write_file",
    "delete_file",
    "grep",
    "read_lints",
    "run_terminal_cmd",
    "todo_write",
    "finish",
)


@dataclass(frozen=True, slots=True)
class Profile:
    """Everything about tools that is not the sandbox. One profile serves a whole run."""

    name: str
    tools: tuple[str, ...] = ALL_TOOLS
    output_bytes: int = 30_000
    """Most bytes of one call's output; the middle is cut and the cut is announced."""
    grep_matches: int = 50
    line_chars: int = 400
    """Longest line that `grep` shows; the rest of it is cut."""
    list_entries: int = 500
    lint_files: int = 50
    command_seconds: float = 60.0
    announce_more_matches: bool = True
    """Whether `grep` says that there are more matches than it shows."""
    machine: Machine = MACHINE


_PROFILES = {
    profile.name: profile
    for profile in (
        Profile("full"),
        Profile(
            "compact",  # for contexts of a few thousand tokens
            output_bytes=4_000,
            grep_matches=20,
            line_chars=200,
            list_entries=100,
            lint_files=20,
        ),
        Profile(
            "toy",
            output_bytes=1200,
            grep_matches=4,
            line_chars=160,
            list_entries=40,
            lint_files=8,
            command_seconds=10.0,
            announce_more_matches=False,
        ),
    )
}


def profiles() -> tuple[Profile, ...]:
    return tuple(_PROFILES.values())


def get_profile(name: str) -> Profile:
    """The profile of that name. Raises ValueError that lists the known ones."""
    try:
        return _PROFILES[name]
    except KeyError:
        raise ValueError(f"unknown harness profile {name!r}; choose one of {', '.join(sorted(_PROFILES))}") from None
