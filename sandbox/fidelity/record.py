"""Recordings of a developer's machine → a profile that holds counts and names of common things only.

    python -m sandbox.fidelity.record FOLDER --how "who, what machine" --user NAME --host NAME [--to reference]

FOLDER holds NAME.probe, NAME.early and NAME.curious for each checkout: what `bash probe.sh` and so on printed in it.
Read the two JSON files before you pass them on.
"""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path

from sandbox.fidelity import observe
from sandbox.fidelity.judge import Profile
from sandbox.fidelity.measure import KINDS, TURNS, Turns, cleaned
from sandbox.fidelity.observe import Value

STATED: dict[str, tuple[Value, str]] = {
    "home_entries": (24, "a fresh installation has few; each program that a person uses leaves something"),
    "home_age_days": (200.0, "a machine is used for months"),
    "history_lines": (1000, "HISTSIZE of Debian's bash; a fresh installation has none"),
    "commits": (200, "a repository that somebody works on has a history"),
    "disk_gib": (200, "the recorded machine's disk was an image of a few GiB"),
    "memory_gib": (16, "the recorded machine was given 2 GiB"),
}
"""Facets that only a person's use gives, or that the recording could not have: value and reason."""


def record(folder: Path, *, how: str, user: str, host: str, home: str, person: str) -> tuple[Profile, Turns]:
    """Raises ValueError when the folder holds no recording."""
    probes = sorted(folder.glob("*.probe"))
    if not probes:
        raise ValueError(f"{folder} holds no NAME.probe; run probe.sh in a checkout on the machine to be recorded")
    when = datetime.fromtimestamp(probes[0].stat().st_mtime, UTC).date().isoformat()
    profile = Profile(how=how, recorded_at=when, facets=observe.facets(probes[0].read_text()), stated=STATED)
    checkouts = {}
    for probe in probes:
        name = probe.stem
        paths = {f"{home}/src/{name}": "CHECKOUT", home: "HOME", f"/var/mail/{user}": "MAIL"}
        names = {**paths, "CLASS=user": "CLASS=user", user: "USER", host: "HOST", person: "PERSON"}
        texts = {kind: probe.with_suffix(f".{kind}") for kind in KINDS}
        said = {kind: cleaned(file.read_text(errors="replace"), names) for kind, file in texts.items()}
        # No answer is a command that took too long on the recorded machine.
        checkouts[name] = {kind: {c: text for c, text in answers.items() if text} for kind, answers in said.items()}
    return profile, Turns(how=how, checkouts=checkouts)


def main() -> None:
    parser = argparse.ArgumentParser(description="Make a profile of recordings of a machine.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--how", required=True, help="what machine, who used it, how it was recorded")
    parser.add_argument("--user", required=True)
    parser.add_argument("--host", required=True)
    parser.add_argument("--person", default="", help="the name that git knows the user by")
    parser.add_argument("--to", type=Path, default=TURNS.parent)
    o = parser.parse_args()
    profile, turns = record(o.folder, how=o.how, user=o.user, host=o.host, home=f"/home/{o.user}", person=o.person)
    o.to.mkdir(parents=True, exist_ok=True)
    (o.to / "machine.json").write_text(profile.model_dump_json(indent=1) + "\n")
    (o.to / "turns.json").write_text(turns.model_dump_json(indent=1) + "\n")
    sys.stdout.write(f"{o.to}/machine.json and turns.json: {len(turns.checkouts)} checkouts\n")


if __name__ == "__main__":
    main()
