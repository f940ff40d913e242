"""The what-if panel: a form over the grid of analysis.what_if, which page.js looks up."""

import json
from collections.abc import Mapping
from typing import Any

from falloff.report.markup import escaped
from falloff.spec.assumptions import Offer, Prices

_LABELS = {
    "network": "Network",
    "cluster": "Cluster",
    "gpus": "GPUs",
    "layout": "Layout",
    "local_batch": "Sequences a rank",
    "recompute": "Recompute",
}
_FIRST = {
    "network": "llama2-7b",
    "cluster": "h100-sxm-ib400",
    "gpus": 256,
    "layout": "FSDP",
    "local_batch": 2,
    "recompute": "none",
}


def prices_of(grid: Mapping[str, Any], prices: Prices) -> dict[str, Offer]:
    """Return the offers that the figures take, by the names of the grid's clusters; those of no offer are left out."""
    offers = {offer.hardware: offer for offer in prices.offers if offer.provider == prices.used}
    return {
        cluster["value"]: offers[cluster["hardware"]]
        for cluster in grid["axes"]["cluster"]
        if cluster["hardware"] in offers
    }


def panel_html(grid: Mapping[str, Any], prices: Mapping[str, Offer]) -> str:
    """Return the panel over a grid of analysis.what_if; `prices` are by the names of its clusters.

    Without JavaScript it says which command answers.
    """
    calibration = grid["calibration"]
    given = {
        name: {"usd": offer.on_demand_usd_h, "words": f"{offer.provider}, on demand, {_unbroken(offer.date)}"}
        for name, offer in prices.items()
    }
    data = json.dumps({**grid, "prices": given}, ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/")
    selects = "\n".join(_select(name, grid["axes"][name]) for name in _LABELS)
    return f"""<p class="intro">Every number here is predicted, from a grid of {grid["num_jobs"]:,} steps that were
computed beforehand; nothing between or beyond them is guessed. Sequences of {grid["seq"]:,} tokens, so many of
them a step on each data-parallel rank; TorchTitan's habits; 16-bit products;
calibrated on {calibration["rows"]:,} published cells of {calibration["sources"]} sources.</p>
<p id="what-if-without">The panel needs JavaScript. <code>falloff predict --help</code> says how to ask the same of a
terminal.</p>
<form id="what-if-form" class="panel" hidden aria-label="What if">
<div class="choices">
{selects}
<label><span>$ a GPU-hour</span>
<input id="what-if-price" type="number" min="0" step="0.01" inputmode="decimal" placeholder="none given"></label>
</div>
<div id="what-if-result" role="status"></div>
</form>
<script type="application/json" id="what-if-data">{data}</script>"""


def _select(name: str, choices: list[dict[str, Any]]) -> str:
    known = [choice["value"] for choice in choices]
    first = _FIRST[name] if _FIRST[name] in known else known[0]
    options = "".join(
        f'<option value="{escaped(str(choice["value"]))}"{" selected" if choice["value"] == first else ""}>'
        f"{escaped(choice['words'])}</option>"
        for choice in choices
    )
    return f'<label><span>{_LABELS[name]}</span>\n<select id="what-if-{name}">{options}</select></label>'


def _unbroken(date: str) -> str:
    return date.replace("-", "\N{NON-BREAKING HYPHEN}")
