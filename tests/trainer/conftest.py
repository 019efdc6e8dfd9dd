from tests.support.processes import fork_servers
from trainer.inference.embedded.serving.process import ServerProcess

fork_servers(ServerProcess)
