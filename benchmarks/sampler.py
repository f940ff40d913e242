"""What the power sampler costs a training step: windows of work in pairs, with the sampler running and stopped.

    python -m benchmarks.sampler                                 # one GPU, some 55 s
    python -m benchmarks.sampler --gpus 2 --work launches --window-s 1

The sampler is a process of its own, as in a measurement, and is stopped by SIGSTOP for half of the windows, in the
order on off, off on, on off, ..., so that a drift of the clocks raises half of the pairs and lowers the other half.
"""

import argparse
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F  # noqa: N812 (torch's own habit)
from torch import Tensor, nn

from falloff import rawlog
from falloff.student import t_quantile

LIMIT = 0.005
FEWEST_PAIRS = 6
SAMPLER = (sys.executable, "-m", "falloff.bench.power")
# Importing pynvml and looking for the counter's period.
SAMPLER_START_S = 20.0
WARM_UP_SHARE = 1.5
# Sequence, width, heads and feed-forward width: a layer of Llama 2 7B, which holds a GPU at its power limit, and one
# so small that the host's launches are all that a step takes.
SHAPES = {"block": (4096, 4096, 32, 11008), "launches": (128, 256, 4, 704)}


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is asked: on what, how many pairs of windows of how many seconds, and who samples."""

    device: str
    num_ranks: int
    pairs: int
    window_s: float
    work: str
    run_dir: Path
    sampler: tuple[str, ...] = SAMPLER


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One window with the sampler and one without: seconds of a step, and the samples that were written meanwhile."""

    on_s: float
    off_s: float
    samples_on: int
    samples_off: int


@dataclass(frozen=True, kw_only=True)
class Effect:
    """The mean of log(on / off) over pairs and its one-sided upper 95 % bound, as fractions of a step."""

    mean: float
    upper: float
    num_pairs: int


def effect_of(pairs: Sequence[Pair]) -> Effect:
    """Return the effect on a step's time by Student's t over the pairs; ValueError for fewer than two."""
    if len(pairs) < 2:
        raise ValueError(f"an effect needs two pairs or more, found {len(pairs)}")
    logs = [math.log(pair.on_s / pair.off_s) for pair in pairs]
    # 90 % within both bounds is 95 % below the upper one
    half = t_quantile(len(logs) - 1, 0.90) * statistics.stdev(logs) / math.sqrt(len(logs))
    return Effect(mean=statistics.fmean(logs), upper=statistics.fmean(logs) + half, num_pairs=len(logs))


