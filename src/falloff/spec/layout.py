"""The layout: how many ranks each axis of the device mesh has."""

from dataclasses import dataclass

from falloff.spec.reading import require_positive

AXES = ("dp_replicate", "dp_shard", "tp", "pp", "cp")


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Degrees of the mesh axes; their product is the number of ranks.

    dp_shard is FSDP's axis, dp_replicate beside it makes HSDP; tp comes with sequence parallelism; pp cuts the layers
    into stages, cp each sequence.
    """

    dp_replicate: int = 1
    dp_shard: int = 1
    tp: int = 1
    pp: int = 1
    cp: int = 1

    def __post_init__(self) -> None:
        require_positive(self, *AXES)

    @property
    def ranks(self) -> int:
        """Return how many ranks the layout needs."""
        return self.dp * self.tp * self.pp * self.cp

    @property
    def dp(self) -> int:
        """Return over how many ranks the batch is split."""
        return self.dp_replicate * self.dp_shard

    @property
    def label(self) -> str:
        """Return the axes that are in use, for people: 'dp_replicate 2 × dp_shard 2'; 'one rank' for none."""
        used = [f"{axis} {getattr(self, axis)}" for axis in AXES if getattr(self, axis) > 1]
        return " × ".join(used) or "one rank"
