"""Compile the loops and keep them, so that no engine has to: `python -m trainer.inference.embedded.kernels`."""

from __future__ import annotations

from trainer.inference.embedded.kernels.loops import prepare

if __name__ == "__main__":
    prepare()