class Block(nn.Module):
    """One layer of a Llama, eager, with all the small kernels that come with it."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate, self.up = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's output, of the shape of its input: sequences, positions, width."""
        parts = self.qkv(self.norms[0](x)).chunk(3, dim=-1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.out(attended)
        normed = self.norms[1](x)
        return x + self.down(F.silu(self.gate(normed)) * self.up(normed))


def make_step(request: Request, device: torch.device) -> Callable[[], None]:
    """Return forward and backward of the layer, and on several ranks the sum of its gradients."""
    seq, width, heads, hidden = SHAPES[request.work]
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    torch.manual_seed(0)
    block = Block(width, heads, hidden).to(device, dtype)
    x = torch.randn(1, seq, width, device=device, dtype=dtype)
    gradient = torch.randn_like(x)

    def step() -> None:
        block(x).backward(gradient)
        if request.num_ranks > 1:
            for parameter in block.parameters():
                dist.all_reduce(parameter.grad)
        block.zero_grad(set_to_none=True)

    return step


class Sampler:
    """The sampler's process, and how many lines it has written."""

    def __init__(self, request: Request) -> None:
        rawlog.append_event(request.run_dir, "run_started", device=request.device)
        self._csv = request.run_dir / rawlog.POWER_NAME
        self._process = subprocess.Popen([*request.sampler, str(request.run_dir)])
        self.event = self._started(request.run_dir)

    def _started(self, run_dir: Path) -> dict[str, Any]:
        deadline_s = time.monotonic() + SAMPLER_START_S
        while time.monotonic() < deadline_s:
            for event in rawlog.read_open_events(run_dir):
                if event["event"] == "power":
                    return event
            time.sleep(0.05)
        raise ValueError(f"the sampler said nothing for {SAMPLER_START_S:g} s")

    def run(self, running: bool) -> None:
        """Let the sampler run, or stop it."""
        self._process.send_signal(signal.SIGCONT if running else signal.SIGSTOP)

    def num_samples(self) -> int:
        """Return how many times all meters have been read."""
        if not self._csv.is_file():
            return 0
        return max(0, self._csv.read_bytes().count(b"\n") - 1) // len(self.event["devices"])

    def cpu_s(self) -> float | None:
        """Return the CPU seconds that the sampler has taken (Linux: /proc); None where it has ended."""
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        except OSError:
            return None
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        """End the sampler."""
        self._process.send_signal(signal.SIGCONT)
        self._process.terminate()
        self._process.wait()


class Ranks:
    """The clock of a window on all ranks: its seconds are the slowest rank's."""

    def __init__(self, device: torch.device, num_ranks: int) -> None:
        self._device, self._num_ranks = device, num_ranks

    def meet(self) -> None:
        """Wait for the device and for the other ranks."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        if self._num_ranks > 1:
            self.slowest(0.0)

    def seconds(self, step: Callable[[], None], steps: int) -> float:
        """Return the seconds of one of so many steps."""
        self.meet()
        began_s = time.perf_counter()
        for _ in range(steps):
            step()
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return self.slowest(time.perf_counter() - began_s) / steps

    def slowest(self, value: float) -> float:
        """Return the largest value of all ranks."""
        if self._num_ranks == 1:
            return value
        held = torch.tensor(value, dtype=torch.float64, device=self._device)
        dist.all_reduce(held, op=dist.ReduceOp.MAX)
        return float(held)


def measure_as_rank(rank: int, request: Request) -> None:
    """Measure all pairs as one rank; the first one holds the sampler and writes what was found beside its log."""
    device = torch.device("cuda", rank) if request.device == "cuda" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if request.num_ranks > 1:
        dist.init_process_group(
            "nccl" if device.type == "cuda" else "gloo",
            init_method=f"file://{request.run_dir.resolve()}/store",
            rank=rank,
            world_size=request.num_ranks,
            device_id=device if device.type == "cuda" else None,
        )
    sampler = Sampler(request) if rank == 0 else None
    try:
        pairs, cpu_s = measure_pairs(request, Ranks(device, request.num_ranks), make_step(request, device), sampler)
        if sampler is not None:
            found = {"pairs": [asdict(pair) for pair in pairs], "power": sampler.event, "sampler_cpu_s": cpu_s}
            (request.run_dir / "found.json").write_text(json.dumps(found), encoding="utf-8")
    finally:
        if sampler is not None:
            sampler.end()
        if request.num_ranks > 1:
            dist.destroy_process_group()


def measure_pairs(
    request: Request, ranks: Ranks, step: Callable[[], None], sampler: Sampler | None
) -> tuple[list[Pair], float | None]:
    """Return every pair, and the CPU seconds that the sampler took during them."""
    # as many steps on all ranks, after a warm-up that heats the GPU and shows how long a step takes
    first_s = ranks.seconds(step, 3)
    warm_s = ranks.seconds(step, max(1, round(WARM_UP_SHARE * request.window_s / first_s)))
    steps = max(1, round(request.window_s / warm_s))
    before_s = sampler.cpu_s() if sampler else None
    pairs = []
    for number in range(request.pairs):
        # on off, off on, ...
        windows = {on: _window(ranks, step, steps, sampler, on) for on in (number % 2 == 0, number % 2 == 1)}
        (on_s, samples_on), (off_s, samples_off) = windows[True], windows[False]
        pairs.append(Pair(on_s=on_s, off_s=off_s, samples_on=samples_on, samples_off=samples_off))
    after_s = sampler.cpu_s() if sampler else None
    return pairs, None if before_s is None or after_s is None else after_s - before_s


def _window(ranks: Ranks, step: Callable[[], None], steps: int, sampler: Sampler | None, on: bool) -> tuple[float, int]:
    if sampler is not None:
        sampler.run(on)
    ranks.meet()
    before = sampler.num_samples() if sampler else 0
    seconds = ranks.seconds(step, steps)
    return seconds, (sampler.num_samples() if sampler else 0) - before


def measure(request: Request) -> dict[str, Any]:
    """Return what was found: each pair, the sampler's power event, and its CPU seconds."""
    if request.num_ranks == 1:
        measure_as_rank(0, request)
    else:
        mp.spawn(measure_as_rank, (request,), request.num_ranks)
    found: dict[str, Any] = json.loads((request.run_dir / "found.json").read_text(encoding="utf-8"))
    return found


def report(found: dict[str, Any], request: Request) -> str:
    """Return the pairs, the effect with its bound, and whether the sampler sampled when it was to."""
    pairs = [Pair(**pair) for pair in found["pairs"]]
    effect, power = effect_of(pairs), found["power"]
    lines = [f"{request.work} on {request.num_ranks} {request.device}, windows of {request.window_s:g} s", ""]
    lines += [
        f"pair {number}: with the sampler {pair.on_s:.6f} s a step ({pair.samples_on} samples), "
        f"without {pair.off_s:.6f} s ({pair.samples_off}), {math.log(pair.on_s / pair.off_s):+.3%}"
        for number, pair in enumerate(pairs, start=1)
    ]
    lines += ["", f"effect on a step: {effect.mean:+.3%}, upper 95 % bound {effect.upper:+.3%}, {len(pairs)} pairs"]
    if not power["source"]:
        return "\n".join([*lines, f"which says nothing about sampling: no meter ({power['reason']})"])
    below = "yes" if effect.upper < LIMIT and all(pair.samples_on > 0 for pair in pairs) else "NO"
    lines.append(f"bound below {LIMIT:.1%}: {below}")
    samples = sum(pair.samples_on for pair in pairs)
    cost = (
        f", {found['sampler_cpu_s'] / samples * 1e3:.2f} ms of CPU each" if found["sampler_cpu_s"] and samples else ""
    )
    read = f", all meters read in {power['read_s'] * 1e3:.2f} ms" if power.get("read_s") else ""
    lines.append(
        f"{len(power['devices'])} meters, counter new every {power['counter_period_s'] or 'unknown'} s, sampled every "
        f"{power['period_s']} s{read}; {samples} samples{cost}"
    )
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    """Measure and print; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    on_gpu = torch.cuda.is_available()
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if on_gpu else "cpu")
    parser.add_argument("--gpus", type=int, default=1, help="ranks, each with a GPU of its own")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--window-s", type=float, default=2.0)
    parser.add_argument("--work", choices=sorted(SHAPES), default="block" if on_gpu else "launches")
    parser.add_argument("--out", type=Path, help="a file for everything that was found, as JSON")
    parsed = parser.parse_args(arguments)
    if parsed.pairs < FEWEST_PAIRS:
        parser.error(f"--pairs {parsed.pairs}: allowed are {FEWEST_PAIRS} and more")
    with tempfile.TemporaryDirectory() as folder:
        request = Request(
            device=parsed.device,
            num_ranks=parsed.gpus,
            pairs=parsed.pairs,
            window_s=parsed.window_s,
            work=parsed.work,
            run_dir=Path(folder),
        )
        found = measure(request)
    if parsed.out:
        parsed.out.write_text(json.dumps({**found, "effect": asdict(effect_of([Pair(**p) for p in found["pairs"]]))}))
    print(report(found, request))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
