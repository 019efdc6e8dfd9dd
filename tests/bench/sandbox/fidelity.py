"""`make bench NAME=fidelity`: can an agent tell a sandbox from a developer's machine?

The probe and the commands of first turns are run in fresh sandboxes and compared with a recorded machine
(`sandbox/fidelity`, `docs/sandbox/fidelity.md`). `tells` counts differences an agent could notice, `tells_cheap` those
that nobody mended yet and could; `score` is the weighted share without them, 0 to 100. `classifier_auc` is the
cross-validated AUC of a classifier over what the first turns show (0.5 is chance), `…_without_home` without the listing
of the home (the names in it differ between any two people), `classifier_auc_curious` over the answers to a suspicious
agent's questions; `commands_at_chance` counts commands of first turns that tell nothing.

Measures namespaces, and Docker where an engine answers (or with `--docker`, root: a private one is started); `--archive
FILE` adds Docker with the full image in that tar archive of a root. Prints every tell before the last line.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from sandbox import fidelity
from sandbox.backends.base import Backend, SandboxError
from sandbox.backends.docker.backend import DockerBackend
from sandbox.backends.docker.settings import DockerSettings
from sandbox.backends.namespaces.backend import NamespacesBackend
from sandbox.harness.profile import get_profile
from sandbox.tasks.environments import EnvironmentStore
from tests.bench import report
from tests.docker_engine import NoEngine, engine

GOALS: dict[str, report.Goal] = {"tells_cheap": ("==", 0.0), "classifier_auc": ("<=", 0.6)}
IMAGE = "opencomposer-fidelity:bench"


async def measure(backend: Backend, folder: Path, name: str, count: int, language: str = "") -> fidelity.Result:
    machine = get_profile("full").machine
    if language:
        machine = dataclasses.replace(machine, variables=(*machine.variables, ("LANG", language)))
    try:
        return await fidelity.measure(
            backend,
            fidelity.checkouts(EnvironmentStore(folder), machine, count),
            machine=machine,
            profile=fidelity.reference(),
            turns=fidelity.recorded_turns(),
            name=name,
        )
    finally:
        await backend.close()


def say(result: fidelity.Result) -> None:
    out = sys.stdout.write
    out(
        f"\n{result.backend}: score {result.verdict.score}, {len(result.verdict.tells)} of {result.verdict.facets} facets tell\n"
    )
    for tell in result.verdict.tells:
        out(f"  {tell.weight} {tell.title}: {tell.seen}, expected {tell.expected} ({tell.effort}: {tell.remedy})\n")
    for kind, apart in (("early", result.early), ("curious", result.curious)):
        out(f"  {kind}: AUC {apart.auc}; {', '.join(f'{c} {a}' for c, a in apart.commands.items())}\n")
        out(f"    leans on {', '.join(f'{feature} ({weight:+})' for feature, weight in apart.giveaways[:6])}\n")


def metrics(result: fidelity.Result, prefix: str = "") -> dict[str, float]:
    tells = result.verdict.tells
    found = {
        "tells": len(tells),
        "tells_cheap": sum(tell.effort == "cheap" for tell in tells),
        "score": result.verdict.score,
        "classifier_auc": result.early.auc,
        "classifier_auc_without_home": result.early.auc_without_home,
        "classifier_auc_curious": result.curious.auc,
        "commands_at_chance": result.early.at_chance(),
        "commands": len(result.early.commands),
    }
    return {prefix + name: value for name, value in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=24, help="checkouts, at most those that were recorded")
    parser.add_argument("--docker", action="store_true", help="start a container engine where none answers (root)")
    parser.add_argument(
        "--archive", type=Path, help="tar archive of a root with Python: the image of one more measurement"
    )
    parser.add_argument("--language", default="", help="LANG in that image, such as en_US.UTF-8, if it has it")
    options = parser.parse_args()
    results = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.chmod(0o755)
        results.append(asyncio.run(measure(NamespacesBackend(), folder / "namespaces", "namespaces", options.count)))
        try:
            url = stack.enter_context(engine()) if options.docker else DockerSettings().socket_url()
            images = {"docker": ""}
            if options.archive:
                command = ["docker", "--host", url, "import", str(options.archive), IMAGE]
                subprocess.run(command, check=True, capture_output=True, timeout=600)
                images["docker_image"] = IMAGE
            for name, image in images.items():
                backend = DockerBackend(DockerSettings(url=url, image=image, leases=folder / "leases"))
                language = options.language if image else ""
                results.append(asyncio.run(measure(backend, folder / name, name, options.count, language)))
        except (NoEngine, SandboxError) as missing:
            sys.stdout.write(f"without docker: {missing}\n")
    for result in results:
        say(result)
    first, *others = results
    found = metrics(first)
    for result in others:
        found |= metrics(result, f"{result.backend}_")
    report.emit("fidelity", found, goals=GOALS, conditions={"checkouts": first.checkouts, "reference": first.reference})


if __name__ == "__main__":
    main()
