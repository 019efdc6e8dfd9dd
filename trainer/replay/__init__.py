"""What the sampler chose and the trainer repeats: experts of mixture-of-experts layers, tokens open to sampling.

`wire` imports neither torch nor the library: rollouts and the inference contract carry its types.
"""

EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
"""Fields of a policy's configuration that say how many experts a layer has (Qwen3-MoE, Mixtral, DeepSeek-V3); a dense
policy has none of them."""
