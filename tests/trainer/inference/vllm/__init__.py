"""vLLM behind our server: the contract, its extension, replicas, and a real server (slow)."""
