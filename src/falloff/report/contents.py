"""The order of the page: groups of figures, each with its short name in the table of contents."""

from collections.abc import Mapping

ILLUSTRATION = ", model illustration"  # ends the title of a figure without a point that is not predicted

GROUPS: Mapping[str, Mapping[str, str]] = {
    "Scaling": {
        "strong_scaling": "Batch fixed",
        "weak_scaling": "Batch growing with the machine",
        "marginal_returns": "What the next GPU returns",
    },
    "Where the step goes": {
        "execution_time": "Parts of a step",
        "power_per_token": "Watts and joules per token",
        "attribution": "Which loss is what",
        "overlap": "What overlap hides",
        "collectives": "Collectives",
        "collective_regimes": "Latency or bandwidth",
    },
    "Layouts": {
        "parallelism_mix": "Every mix of TP and PP",
        "tensor_parallel": "A little tensor parallelism",
        "best_layout": "Best layout by scale",
        "hybrid_sharding": "Hybrid sharding",
        "context_parallel": "Context parallelism",
        "context_length": "Context length",
    },
    "Machines and models": {
        "model_size": "Model size",
        "generations": "GPU generations",
        "node_size": "NVLink domain",
        "comparability": "What a published ratio compares",
        "h200": "One and two H200",
        "one_h200": "A step on one H200",
    },
    "Money and failures": {
        "goodput": "Failures and checkpoints",
        "fleet": "One large model or several",
    },
    "The model": {
        "validation": "Against published steps",
        "extrapolation": "Few GPUs to many",
        "memory": "Memory",
    },
    "This machine": {
        "this_machine": "This machine",
        "slurm_smoke": "Through Slurm",
    },
}
OTHERS = "More figures"
STORY = tuple(name for group in GROUPS.values() for name in group)


def place_of(name: str) -> int:
    """Return a figure's place on the page; those that no group names come last."""
    return STORY.index(name) if name in STORY else len(STORY)


def group_of(name: str) -> str:
    """Return the group that a figure stands in."""
    return next((group for group, names in GROUPS.items() if name in names), OTHERS)


def short_name(name: str, title: str) -> str:
    """Return how the contents call a figure: as its group does, else by its title."""
    return GROUPS.get(group_of(name), {}).get(name, title)
