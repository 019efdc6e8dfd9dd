"""Writes of policies and checkpoints."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

from django.db import transaction
from django.utils import timezone

from composer_web.env import REPOSITORY, env
from composer_web.core.errors import UserError
from composer_web.policies.models import Checkpoint, Policy
from trainer.model_import import ModelFacts

CONFIG_FIELDS = (
    "model_type",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "vocab_size",
    "max_position_embeddings",
    "tie_word_embeddings",
    "rope_theta",
)


def stored_path(path: Path) -> str:
    """How a path is kept in a row: relative to the data folder or the repository where it lies in one of them."""
    path = path.resolve()
    for mark, root in (("data", env().data.resolve()), ("repo", REPOSITORY)):
        if path.is_relative_to(root):
            return f"{mark}:{path.relative_to(root)}"
    return str(path)


def real_path(stored: str) -> Path:
    """The file system path of what `stored_path` gave."""
    mark, _, rest = stored.partition(":")
    roots = {"data": env().data, "repo": REPOSITORY}
    return roots[mark] / rest if rest and mark in roots else Path(stored)


def describe_architecture(folder: Path) -> dict[str, Any]:
    """Class, sizes and parameter count of a Hugging Face folder, from its files alone. Raises UserError."""
    config_file = folder / "config.json"
    try:
        config = json.loads(config_file.read_text())
        if not isinstance(config, dict):
            raise ValueError("config.json holds no object")
        weights = sorted(folder.glob("*.safetensors")) or sorted(folder.glob("*.safetensors.difference"))
        if not weights:
            raise UserError("policy", f"{folder} holds no *.safetensors weights; export the model with save_pretrained")
        parameters = sum(_count_parameters(path) for path in weights)
    except FileNotFoundError as error:
        raise UserError(
            "policy", f"{folder} is not a Hugging Face model folder: {error.filename} is missing"
        ) from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError("policy", f"{folder} cannot be read: {error}; copy or export the policy there again") from error
    found = {name: config[name] for name in CONFIG_FIELDS if name in config}
    return {"class": (config.get("architectures") or ["?"])[0], "parameters": parameters, **found}


def _count_parameters(path: Path) -> int:
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        if not 0 < size < 100 << 20:
            raise ValueError(f"{path.name} is not a safetensors file")
        header = json.loads(file.read(size))
    if difference := header.get("__metadata__", {}).get("difference"):
        return int(json.loads(difference)["parameters"])
    total, end = 0, 0
    for name, entry in header.items():
        if name != "__metadata__":
            total += math.prod(entry["shape"])
            end = max(end, entry["data_offsets"][1])
    missing = 8 + size + end - path.stat().st_size
    if missing > 0:
        raise ValueError(f"{path.name} is cut off: {missing} bytes are missing")
    return total


@transaction.atomic
def import_base(
    *,
    path: Path,
    name: str = "base",
    description: str = "",
    toy: bool = False,
    template_problem: str = "",
    facts: ModelFacts | None = None,
) -> Policy:
    """Register a Hugging Face folder as a policy with version 0. Importing the same folder again changes nothing,
    unless its weights changed: then the policy points at the new ones. Raises UserError.

    The chat template is judged by `importing.import_folder`, which is for folders from outside."""
    architecture = describe_architecture(path)
    digest = _digest(path)
    policy, _ = Policy.objects.update_or_create(
        name=name,
        defaults={
            "base_dir": stored_path(path),
            "architecture": architecture,
            "template_problem": template_problem,
            "facts": facts.model_dump(mode="json") if facts else {},
            "description": description,
            "toy": toy,
        },
    )
    Checkpoint.objects.update_or_create(
        policy=policy,
        version=0,
        kind="base",
        defaults={
            "path": stored_path(path),
            "digest": digest,
            "bytes": _size(path),
        },
    )
    return policy


def note_template_problem(*, policy: Policy, problem: str) -> None:
    """What a worker found that loaded the folder: it was imported before templates were judged, or changed since. From now
    on nothing is started with it; importing the folder again judges anew. Idempotent."""
    Policy.objects.filter(pk=policy.pk).exclude(template_problem=problem).update(template_problem=problem)
    policy.template_problem = problem


def _digest(folder: Path) -> str:
    hasher = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):
        hasher.update(path.read_bytes())
    return "sha256:" + hasher.hexdigest()


@transaction.atomic
def create_child(*, name: str, parent: Policy, parent_version: int, project_id: int | None = None) -> Policy:
    """The lineage that a run of this project writes into; without one in the parent's."""
    return Policy.objects.create(
        name=name,
        base_dir=parent.base_dir,
        architecture=parent.architecture,
        template_problem=parent.template_problem,
        facts=parent.facts,
        toy=parent.toy,
        parent=parent,
        parent_version=parent_version,
        project_id=parent.project_id if project_id is None else project_id,
    )


@transaction.atomic
def record_checkpoint(*, policy: Policy, version: int, path: Path, final: bool, digest: str = "") -> Checkpoint:
    """A checkpoint that lies complete on disk. `path` is the folder that loads as a policy. Idempotent.

    Rows whose folders the trainer's retention has removed are marked so, and those that it made smaller say their size.
    """
    checkpoint, _ = Checkpoint.objects.update_or_create(
        policy=policy,
        version=version,
        kind="final" if final else "step",
        defaults={"path": stored_path(path), "bytes": _size(path), "digest": digest, "removed_at": None},
    )
    for other in Checkpoint.objects.filter(policy=policy, removed_at=None).exclude(pk=checkpoint.pk):
        if not real_path(other.path).is_dir():
            other.removed_at = timezone.now()
            other.save(update_fields=["removed_at"])
        elif (now := _size(real_path(other.path))) != other.bytes:
            other.bytes = now
            other.save(update_fields=["bytes"])
    return checkpoint


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
