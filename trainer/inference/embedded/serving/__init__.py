"""The embedded engine as a server: deployments and their weights, the engine's thread, the HTTP server, its process.

Imports no torch; the process that `EmbeddedServer` starts does.
"""

from trainer.inference.embedded.serving.process import EmbeddedServer, ServerProcess

__all__ = ["EmbeddedServer", "ServerProcess"]
