"""Policies from outside: a folder, safetensors files or a GGUF file becomes a policy folder that every stage loads.

`source` finds what a path is, `checks` refuses what cannot be trained with the remedy, `quantized` and `gguf_file`
convert weights that are stored in fewer bits, `prepare` writes the folder, and `facts` says what the model is, needs
and lacks.
"""

from trainer.policy.importing.facts import facts_of
from trainer.policy.importing.prepare import Wanted, prepare
from trainer.policy.importing.source import Source, find_source

__all__ = ["Source", "Wanted", "facts_of", "find_source", "prepare"]
