"""Prices, failures and loss laws: each number has its source, and every mistake is a sentence."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from falloff.spec.assumptions import CriticalBatch, Observed, Offer, read_failures, read_loss_laws, read_prices
from falloff.spec.hardware import read_all_hardware

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "config" / "assumptions"
NAMES = ("prices", "failures", "loss_laws")


def written(folder: Path, name: str, change: Any) -> Path:
    values = yaml.safe_load((SHIPPED / f"{name}.yaml").read_text())
    change(values)
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(values))
    return folder


def test_every_price_is_of_a_known_gpu_and_has_a_day() -> None:
    known = read_all_hardware(ROOT / "config" / "hardware")
    for offer in read_prices(SHIPPED).offers:
        assert offer.hardware in known
        assert offer.date.startswith("20")


def test_a_gpu_that_the_provider_does_not_list_names_those_that_it_does() -> None:
    with pytest.raises(ValueError, match=r"Hyperstack lists no v100-16gb-sxm2; it lists h100-sxm"):
        read_prices(SHIPPED).of("v100-16gb-sxm2")


def test_what_is_reserved_costs_less_than_on_demand() -> None:
    for offer in read_prices(SHIPPED).offers:
        assert offer.reserved_usd_h is None or offer.reserved_usd_h < offer.on_demand_usd_h


def test_llama_was_interrupted_every_three_hours() -> None:
    rate = read_failures(SHIPPED).rate
    assert rate.mean_s / 3600 == pytest.approx(3.09, abs=0.01)
    assert rate.per_gpu_s * rate.gpus * rate.mean_s == pytest.approx(1)


def test_the_critical_batch_grows_as_the_loss_falls() -> None:
    critical = read_loss_laws(SHIPPED).critical_batch
    assert critical.tokens_at(2.0) > critical.tokens_at(3.0)
    # equation 5.3 of arXiv 2001.08361 by hand: 2e8 / 2^(1 / 0.21)
    assert critical.tokens_at(2.0) == pytest.approx(7.37e6, rel=1e-3)
    with pytest.raises(ValueError, match="a loss is above zero"):
        critical.tokens_at(0.0)


@pytest.mark.parametrize("name", NAMES)
def test_a_misspelt_key_is_an_error_with_the_likeliest_meant(tmp_path: Path, name: str) -> None:
    reader = {"prices": read_prices, "failures": read_failures, "loss_laws": read_loss_laws}[name]
    with pytest.raises(ValueError, match=rf"{name}\.yaml: unknown key 'soruce'"):
        reader(written(tmp_path, name, lambda values: values.update(soruce="x")))


@pytest.mark.parametrize(
    ("name", "change", "sentence"),
    [
        ("prices", lambda v: v.update(used="Nobody"), "used names 'Nobody', whose offers are not among them"),
        ("prices", lambda v: v["offers"][0].update(on_demand_usd_h=55.04), "dollars an hour and GPU, not a node's"),
        ("prices", lambda v: v["offers"][0].update(date="lately"), "date must be a day such as 2026-11-30"),
        ("prices", lambda v: v["offers"][0].update(source=" "), "source must say where the number is from"),
        ("failures", lambda v: v["observed"][0].pop("days"), "interruptions and days are needed, or mean_hours"),
        ("failures", lambda v: v["observed"][2].update(days=3, interruptions=1), "mean_hours, and not both"),
        ("failures", lambda v: v["effective"][0].update(at_least=90), "a share between 0 and 1, found 90"),
        ("failures", lambda v: v["recovery"].update(pause_s=60), "pause_s 60 is longer than save_s 51.06"),
        ("failures", lambda v: v.update(used="x"), "used names 'x', which is not observed"),
        ("loss_laws", lambda v: v["laws"][0].update(alpha=1.5), "alpha must be below 1, found 1.5"),
        ("loss_laws", lambda v: v["critical_batch"].update(b_star_tokens=1024), "tokens, not sequences"),
        ("loss_laws", lambda v: v.update(laws=[]), "laws must hold at least one"),
    ],
)
def test_a_mistake_in_a_file_is_one_sentence(tmp_path: Path, name: str, change: Any, sentence: str) -> None:
    reader = {"prices": read_prices, "failures": read_failures, "loss_laws": read_loss_laws}[name]
    with pytest.raises(ValueError, match=rf"{name}\.yaml.*{sentence}"):
        reader(written(tmp_path, name, change))


def test_the_classes_can_be_made_by_hand_too() -> None:
    offer = Offer(provider="p", hardware="h", on_demand_usd_h=1, date="2026-01-01", source="s", seen="source")
    assert offer.reserved_usd_h is None
    assert Observed(name="n", gpus=2, gpu="g", mean_hours=1, source="s", seen="source").per_gpu_s == 1 / 7200
    assert CriticalBatch(b_star_tokens=2e8, alpha_b=0.5, source="s", seen="source").tokens_at(10) == 2e6
