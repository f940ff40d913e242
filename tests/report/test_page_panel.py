"""The what-if panel as the page states it; what it does is tried in test_page_in_browser.py."""

import json
from typing import Any

from falloff.report.page_panel import panel_html, prices_of
from falloff.spec.assumptions import Offer, Prices


def offer(provider: str, hardware: str, usd: float) -> Offer:
    return Offer(
        provider=provider, hardware=hardware, on_demand_usd_h=usd, date="2026-08-26", source="a page", seen="read"
    )


PRICES = Prices(
    used="One",
    offers=(offer("One", "h100-sxm", 3.2), offer("Two", "h100-sxm", 9.9), offer("Two", "v100-32gb-sxm2", 1.0)),
)


def test_a_cluster_has_the_price_that_the_figures_take_or_none(grid: Any) -> None:
    prices = prices_of(grid, PRICES)
    assert {name: one.on_demand_usd_h for name, one in prices.items()} == {"h100-sxm-ib400": 3.2}


def test_every_choice_is_a_labelled_field_and_the_grid_is_whole_in_the_page(grid: Any, elements: Any) -> None:
    text = panel_html(grid, prices_of(grid, PRICES))
    found = elements(text)
    assert found.open == []
    assert [field["id"] for field in found.of("select")] == [
        f"what-if-{axis}" for axis in ("network", "cluster", "gpus", "layout", "local_batch", "recompute")
    ]
    assert text.count("<label>") == len(found.of("select")) + len(found.of("input"))
    held = json.loads(text.partition('id="what-if-data">')[2].partition("</script>")[0])
    assert held["packed"] == grid["packed"]
    assert held["prices"]["h100-sxm-ib400"]["usd"] == 3.2


def test_no_text_of_the_grid_can_end_the_script(grid: Any) -> None:
    text = panel_html({**grid, "reasons": ["</script><b>"]}, {})
    assert "</script><b>" not in text
    assert json.loads(text.partition('id="what-if-data">')[2].partition("</script>")[0])["reasons"] == ["</script><b>"]
