"""The tables of docs/perfmodel.md that the code itself states: parameters, what was fitted, habits of programs."""

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from falloff.normal import Z90
from falloff.perfmodel import power
from falloff.perfmodel.calibrate import Fit
from falloff.perfmodel.frameworks import BY_NAME, Habits
from falloff.perfmodel.parameters import Parameter
from falloff.perfmodel.step import PARAMETERS
from falloff.report.markdown import markdown_table


def filled_page(page: str, fit: Fit) -> str:
    """Return the page with each table between its marks as the code has it now; ValueError where a mark is missing."""
    for name, table in tables(fit).items():
        first, last = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        before, has_first, rest = page.partition(first)
        _, has_last, after = rest.partition(last)
        if not (has_first and has_last):
            raise ValueError(f"the page has no place for the table {name}: <!-- {name} --> to <!-- end of {name} -->")
        page = before + first + table + last + after
    return page


def tables(fit: Fit) -> dict[str, str]:
    """Return the tables in Markdown by the names of their marks."""
    return {
        "parameters": parameter_table(all_parameters().values()),
        "fitted values": fitted_table(fit),
        "habits": habits_table(BY_NAME.values()),
    }


def all_parameters() -> Mapping[str, Parameter]:
    """Return every parameter of the model by name, those of time and memory first, then those of power."""
    return {**PARAMETERS, **power.PARAMETERS}


def parameter_table(parameters: Iterable[Parameter]) -> str:
    """Return a row for each parameter: what it is shared by, prior and spread with groups' own, bounds, meaning."""
    rows = [
        (
            f"`{parameter.name}`",
            parameter.shared_by,
            _with_groups(_number(parameter.prior), parameter.group_priors, _number),
            _with_groups(_percent(parameter.spread), parameter.group_spreads, _percent),
            f"{_number(parameter.low)} to {_number(parameter.high)}",
            parameter.meaning,
            parameter.source,
        )
        for parameter in parameters
    ]
    return markdown_table(("name", "one for each", "prior", "spread", "bounds", "meaning", "source of the prior"), rows)


def fitted_table(fit: Fit) -> str:
    """Return a row for each fitted value with its 90 % interval, beside its prior; a group without cells has none."""
    deviation = np.sqrt(np.diag(fit.covariance)) if len(fit.coordinates) else np.zeros(0)
    rows = []
    for (name, group), sigma in sorted(zip(fit.coordinates, deviation, strict=True)):
        value = fit.values.get(name, group)
        ends = (value * float(np.exp(sign * Z90 * sigma)) for sign in (-1, 1))
        prior = fit.values.parameters[name].prior_of(group)
        sources = len(fit.reached_by.get((name, group), ()))
        rows.append((f"`{name}`", group, _number(prior), _number(value), " to ".join(map(_number, ends)), str(sources)))
    return markdown_table(("name", "group", "prior", "fitted", "90 % interval", "sources"), rows)


def habits_table(habits: Iterable[Habits]) -> str:
    """Return a row for each program: what it does where a source does not say."""
    rows = [
        (
            f"`{one.name}`",
            one.sharding,
            one.recompute,
            "fused" if one.flash_attention else "unfused",
            "yes" if one.compiled else "no",
            " / ".join(
                _number(amount) for amount in (one.param_bytes, one.gradient_bytes, one.reduce_bytes, one.state_bytes)
            ),
            "beside compute" if one.overlaps else "after compute",
            one.source,
        )
        for one in sorted(habits, key=lambda one: one.name)
    ]
    heads = ("program", "sharding", "recomputes", "attention", "compiled", "bytes", "data parallelism", "source")
    return markdown_table(heads, rows)


def _with_groups(value: str, groups: Mapping[str, float], words: Callable[[float], str]) -> str:
    """Return a value, and after it those of single groups that have their own."""
    return "; ".join([value, *(f"{group} {words(own)}" for group, own in sorted(groups.items()))])


def _percent(value: float) -> str:
    return f"{100 * value:.0f} %"


def _number(value: float) -> str:
    return f"{value:.3g}" if value == 0 or 1e-3 <= abs(value) < 1e4 else f"{value:.2e}"
