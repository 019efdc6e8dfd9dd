"""Auto-install: from an unconfigured checkout to an environment whose tests run offline. docs/guides/repositories.md.

`installer` makes attempts by a recipe (`recipes/`) until its goals are met, `verify` checks the result in fresh
sandboxes, `record` is what is kept. `agent/` lets a language model propose the steps where no recipe succeeds.
"""

from sandbox.install.installer import install, recipe_of
from sandbox.install.record import InstallRecord

__all__ = ["InstallRecord", "install", "recipe_of"]
