"""What the study assumes and cannot measure: prices, failures, loss laws; every number with its source and date.

The files of config/assumptions, as frozen classes. Every mistake in one is a sentence that says where.
"""

import datetime
import math
from dataclasses import dataclass
from pathlib import Path

from falloff.spec.reading import build, read_yaml, require_positive

ASSUMPTIONS = Path("config", "assumptions")
# between a V100 at a discount and the newest GPU with everything around it
_LEAST_USD_H, _MOST_USD_H = 0.1, 50.0


def _require_source(instance: object, *names: str) -> None:
    for name in names:
        if not getattr(instance, name).strip():
            raise ValueError(f"{name} must say where the number is from")


@dataclass(frozen=True, kw_only=True)
class Offer:
    """What a provider lists for an hour of one GPU, in dollars; seen says how the page was read."""

    provider: str
    hardware: str
    on_demand_usd_h: float
    date: str
    source: str
    seen: str
    reserved_usd_h: float | None = None

    def __post_init__(self) -> None:
        for name in ("on_demand_usd_h", "reserved_usd_h"):
            value = getattr(self, name)
            if value is not None and not _LEAST_USD_H <= value <= _MOST_USD_H:
                raise ValueError(f"{name} is {value:g}; the unit is dollars an hour and GPU, not a node's")
        try:
            datetime.date.fromisoformat(self.date)
        except ValueError:
            raise ValueError(f"date must be a day such as 2026-11-30, found {self.date!r}") from None
        _require_source(self, "source", "seen")


@dataclass(frozen=True, kw_only=True)
class Prices:
    """Offers of several providers, and whose the figures take."""

    used: str
    offers: tuple[Offer, ...]

    def __post_init__(self) -> None:
        if self.used not in {offer.provider for offer in self.offers}:
            raise ValueError(f"used names {self.used!r}, whose offers are not among them")

    def of(self, hardware: str) -> Offer:
        """Return the offer that the figures take for a GPU type; ValueError names those that there are."""
        found = [offer for offer in self.offers if (offer.provider, offer.hardware) == (self.used, hardware)]
        if not found:
            known = ", ".join(offer.hardware for offer in self.offers if offer.provider == self.used)
            raise ValueError(f"{self.used} lists no {hardware}; it lists {known}")
        return found[0]


@dataclass(frozen=True, kw_only=True)
class Observed:
    """How often work on so many GPUs was interrupted: a count in so many days, or the mean hours between two."""

    name: str
    gpus: int
    gpu: str
    source: str
    seen: str
    interruptions: float | None = None
    days: float | None = None
    mean_hours: float | None = None

    def __post_init__(self) -> None:
        require_positive(self, "gpus", "interruptions", "days", "mean_hours")
        counted = self.interruptions is not None and self.days is not None
        if counted == (self.mean_hours is not None):
            raise ValueError(f"{self.name}: interruptions and days are needed, or mean_hours, and not both")
        _require_source(self, "source", "seen")

    @property
    def mean_s(self) -> float:
        """Return the mean seconds between two interruptions on its own GPUs."""
        if self.mean_hours is not None:
            return self.mean_hours * 3600.0
        assert self.interruptions is not None
        assert self.days is not None
        return self.days * 86400.0 / self.interruptions

    @property
    def per_gpu_s(self) -> float:
        """Return interruptions a second and GPU."""
        return 1 / (self.mean_s * self.gpus)


