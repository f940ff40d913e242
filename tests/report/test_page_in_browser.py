"""The page in headless Chromium: no overflow, no errors, contrast, keyboard, search, sort, and the panel's numbers."""

import contextlib
import json
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from falloff.analysis.model_scores import model_scores
from falloff.cli.main import main
from falloff.perfmodel.families import FAMILIES
from falloff.report.page_panel import prices_of
from falloff.spec.assumptions import Offer, Prices

ROOT = Path(__file__).parents[2]
WIDTHS = (390, 768, 1440)
SCHEMES = ("light", "dark")
CHROMIUM = shutil.which("chromium")

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on PATH (Debian's package chromium)")

# Text against the first ground above it that is not transparent.
CONTRASTS = """() => {
  const channels = (color) => (color.match(/[\\d.]+/g) || []).map(Number);
  const luminance = (color) => {
    const [r, g, b] = channels(color).slice(0, 3).map((c) => c / 255)
      .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (node) => {
    for (let above = node; above; above = above.parentElement) {
      const color = getComputedStyle(above).backgroundColor;
      if ((channels(color)[3] ?? 1) > 0) return color;
    }
    return "rgb(255, 255, 255)";
  };
  const found = [];
  for (const node of document.querySelectorAll("body *")) {
    const style = getComputedStyle(node);
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    const isField = ["SELECT", "INPUT"].includes(node.tagName);
    if (!(own || isField) || !node.getClientRects().length || ["SCRIPT", "NOSCRIPT"].includes(node.tagName)) continue;
    const color = node instanceof SVGElement ? style.fill : style.color;
    const [low, high] = [luminance(color), luminance(ground(node))].sort((a, b) => a - b);
    const size = parseFloat(style.fontSize);
    const needed = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700) ? 3 : 4.5;
    if ((high + 0.05) / (low + 0.05) < needed) found.push([node.tagName, node.textContent.slice(0, 40), color, size]);
  }
  return found;
}"""

# What has the focus, by its id, its target or its words, and whether that is seen.
FOCUS = """() => {
  const one = document.activeElement;
  const style = getComputedStyle(one);
  const name = one === document.body ? "BODY" : one.id || one.getAttribute("href") || one.textContent.trim();
  return [name, style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2];
}"""


@pytest.fixture(scope="module")
def address(
    tmp_path_factory: pytest.TempPathFactory,
    lay_out: Any,
    add_figure: Any,
    render: Any,
    grid: Any,
    claims: pd.DataFrame,
    questions: pd.DataFrame,
) -> str:
    """Return the address of a page with every part, of a small grid and real images."""
    folder = tmp_path_factory.mktemp("repository")
    offer = Offer(
        provider="One", hardware="h100-sxm", on_demand_usd_h=3.2, date="2026-08-26", source="a page", seen="read"
    )
    with contextlib.chdir(folder):
        lay_out()
        add_figure("weak_scaling")
        for name in ("strong_scaling", "weak_scaling"):
            shutil.copy(ROOT / "docs" / "figures" / "strong_scaling.png", f"figures/{name}.png")
        page = Path("figures/index.html")
        page.write_text(
            render(
                names=("strong_scaling", "weak_scaling"),
                claims=claims,
                questions=questions,
                scores=model_scores(_held_out()),
                grid=grid,
                prices=prices_of(grid, Prices(used="One", offers=(offer,))),
            )
        )
        return page.resolve().as_uri()


def _held_out() -> pd.DataFrame:
    columns = ("unseen", "by_models", "by_counts", "naive", "constant_unseen", "constant_by_models")
    more = ("constant_by_counts", "regression_unseen", "regression_by_models", "regression_by_counts")
    rows = [{"family": family.name, "published": 100.0} for family in FAMILIES]
    return pd.DataFrame(rows).assign(**{name: 90.0 + place for place, name in enumerate((*columns, *more))})


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM)
        yield chromium
        chromium.close()


