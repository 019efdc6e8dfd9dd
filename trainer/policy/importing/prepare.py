"""Write the policy folder of an import: the source itself where nothing changes, else a folder of its own.

Weights that stay as they are become hard links (copies on another file system). Everything is written beside the target
and renamed, so that a target is complete or absent.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer.model_import import TEMPLATES, shipped_templates
from trainer.policy.errors import PolicyUnreadable
from trainer.policy.importing.checks import read_config
from trainer.policy.importing.gguf_file import load_gguf, read_head
from trainer.policy.importing.headers import tensors_of
from trainer.policy.importing.quantized import quantization_of, write_dequantized
from trainer.policy.importing.source import Source
from trainer.policy.rendering import KEY, make_renderer
from trainer.policy.rendering.chat import ChatTemplateError
from trainer.policy.store import load_tokenizer

TEMPLATE, TOKENIZER_CONFIG = "chat_template.jinja", "tokenizer_config.json"
MAX_TEMPLATE = 1 << 20
TEXT_CLASSES = {"kimi_k2": "deepseek_v3"}
"""Model types whose code is published with the weights, and the library's class that computes the same."""
LANGUAGE = "language_model."
"""Prefix of the text model's weights in checkpoints that also see images."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an import is to change."""

    template: str = ""
    """A shipped template's name, or the text of one; empty: the model's own."""
    renderer: str = "auto"


def prepare(source: Source, target: Path, wanted: Wanted = Wanted()) -> tuple[Path, str]:  # frozen
    """(the policy folder, what its weights were converted from: empty when they are as they were).

    Raises PolicyUnreadable.
    """
    template = _template(source.path, wanted.template)
    if source.kind == "gguf":
        head = read_head(source.path)

        def convert(folder: Path) -> str:
            model, tokenizer = load_gguf(source.path, head)
            model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
            return f"GGUF {head.format}, dequantised to bfloat16"

        return _written(target, convert, template, wanted.renderer, source.path)
    config = read_config(source.path)
    if quantization := quantization_of(source.path, config):
        words = quantization.words

        def dequantise(folder: Path) -> str:
            write_dequantized(source.path, folder, tensors_of(source.path), config, rename=_renamer(config))
            _link(source.path, folder, weights=False)
            _write_json(folder / "config.json", plain_config(config))
            return words

        return _written(target, dequantise, template, wanted.renderer, source.path)
    if plain_config(config) == config and not template and wanted.renderer == "auto":
        return source.path, ""

    def link(folder: Path) -> str:
        if (config.get("text_config") or {}).get("model_type") in TEXT_CLASSES:  # without the part that sees images
            write_dequantized(source.path, folder, tensors_of(source.path), config, rename=_renamer(config))
            _link(source.path, folder, weights=False)
        else:
            _link(source.path, folder)
        _write_json(folder / "config.json", plain_config(config))
        return ""

    return _written(target, link, template, wanted.renderer, source.path)


def plain_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """`config.json` of the text model, as the library loads it without code from the checkpoint."""
    inner = config.get("text_config") or {}
    text = inner if inner.get("model_type") in TEXT_CLASSES else config
    kind = str(text.get("model_type", ""))
    dropped = ("quantization_config",) if kind not in TEXT_CLASSES else ("quantization_config", "auto_map")
    plain = {name: value for name, value in text.items() if name not in dropped}
    if kind in TEXT_CLASSES:
        plain |= {"model_type": TEXT_CLASSES[kind], "architectures": ["DeepseekV3ForCausalLM"]}
    return plain


def _renamer(config: Mapping[str, Any]) -> Callable[[str], str | None]:
    """Names of the text model's tensors; None for those of the part that sees images."""
    if (config.get("text_config") or {}).get("model_type") not in TEXT_CLASSES:
        return lambda name: name
    return lambda name: name.removeprefix(LANGUAGE) if name.startswith(LANGUAGE) else None


def _template(path: Path, given: str) -> str:
    """Text of the wanted template; empty for the model's own. Raises PolicyUnreadable."""
    if not given:
        return ""
    if len(given) > MAX_TEMPLATE:
        raise PolicyUnreadable(
            path, "template", f"it has {len(given)} characters", "Name a chat template of at most 1 MiB."
        )
    if given in (names := shipped_templates()):
        return (TEMPLATES / f"{given}.jinja").read_text(encoding="utf-8")
    if "{" not in given:
        raise PolicyUnreadable(
            path, "template", f"{given[:80]!r} is neither a template nor the name of one",
            f"Give the text of a Jinja template, or one of: {', '.join(names)}.",
        )  # fmt: skip
    return given


def _written(target: Path, fill: Callable[[Path], str], template: str, renderer: str, source: Path) -> tuple[Path, str]:
    """Raises PolicyUnreadable."""
    target.parent.mkdir(parents=True, exist_ok=True)
    staged = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        stored = fill(staged)
        if template:
            (staged / TEMPLATE).unlink(missing_ok=True)
            (staged / TEMPLATE).write_text(template, encoding="utf-8")
        if template or renderer != "auto":
            _choose(staged, template, renderer, source)
        staged.chmod(0o755)
        if target.exists():
            shutil.rmtree(target)
        os.rename(staged, target)
    except OSError as error:
        raise PolicyUnreadable(
            source, "folder", f"{error}", "Free some space in the data folder, and import it again."
        ) from error
    finally:
        shutil.rmtree(staged, ignore_errors=True)
    return target, stored


def _choose(folder: Path, template: str, renderer: str, source: Path) -> None:
    """Write template and renderer into `tokenizer_config.json`. Raises PolicyUnreadable: they do not fit the tokenizer."""
    path = folder / TOKENIZER_CONFIG
    settings = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    if template:
        settings.pop("chat_template", None)
    settings |= {KEY: renderer} if renderer != "auto" else {}
    path.unlink(missing_ok=True)  # a hard link: the source keeps its own
    _write_json(path, settings)
    try:
        make_renderer(load_tokenizer(folder))
    except ChatTemplateError as error:
        field = "renderer" if renderer != "auto" else "template"
        raise PolicyUnreadable(source, field, str(error), "Choose another one.") from error


def _link(source: Path, target: Path, *, weights: bool = True) -> None:
    """Hard links to the source's files, without its weights if they are written anew."""
    for path in sorted(source.iterdir()):
        skipped = not weights and (path.suffix == ".safetensors" or path.name == "model.safetensors.index.json")
        if path.is_file() and not skipped and path.suffix not in (".py", ".gguf", ".bin", ".pt", ".pth"):
            if (target / path.name).exists():
                continue
            try:
                os.link(path.resolve(), target / path.name)
            except OSError:
                shutil.copy2(path, target / path.name)


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.unlink(missing_ok=True)
    path.write_text(json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
