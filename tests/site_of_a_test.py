"""A site for tests, of which each states what it is about."""

from typing import Any

from falloff.spec.site import Site


def a_site(**changes: Any) -> Site:
    """Return a site of nodes with eight GPUs that asks for little, with changes."""
    fields: dict[str, Any] = {
        "label": "here",
        "gpus_per_node": 8,
        "startup_s": 300.0,
        "environment": {},
        "jobs_in_flight": 50,
        "seconds_between_polls": 40,
        "retries": 2,
    }
    return Site(**{**fields, **changes})
