"""Identifies the tokenizer and template behind tokens, without loading the policy."""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from pathlib import Path

from tokenizers import Tokenizer

from trainer.stamps import TOKENIZER, Stamp, stamp


def fingerprint(folder: Path) -> str:
    """Fingerprint of a policy's tokenizer and chat template. Equal fingerprints mean equal tokenization.

    Raises FileNotFoundError.
    """
    return _fingerprint(folder, stamp(folder, TOKENIZER))


@lru_cache(maxsize=8)
def _fingerprint(folder: Path, _files: Stamp) -> str:
    file = folder / "tokenizer.json"
    if not file.is_file():
        raise FileNotFoundError(file)
    template = folder / "chat_template.jinja"
    if template.is_file():
        text = template.read_text(encoding="utf-8")
    else:
        text = str(json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8")).get("chat_template", ""))
    vocabulary = Tokenizer.from_file(str(file)).get_vocab(with_added_tokens=True)
    return hashlib.sha256(json.dumps([sorted(vocabulary.items()), text.strip()]).encode()).hexdigest()
