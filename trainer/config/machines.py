"""What a stage keeps on disk and how many processes compute it."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from trainer.config.parts import Part, setting


class CheckpointConfig(Part):
    every_steps: int = setting(10, "Steps between step checkpoints", gt=0)
    keep: int = setting(3, "Step checkpoints kept besides the last", ge=1, advanced=True)
    anchor_every: int = setting(20, "Versions between full weights in the weight store", gt=0, advanced=True)
    codec: Literal["small", "fast"] = setting(
        "small",
        "How versions are coded in the weight store: for networks between regions, or for one fabric (larger and quicker)",
        advanced=True,
    )
    published_dtype: Literal["float32", "bfloat16"] = setting(
        "float32",
        "Number format of published weights: bfloat16 is half the bytes and rounds what the sampler computes with",
        advanced=True,
    )
    keep_versions: int = setting(
        40, "Newest versions kept in the weight store, besides those still needed", ge=2, advanced=True
    )


class ParallelConfig(Part):
    """Several processes that train one policy together. ranks = replicas × shards × context, on all machines.

    With `machines_least` a run also goes on with fewer machines, and so with fewer ranks. `context` and `experts` are then
    what they are. With more than one replica so are `shards`, and there are fewer replicas: a rank holds as much as before.
    With one replica the weights are cut over the ranks that there are: a rank holds more.
    """

    ranks: int = setting(1, "Processes of the trainer, one a GPU; 1 is the trainer process itself", ge=1)
    machines: int = setting(
        1, "Machines that the ranks are spread over evenly; `manage.py ranks` waits on the others", ge=1, advanced=True
    )
    machines_least: int = setting(
        0,
        "Fewest machines that the run starts and goes on with when others are lost; those that come later join it; 0 for all",
        ge=0,
        advanced=True,
    )
    shards: int = setting(1, "Ranks that share weights and optimizer state, each with rows of its own", ge=1)
    replicas: int = setting(1, "Copies of the sharded weights", ge=1, advanced=True)
    context: int = setting(1, "Ranks that share the tokens of each row", ge=1)
    experts: int = setting(1, "Ranks that share the experts of a mixture-of-experts layer", ge=1)
    device: Literal["auto", "cpu", "cuda"] = setting(
        "auto", "Where the trainer computes; auto takes GPUs where there are some", advanced=True
    )
    precision: Literal["float32", "bfloat16"] = setting(
        "float32", "Number format that the trainer computes in; weights, gradients' sums and optimizer stay float32"
    )
    checkpoint_activations: bool = setting(
        False, "Compute each layer again in the backward pass: less memory, a third more work", advanced=True
    )
    compile: bool = setting(False, "Compile each layer", advanced=True)
    logits_at_once: int = setting(
        0,
        "Most logits (policy tokens × vocabulary) that exist at a time; 0 for all of a micro-batch",
        ge=0,
        advanced=True,
    )
    async_checkpoint: bool = setting(
        True,
        "Of RL on several ranks: write checkpoints while the next steps are trained; everywhere else steps wait for them",
        advanced=True,
    )
    restarts: int = setting(
        3,
        "Times that the ranks are started again after one of them died or was lost with its machine; a machine that joins "
        "costs none",
        ge=0,
        advanced=True,
    )

    @model_validator(mode="after")
    def _sizes(self) -> ParallelConfig:
        product = self.replicas * self.shards * self.context
        if product != self.ranks:
            raise ValueError(
                f"replicas={self.replicas} × shards={self.shards} × context={self.context} is {product}, and ranks is "
                f"{self.ranks}; make them agree"
            )
        if self.ranks % self.machines:
            raise ValueError(
                f"machines={self.machines} does not divide ranks={self.ranks}: each has equally many; choose a divisor"
            )
        if self.ranks % self.experts:
            raise ValueError(f"experts={self.experts} does not divide ranks={self.ranks}; choose a divisor")
        if self.machines_least > self.machines:
            raise ValueError(
                f"machines_least={self.machines_least} is more than machines={self.machines}; lower it, or 0 for all"
            )
        self._fewer()
        return self

    def _fewer(self) -> None:
        kept = {"context": self.context} if self.replicas == 1 else {"shards × context": self.shards * self.context}
        for ranks in self.worlds[:-1]:
            for name, size in (kept | {"experts": self.experts}).items():
                if ranks % size:
                    raise ValueError(
                        f"machines_least={self.machines_least} allows {ranks // self.ranks_each} of {self.machines} "
                        f"machines, and {name}={size} does not divide their {ranks} ranks; choose a divisor of "
                        f"{self.ranks_each}, the ranks of one machine, or set machines_least to 0"
                    )

    @property
    def ranks_each(self) -> int:
        """Of one machine."""
        return self.ranks // self.machines

    @property
    def least(self) -> int:
        """Fewest machines that train."""
        return self.machines_least or self.machines

    @property
    def worlds(self) -> list[int]:
        """Every number of ranks that may train, the fewest first."""
        return [self.ranks_each * machines for machines in range(self.least, self.machines + 1)]

    def cut(self, ranks: int) -> tuple[int, int]:
        """(replicas, shards) where so many ranks train, one of `worlds`."""
        if self.replicas == 1:
            return 1, ranks // self.context
        return ranks // (self.shards * self.context), self.shards
