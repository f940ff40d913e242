"""What calibration may move: few numbers with a physical meaning, a prior and bounds, and what they are shared by.

A parameter has one value for all jobs, one a GPU generation, one a framework or one a fabric. A group that no data
reach keeps the prior: that is how an unseen generation, framework or fabric is predicted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from falloff.perfmodel.jobs import Floats, Jobs

SharedBy = Literal["all", "generation", "framework", "fabric"]


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One number: its prior (a guess before any training cell, with its source), how far from it is plausible, bounds.

    spread is the prior's standard deviation of the natural logarithm: 0.1 is ten per cent either way. group_priors
    are priors of single groups, such as a generation whose kernels were measured by themselves; group_spreads are less
    where these measurements are better.
    """

    name: str
    prior: float
    spread: float
    low: float
    high: float
    shared_by: SharedBy
    meaning: str
    source: str
    group_priors: Mapping[str, float] = field(default_factory=dict)
    group_spreads: Mapping[str, float] = field(default_factory=dict)

    def prior_of(self, group: str) -> float:
        """Return the prior of a group."""
        return self.group_priors.get(group, self.prior)

    def spread_of(self, group: str) -> float:
        """Return how far from its prior a group's value is plausible."""
        return self.group_spreads.get(group, self.spread)


@dataclass(frozen=True, kw_only=True)
class Values:
    """Values of parameters by name and group; a group that is not named has its prior."""

    parameters: Mapping[str, Parameter]
    fitted: Mapping[tuple[str, str], float] = field(default_factory=dict)

    def of(self, name: str, jobs: Jobs) -> Floats:
        """Return a parameter's value for each job [n]."""
        parameter = self.parameters[name]
        if parameter.shared_by == "all":
            return np.full(len(jobs), self.get(name, "all"))
        names, places = jobs.groups[parameter.shared_by]
        return np.array([self.get(name, group) for group in names], dtype=float)[places]

    def get(self, name: str, group: str) -> float:
        """Return a parameter's value for one group."""
        return self.fitted.get((name, group), self.parameters[name].prior_of(group))


def by_name(parameters: Sequence[Parameter]) -> dict[str, Parameter]:
    """Return parameters by their names; ValueError where two share one."""
    found: dict[str, Parameter] = {}
    for parameter in parameters:
        if parameter.name in found:
            raise ValueError(f"parameter {parameter.name} is stated twice")
        found[parameter.name] = parameter
    return found
