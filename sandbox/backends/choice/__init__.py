"""Which backend a process uses: the one that `OPENCOMPOSER_SANDBOX` names, and what follows from that.

This package knows the backends, and none of them knows it: the contract and what backends share lie beside their packages, in
`sandbox/backends/`, and import neither. So imports go one way, from the choice over the backends to the contract.
"""

from sandbox.backends.choice.default import CHOICE, NAMES, chosen, default_backend, layer_owner

__all__ = ["CHOICE", "NAMES", "chosen", "default_backend", "layer_owner"]
