"""Router replay (R3): the trainer replays the experts and sampling masks that the engine used.

families.py  the routers of each supported mixture-of-experts class
hooks.py     records a model's routing, or replaces it
validate.py  which token and expert ids a policy can have
"""

EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
"""Fields of a policy's configuration that say how many experts a layer has (Qwen3-MoE, Mixtral, DeepSeek-V3); a dense
policy has none of them."""