@dataclass(frozen=True, kw_only=True)
class Effective:
    """A published share of elapsed time that was useful, of which its source says only that it was at least so much."""

    name: str
    gpus: int
    at_least: float
    source: str
    seen: str

    def __post_init__(self) -> None:
        require_positive(self, "gpus")
        if not 0 < self.at_least < 1:
            raise ValueError(f"at_least must be a share between 0 and 1, found {self.at_least}")
        _require_source(self, "source", "seen")


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """Seconds that an interruption and a checkpoint cost.

    detect_s passes until the job is known to be lost and its nodes are tested, load_s until its state is back. A
    checkpoint halts the GPUs for pause_s and is safe after save_s. usual_interval_s is what people choose.
    """

    detect_s: float
    detect_source: str
    detect_seen: str
    pause_s: float
    save_s: float
    load_s: float
    checkpoint_source: str
    checkpoint_seen: str
    usual_interval_s: float
    usual_source: str
    usual_seen: str

    def __post_init__(self) -> None:
        require_positive(self, "detect_s", "pause_s", "save_s", "load_s", "usual_interval_s")
        if self.pause_s > self.save_s:
            raise ValueError(f"pause_s {self.pause_s:g} is longer than save_s {self.save_s:g}, of which it is a part")
        _require_source(self, "detect_source", "checkpoint_source", "usual_source")


@dataclass(frozen=True, kw_only=True)
class Failures:
    """What was published of interruptions, and whose rate the figures take."""

    used: str
    observed: tuple[Observed, ...]
    effective: tuple[Effective, ...]
    recovery: Recovery

    def __post_init__(self) -> None:
        if self.used not in {one.name for one in self.observed}:
            raise ValueError(f"used names {self.used!r}, which is not observed")

    @property
    def rate(self) -> Observed:
        """Return the observation that the figures take."""
        return next(one for one in self.observed if one.name == self.used)


@dataclass(frozen=True, kw_only=True)
class LossLaw:
    """L(N, D) = E + A / N^alpha + B / D^beta in nats a token; symbols as in arXiv 2203.15556, equation 10."""

    name: str
    E: float
    A: float
    B: float
    alpha: float
    beta: float
    source: str
    seen: str

    def __post_init__(self) -> None:
        require_positive(self, "E", "A", "B", "alpha", "beta")
        for name in ("alpha", "beta"):
            if not getattr(self, name) < 1:
                raise ValueError(f"{name} must be below 1, found {getattr(self, name)}")
        _require_source(self, "source", "seen")


@dataclass(frozen=True, kw_only=True)
class CriticalBatch:
    """B_crit(L) = b_star_tokens / L^(1 / alpha_b), in tokens (arXiv 2001.08361, equation 5.3)."""

    b_star_tokens: float
    alpha_b: float
    source: str
    seen: str

    def __post_init__(self) -> None:
        require_positive(self, "b_star_tokens", "alpha_b")
        if self.b_star_tokens < 1e6:
            raise ValueError(f"b_star_tokens is {self.b_star_tokens:g}; the unit is tokens, not sequences")
        _require_source(self, "source", "seen")

    def tokens_at(self, loss: float) -> float:
        """Return the critical batch at a loss, in tokens; ValueError where the loss is none."""
        if not (math.isfinite(loss) and loss > 0):
            raise ValueError(f"a loss is above zero and finite, found {loss}")
        return float(self.b_star_tokens / loss ** (1 / self.alpha_b))


@dataclass(frozen=True, kw_only=True)
class LossLaws:
    """Loss laws, the first of which the figures take and beside which they show the others; and the critical batch."""

    laws: tuple[LossLaw, ...]
    critical_batch: CriticalBatch
    tokens_per_param: float
    tokens_source: str

    def __post_init__(self) -> None:
        require_positive(self, "tokens_per_param")
        if not self.laws:
            raise ValueError("laws must hold at least one")


def read_prices(folder: Path = ASSUMPTIONS) -> Prices:
    """Return the prices of GPU-hours; ValueError says where the file is wrong."""
    return build(Prices, read_yaml(folder / "prices.yaml"), str(folder / "prices.yaml"))


def read_failures(folder: Path = ASSUMPTIONS) -> Failures:
    """Return rates and costs of interruptions; ValueError says where the file is wrong."""
    return build(Failures, read_yaml(folder / "failures.yaml"), str(folder / "failures.yaml"))


def read_loss_laws(folder: Path = ASSUMPTIONS) -> LossLaws:
    """Return the loss laws; ValueError says where the file is wrong."""
    return build(LossLaws, read_yaml(folder / "loss_laws.yaml"), str(folder / "loss_laws.yaml"))
