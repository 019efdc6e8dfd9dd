"""What a run keeps on disk, and what a deletion would take away: counted, or estimated for runs of many groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from composer_web.policies.models import Checkpoint
from composer_web.policies.services import real_path
from composer_web.runs.files import blobs
from composer_web.runs.files.kept import kept
from composer_web.runs.files.owners import Owner, rollouts_of
from composer_web.runs.models import Run
from composer_web.runs.paths import checkpoints_folder, weights_folder
from trainer.weights import open_versions

SAMPLED = 200
"""Groups whose blobs are listed to estimate the bytes of all: a list takes milliseconds each in a bucket."""
AT_ONCE = 8


@dataclass(frozen=True)
class Amount:
    """`bytes` and `items` are there; `freed` and `deleted` of them would go. `kept`: reason → number that stays."""

    bytes: int = 0
    items: int = 0
    freed: int = 0
    deleted: int = 0
    kept: dict[str, int] = field(default_factory=dict)
    estimated: bool = False


def checkpoints(run: Run, *, final: bool) -> Amount:
    """All but the newest, and with `final` that, too."""
    sizes = {path: size_of(path) for path in steps(run)}
    going = list(sizes) if final else list(sizes)[:-1]
    stays = {} if final or not sizes else {"the newest": 1}
    return Amount(sum(sizes.values()), len(sizes), sum(sizes[path] for path in going), len(going), stays)


def steps(run: Run) -> list[Path]:
    """Folders of a run's checkpoints, oldest first."""
    return sorted(checkpoints_folder(run).glob("step-*"))


def size_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def recorded_in(run: Run, folder: Path) -> list[Checkpoint]:
    """Rows of the checkpoint in this folder."""
    rows = Checkpoint.objects.filter(policy=run.policy_out_id) if run.policy_out_id else Checkpoint.objects.none()
    return [row for row in rows if real_path(row.path).parent.name == folder.name]


def versions(run: Run) -> Amount:
    """Every version in the weight store. Raises WeightError."""
    if "://" not in weights_folder(run) and not Path(weights_folder(run)).is_dir():
        return Amount()
    store = open_versions(weights_folder(run))
    found, size = len(store.all()), store.bytes()
    return Amount(size, found, size, found)


def trajectories(owner: Owner, *, annotated: bool) -> Amount:
    """Trajectories of the owner's rollouts with the training data of its groups. Raises ArtifactError."""
    rows = rollouts_of(owner)
    stay = kept(rows, annotated=annotated)
    items = rows.count()
    every = list(rows.order_by("group_id").values_list("group_id", flat=True).distinct())
    chosen = every[:: -(-len(every) // SAMPLED)] if len(every) > SAMPLED else every
    staying = _keys(rows.filter(pk__in=stay, group__in=chosen).values_list("group_id", "artifact_key"))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        sizes = dict(zip(chosen, pool.map(blobs.sizes_of, chosen), strict=True))
    share = len(every) / len(chosen) if chosen else 1.0
    going = sum(sum(blobs.removable(pk, found, staying.get(pk, ())).values()) for pk, found in sizes.items())
    return Amount(
        bytes=round(sum(sum(found.values()) for found in sizes.values()) * share),
        items=items,
        freed=round(going * share),
        deleted=items - len(stay),
        kept=dict(Counter(stay.values())),
        estimated=len(chosen) < len(every),
    )


def _keys(rows: Iterable[tuple[int, str]]) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for group, key in rows:
        found.setdefault(group, []).append(key)
    return found
