"""What a stage keeps on disk and how many processes compute it."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from trainer.config.parts import Part, setting


class CheckpointConfig(Part):
    every_steps: int = setting(10, "Steps between step checkpoints", gt=0)
    keep: int = setting(
        3,
        "Step checkpoints kept besides the last, and besides those in use. All but the two newest are kept as differences, which "
        "take a small part of their size",
        ge=1,
        advanced=True,
    )
    anchor_every: int = setting(20, "Versions between full weights in the weight store", gt=0, advanced=True)
    codec: Literal["small", "fast"] = setting(
        "small",
        "How versions are coded in the weight store: for networks between regions, or for one fabric (larger and quicker)",
        advanced=True,
    )
    published_dtype: Literal["auto", "float32", "bfloat16"] = setting(
        "auto",
        "Number format of published weights; auto is the policy's own. bfloat16 rounds what the sampler computes with, and "
        "far fewer words change from version to version",
        advanced=True,
    )
    keep_versions: int = setting(
        40, "Newest versions kept in the weight store, besides those still needed", ge=2, advanced=True
    )


class ParallelConfig(Part):
    """Distributed training: world_size = dp_replicate × dp_shard × cp, over all nodes.

    With `min_nodes` a run also trains on fewer nodes, and so with a smaller world. `cp` and `ep` never change. With several
    replicas `dp_shard` stays and `dp_replicate` shrinks, so a rank holds as much as before. With one replica `dp_shard`
    shrinks, so a rank holds more.
    """

    world_size: int = setting(1, "Trainer processes (ranks), one per GPU; 1 trains in the trainer process itself", ge=1)
    max_nodes: int = setting(
        1, "Nodes that the ranks are spread over evenly; run `manage.py ranks` on the others", ge=1, advanced=True
    )
    min_nodes: int = setting(
        0,
        "Fewest nodes that the run starts with and continues on when nodes are lost; later ones join; 0 for max_nodes",
        ge=0,
        advanced=True,
    )
    dp_shard: int = setting(1, "FSDP: ranks that shard weights and optimizer state, each with rows of its own", ge=1)
    dp_replicate: int = setting(1, "Data-parallel replicas of the sharded weights (HSDP)", ge=1, advanced=True)
    cp: int = setting(1, "Context parallelism: ranks that share the tokens of each row", ge=1)
    ep: int = setting(1, "Expert parallelism: ranks that share the experts of a mixture-of-experts layer", ge=1)
    device: Literal["auto", "cpu", "cuda"] = setting(
        "auto", "Where the trainer computes; auto takes GPUs where there are some", advanced=True
    )
    precision: Literal["auto", "float32", "bfloat16"] = setting(
        "auto",
        "Number format that the trainer computes in; weights, gradients' sums and optimizer stay float32. auto takes "
        "bfloat16 where the processor or GPU has instructions for it",
        auto=True,
    )
    activation_checkpointing: bool = setting(
        False,
        "Activation checkpointing: recompute each layer in the backward pass; less memory, a third more work",
        advanced=True,
    )
    compile: bool = setting(False, "Compile each layer", advanced=True)
    lm_head_chunk_size: int = setting(
        0,
        "Fused linear log-prob: most logits (tokens × vocabulary) in memory at a time; 0 for all of a micro-batch",
        ge=0,
        advanced=True,
    )
    async_checkpoint: bool = setting(
        True,
        "Of RL on several ranks: write checkpoints while the next steps are trained; everywhere else steps wait for them",
        advanced=True,
    )
    max_restarts: int = setting(
        3,
        "Restarts allowed after a rank dies or its node is lost; a node that joins costs none",
        ge=0,
        advanced=True,
    )

    @model_validator(mode="after")
    def _sizes(self) -> ParallelConfig:
        product = self.dp_replicate * self.dp_shard * self.cp
        if product != self.world_size:
            raise ValueError(
                f"dp_replicate={self.dp_replicate} × dp_shard={self.dp_shard} × cp={self.cp} is {product}, and world_size is "
                f"{self.world_size}; make them agree"
            )
        if self.world_size % self.max_nodes:
            raise ValueError(
                f"max_nodes={self.max_nodes} does not divide world_size={self.world_size}: each has equally many; "
                "choose a divisor"
            )
        if self.world_size % self.ep:
            raise ValueError(f"ep={self.ep} does not divide world_size={self.world_size}; choose a divisor")
        if self.min_nodes > self.max_nodes:
            raise ValueError(
                f"min_nodes={self.min_nodes} is more than max_nodes={self.max_nodes}; lower it, or 0 for all"
            )
        self._fewer()
        return self

    def _fewer(self) -> None:
        kept = {"cp": self.cp} if self.dp_replicate == 1 else {"dp_shard × cp": self.dp_shard * self.cp}
        for ranks in self.world_sizes[:-1]:
            for name, size in (kept | {"ep": self.ep}).items():
                if ranks % size:
                    raise ValueError(
                        f"min_nodes={self.min_nodes} allows {ranks // self.ranks_per_node} of {self.max_nodes} "
                        f"nodes, and {name}={size} does not divide their {ranks} ranks; choose a divisor of "
                        f"{self.ranks_per_node}, the ranks of one node, or set min_nodes to 0"
                    )

    @property
    def compute_format(self) -> Literal["float32", "bfloat16"]:
        """`precision` once a stage has resolved it for its device; an `auto` that was not is float32."""
        return "bfloat16" if self.precision == "bfloat16" else "float32"

    @property
    def ranks_per_node(self) -> int:
        """Ranks of one node."""
        return self.world_size // self.max_nodes

    @property
    def fewest_nodes(self) -> int:
        """Smallest number of nodes that trains."""
        return self.min_nodes or self.max_nodes

    @property
    def world_sizes(self) -> list[int]:
        """Every world size that may train, smallest first."""
        return [self.ranks_per_node * machines for machines in range(self.fewest_nodes, self.max_nodes + 1)]

    def dims_for(self, ranks: int) -> tuple[int, int]:
        """(dp_replicate, dp_shard) for a world of `ranks`, one of `world_sizes`."""
        if self.dp_replicate == 1:
            return 1, ranks // self.cp
        return ranks // (self.dp_shard * self.cp), self.dp_shard
