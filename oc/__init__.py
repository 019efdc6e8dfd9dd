"""The command line of OpenComposer's JSON API, and its typed Python client. Needs nothing of the product itself.

`models/` and `api/` are generated from the API's own description (`make client`); everything else is written by hand.
"""

from oc.client import ApiError, Client, Unreachable

__all__ = ["ApiError", "Client", "Unreachable"]
