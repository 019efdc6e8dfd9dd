"""Repositories: where checkouts come from, and what of them may enter a sandbox.

`git`, `sdist`, `index` and `upload` fetch a `Checkout`; `archives` unpacks within bounds; `pins` reads the lock of
packages. `commits` reads a repository's past for mining; `history` writes the one fresh commit that a sandbox shows.
`artefacts` names what builds leave.
"""

from sandbox.repositories.checkout import Checkout
from sandbox.repositories.files import Files, RelativePath, check_files, check_relative_path
from sandbox.repositories.history import TreeFile, write_history

__all__ = ["Checkout", "Files", "RelativePath", "TreeFile", "check_files", "check_relative_path", "write_history"]
