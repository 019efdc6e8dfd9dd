"""Weights & Biases: we number the rows, and W&B drops numbers that it already has."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from composer_web.mirrors.base import About, Kept, MirrorError, Point

try:
    import wandb
except ImportError as error:
    raise MirrorError("W&B is not installed: pip install 'opencomposer[wandb]'") from error


class Wandb:
    """`to` is a folder for `offline` use (`wandb sync --append` sends it later), or a project's name."""

    def __init__(self, about: About, to: str) -> None:
        self.about, self.offline = about, "/" in to
        self.folder = Path(to) if self.offline else None
        self.project = "opencomposer" if self.offline else to

    def write(self, points: Sequence[Point], kept: Kept) -> Kept:
        """A run is opened and finished each time: only then is it certainly on disk."""
        rows = int(kept.get("rows", 0))
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
        try:
            with wandb.init(
                project=self.project,
                id=f"opencomposer-{self.about.id}",
                name=self.about.name,
                config=self.about.config,
                tags=self.about.tags,
                mode="offline" if self.offline else "online",
                resume=None if self.offline else "allow",
                dir=self.folder,
                settings=wandb.Settings(silent=True, console="off", x_disable_stats=True, disable_git=True),
            ) as run:
                run.define_metric("step")
                run.define_metric("*", step_metric="step")
                for (_, step), group in groupby(points, key=lambda point: (point.at, point.step)):
                    rows += 1
                    run.log({"step": step, **{point.name: point.value for point in group}}, step=rows)
            wandb.teardown()  # waits for the process that writes: `finish` alone returns before the file is whole
        except wandb.errors.Error as error:
            raise MirrorError(f"W&B refuses the metrics of run {self.about.id}: {error}") from error
        return {"rows": rows}