@contextlib.contextmanager
def opened(browser: Browser, address: str, width: int = 1440, scheme: Any = "light") -> Iterator[Page]:
    """Yield the page at a width; it must have written nothing to the console when it is left."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, reduced_motion="reduce", offline=True
    )
    said: list[str] = []
    page = context.new_page()
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("requestfailed", lambda request: said.append(request.url))
    page.goto(address)
    page.wait_for_selector("#what-if-tokens")
    yield page
    assert said == []
    context.close()


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_wider_than_the_window_with_everything_unfolded(browser: Browser, address: str, width: int) -> None:
    with opened(browser, address, width) as page:
        for unfold in (False, True):
            page.evaluate(f"document.querySelectorAll('details').forEach((one) => (one.open = {json.dumps(unfold)}))")
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        hidden = page.evaluate(
            "[...document.querySelectorAll('p, li, h1, h2, h3, dd, td, label')].filter((one) => "
            "one.getClientRects().length && one.getBoundingClientRect().right > innerWidth + 1 && "
            "!one.closest('.scroll, .grid, .card')).map((one) => one.textContent)"
        )
        assert hidden == []


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_every_text_has_the_contrast_of_wcag_aa(browser: Browser, address: str, width: int, scheme: str) -> None:
    with opened(browser, address, width, scheme) as page:
        page.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true))")
        assert page.evaluate(CONTRASTS) == []


def test_what_is_pressed_is_large_enough_for_a_finger(browser: Browser, address: str) -> None:
    with opened(browser, address, 390) as page:
        small = page.evaluate(
            "[...document.querySelectorAll('nav a, button, summary, select, input')].filter((one) => "
            "one.getClientRects().length && one.getBoundingClientRect().height < 24).map((one) => one.textContent)"
        )
        assert small == []


def test_the_keyboard_reaches_everything_in_the_order_of_the_page_and_shows_where_it_is(
    browser: Browser, address: str
) -> None:
    with opened(browser, address) as page:
        seen = []
        for _ in range(200):
            page.keyboard.press("Tab")
            place = page.evaluate(FOCUS)
            if place[0] == "BODY":
                break
            seen.append(place)
        names = [name for name, _ in seen]
        assert names[0] == "#main"
        wanted = ["#claims", "strong_scaling.pdf", "what-if-network", "what-if-price", "search-claims", "verdict"]
        assert [names.index(name) for name in wanted] == sorted(names.index(name) for name in wanted)
        assert [name for name, is_shown in seen if not is_shown] == []


def test_the_way_past_the_contents_leads_to_the_findings(browser: Browser, address: str) -> None:
    with opened(browser, address) as page:
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "main"


def test_claims_are_found_by_words_and_a_link_to_a_hidden_one_shows_it_again(browser: Browser, address: str) -> None:
    with opened(browser, address) as page:
        page.fill("#search-claims", "HOLDS  falls")
        assert page.locator("#claims tbody tr:visible").count() == 1
        assert page.locator("#claims [role=status]").inner_text() == "1 of 3"
        page.click("a[href='#claim-C2']")
        assert page.locator("#claim-C2").is_visible()
        assert page.locator("#claims tbody tr:visible").count() == 3


def test_a_table_is_sorted_by_a_column_and_back_numbers_by_size(browser: Browser, address: str) -> None:
    def order() -> list[str | None]:
        return [row.get_attribute("id") for row in page.locator("#claims tbody tr").all()]

    with opened(browser, address) as page:
        page.locator("#claims thead button", has_text="claim").press("Enter")
        page.locator("#claims thead button", has_text="claim").press("Enter")
        assert order() == ["claim-C10", "claim-C2", "claim-C1"]
        assert page.locator("#claims th[aria-sort]").get_attribute("aria-sort") == "descending"
        page.locator("#claims thead button", has_text="ours").click()
        assert [name for name in order() if name != "claim-C2"] == ["claim-C1", "claim-C10"]
        page.locator("#scores thead button", has_text="goal").click()
        goals = [
            float(text.split(":")[0]) for text in page.locator("#scores td:last-child").all_inner_texts() if ":" in text
        ]
        assert goals == sorted(goals)


def test_the_page_can_be_read_without_its_script(browser: Browser, address: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address)
    assert page.locator("#claims tbody tr").count() == 3
    assert page.get_by_text("falloff predict --help").is_visible()
    assert not page.locator("#what-if-form").is_visible()
    context.close()


CHOICES: tuple[dict[str, str], ...] = (
    {"network": "llama2-7b", "cluster": "h100-sxm-ib400", "gpus": "512", "layout": "FSDP", "local_batch": "2"},
    {"network": "llama2-7b", "cluster": "h100-sxm-ib400", "gpus": "64", "layout": "HSDP, shards of 8"},
    {"network": "llama2-70b", "cluster": "h100-sxm-ib400", "gpus": "512", "layout": "TP 8", "recompute": "full"},
    {"network": "llama2-70b", "layout": "TP 4 × PP 4", "gpus": "64", "local_batch": "4"},
    {"network": "llama2-70b", "cluster": "v100-32gb-sxm2-ib100", "gpus": "8"},
)


def number(page: Page, name: str) -> float:
    text = page.locator(f"#what-if-{name}").evaluate("one => one.firstChild.textContent")
    return float(re.sub(r"[^\d.]", "", text))


@pytest.mark.parametrize("choice", CHOICES, ids=lambda choice: ", ".join(choice.values()))
def test_the_panel_says_what_falloff_predict_says(
    browser: Browser, address: str, choice: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    with opened(browser, address) as page:
        for axis, value in choice.items():
            page.select_option(f"#what-if-{axis}", value)
        command = shlex.split(page.locator("#what-if-command").inner_text())
        assert command.pop(0) == "falloff"
        with contextlib.chdir(ROOT):
            assert main([*command, "--json"]) == 0
        said = json.loads(capsys.readouterr().out)
        assert number(page, "tokens") == pytest.approx(said["tokens_per_gpu_s"], rel=1e-3, abs=0.5e-3)
        assert number(page, "mfu") == pytest.approx(100 * said["mfu"], abs=0.06)
        assert number(page, "step") == pytest.approx(said["step_s"], rel=1e-3)
        assert number(page, "draw") == pytest.approx(said["power"]["draw_w"], abs=0.6)
        assert number(page, "energy") == pytest.approx(said["power"]["energy_per_token_j"], rel=6e-3)
        assert number(page, "memory") == pytest.approx(said["memory"]["device_bytes"] / 2**30, rel=1e-3, abs=0.06)
        low, high = page.locator("#what-if-tokens small").inner_text().removeprefix("90 %: ").split(" to ")
        assert float(low.replace(",", "")) == pytest.approx(said["interval"]["low_tokens_per_gpu_s"], rel=6e-3)
        assert float(high.replace(",", "")) == pytest.approx(said["interval"]["high_tokens_per_gpu_s"], rel=6e-3)
        told = page.locator("#what-if-memory small").inner_text()
        assert told.startswith("fits" if said["memory"]["fits"] else "DOES NOT FIT")
        parts = [
            float(text.replace(",", "")) for text in page.locator("#what-if-parts td[data-part]").all_inner_texts()
        ]
        assert sum(parts) == pytest.approx(1000 * said["step_s"], rel=6e-3)
        exposed = page.locator("#what-if-parts td[data-part='2']").all_inner_texts()
        assert float(exposed[0].replace(",", "")) == pytest.approx(1000 * said["parts_s"]["data_parallel"], rel=6e-3)


def test_the_price_is_the_clusters_until_one_is_given_and_there_is_none_without(browser: Browser, address: str) -> None:
    with opened(browser, address) as page:
        page.select_option("#what-if-gpus", "64")
        rate = number(page, "tokens")
        assert page.input_value("#what-if-price") == "3.20"
        assert number(page, "cost") == pytest.approx(3.2 / 3600 / rate * 1e9, abs=1)
        page.fill("#what-if-price", "6.4")
        assert number(page, "cost") == pytest.approx(6.4 / 3600 / rate * 1e9, abs=1)
        page.select_option("#what-if-cluster", "v100-32gb-sxm2-ib100")
        assert page.input_value("#what-if-price") == "6.4"
        page.fill("#what-if-price", "")
        assert page.locator("#what-if-cost").evaluate("one => one.firstChild.textContent") == "–"


def test_what_is_no_job_says_why(browser: Browser, address: str) -> None:
    with opened(browser, address) as page:
        page.select_option("#what-if-layout", "TP 4 × PP 4")
        page.select_option("#what-if-gpus", "8")
        assert page.locator(".refusal").inner_text() == "No such step: TP 4 × PP 4 takes 16 GPUs, there are 8."
        page.select_option("#what-if-gpus", "64")
        assert "too few for pp 4 stages" in page.locator(".refusal").inner_text()
        assert page.locator("#what-if-tokens").count() == 0
        page.select_option("#what-if-local_batch", "4")
        assert page.locator("#what-if-tokens").is_visible()
