"""Two controls of what communication costs: steps without any, and steps with each collective made longer.

Both take the place of FSDP's all-gather and reduce-scatter, on the streams on which FSDP runs them. An ordinary cell
has no control, and FSDP is left as it is.
"""

import dataclasses
import statistics
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn

from falloff.bench.delay import pause_on
from falloff.bench.timing import clock_for
from falloff.spec.cell import TrainCell

# torch 2.13 gave these two new names, and warns at the old ones.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor

WARMUP_CALLS = 5
MEASURED_CALLS = 20
# Longer than a host needs to issue the calls of a series, so that they stand in the stream without gaps.
HEAD_START_S = 5e-3


@dataclass(frozen=True, kw_only=True, order=True)
class Message:
    """A collective and its size, as nccl-tests counts it: what a rank gets from AllGather, gives to ReduceScatter."""

    collective: Literal["all_gather", "reduce_scatter"]
    message_bytes: int
    num_ranks: int


def install_control(modules: Iterable[nn.Module], cell: TrainCell, device: torch.device) -> "Control | None":
    """Put the cell's control in the place of the collectives of all that FSDP shards; None for an ordinary cell."""
    control: Control
    if cell.communication == "none":
        control = NoCommunication()
    elif cell.delay_factor > 0:
        control = Delay(cell.delay_factor, device)
    else:
        return None
    control.put_into(modules)
    return control


class Control(ABC):
    """What stands in the place of FSDP's collectives, and how often it was called for each message."""

    kind: Literal["no_communication", "delay"]

    def __init__(self) -> None:
        self.num_calls: Counter[Message] = Counter()
        self.calls_per_step: dict[Message, int] = {}

    def put_into(self, modules: Iterable[nn.Module]) -> None:
        """Take the place of the collectives of every module that FSDP shards."""
        from torch.distributed.fsdp import FSDPModule

        # Not torch's own base classes, which are private: FSDP asks for `allocate` and a call, and no more.
        gather: Any = _AllGather(self)
        reduce: Any = _ReduceScatter(self)
        for module in (part for whole in modules for part in whole.modules()):
            if isinstance(module, FSDPModule):
                module.set_custom_all_gather(gather)
                module.set_custom_reduce_scatter(reduce)

    def after_first_step(self) -> None:
        """Take what was called until now for that of each step. Every rank calls it, after the first step."""
        self.calls_per_step = dict(sorted(self.num_calls.items()))

    def event_fields(self) -> dict[str, Any]:
        """Return the fields of the event `control`, what was called in the first step with its times."""
        calls = [
            {**dataclasses.asdict(message), "num": num, **self.times_s(message)}
            for message, num in self.calls_per_step.items()
        ]
        return {"kind": self.kind, "calls": calls}

    def times_s(self, message: Message) -> dict[str, float | None]:  # noqa: ARG002
        """Return base_s, what a message takes by itself, and delay_s, what is added to each; None where unmeasured."""
        return {"base_s": None, "delay_s": None}

    @abstractmethod
    def all_gather(self, output: Tensor, given: Tensor, group: dist.ProcessGroup, async_op: bool) -> dist.Work | None:
        """Fill `output` from every rank's `given`, or do what the control does instead."""

    @abstractmethod
    def reduce_scatter(
        self, output: Tensor, given: Tensor, group: dist.ProcessGroup, op: Any, async_op: bool
    ) -> dist.Work | None:
        """Fill `output` from this rank's part of every rank's `given`, or do what the control does instead."""


class NoCommunication(Control):
    """Local copies of the same shapes: the rank's own shard in every place of a gather, its own part of a reduction.

    Copies and not zeros or nothing, since the values decide what a GPU draws. They run where FSDP runs its
    collectives, and are done when the stream is, so nothing has to be waited for beyond it (hence no Work).
    """

    kind = "no_communication"

    def all_gather(
        self,
        output: Tensor,
        given: Tensor,
        group: dist.ProcessGroup,
        async_op: bool,  # noqa: ARG002
    ) -> None:
        """Copy the rank's own shard, which stands in its own place already, into all others."""
        self.num_calls[_gathered(output, group)] += 1
        places, own = output.view(group.size(), -1), group.rank()
        places[:own].copy_(given)
        places[own + 1 :].copy_(given)

    def reduce_scatter(
        self,
        output: Tensor,
        given: Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool,  # noqa: ARG002
    ) -> None:
        """Take the rank's own part for the mean, or so many times it for the sum."""
        self.num_calls[_reduced(given, group)] += 1
        own = given.view(group.size(), -1)[group.rank()]
        torch.mul(own, group.size() if op == dist.ReduceOp.SUM else 1, out=output)


class Delay(Control):
    """The real collectives, each `factor` times its own duration longer while NCCL's kernels spin.

    One rank is late for the call and the others' kernels wait for it, as they do for a slow network; calls of each
    kind take turns, so that every rank waits as often as it can. What a call takes by itself is measured once,
    after the first step; until then nothing is late.
    """

    kind = "delay"

    def __init__(self, factor: float, device: torch.device) -> None:
        super().__init__()
        self.factor, self.device = factor, device
        self.pause: Callable[[float], None] = pause_on(device)
        self.base_s: dict[Message, float] = {}
        self._replays: dict[Message, _Replay] = {}
        self._turns: Counter[str] = Counter()

    def times_s(self, message: Message) -> dict[str, float | None]:
        """Return what a message takes by itself on its slowest rank, and by how much it is made longer."""
        base_s = self.base_s[message]
        return {"base_s": base_s, "delay_s": self.factor * base_s}

    def all_gather(self, output: Tensor, given: Tensor, group: dist.ProcessGroup, async_op: bool) -> dist.Work | None:
        """Gather, one rank late."""
        self._be_late(_gathered(output, group), group, lambda: _gather_again(output, group))
        work: dist.Work | None = _all_gather(output, given, group=group, async_op=async_op)
        return work

    def reduce_scatter(
        self, output: Tensor, given: Tensor, group: dist.ProcessGroup, op: Any, async_op: bool
    ) -> dist.Work | None:
        """Reduce, one rank late."""
        self._be_late(_reduced(given, group), group, lambda: _reduce_again(given, group, op))
        work: dist.Work | None = _reduce_scatter(output, given, op=op, group=group, async_op=async_op)
        return work

    def after_first_step(self) -> None:
        """Measure what each message takes by itself; its slowest rank counts, so that all ranks agree."""
        super().after_first_step()
        if not self.calls_per_step:
            return  # a single rank sends nothing
        medians = [self._uncontended_s(self._replays[message]) for message in self.calls_per_step]
        slowest = torch.tensor(medians, dtype=torch.float64, device=self.device)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        self.base_s = dict(zip(self.calls_per_step, slowest.tolist(), strict=True))

    def _be_late(self, message: Message, group: dist.ProcessGroup, replay: Callable[[], "_Replay"]) -> None:
        """Count the call and, where it is this rank's turn, pause on the stream from which the call is issued."""
        if message not in self._replays:
            self._replays[message] = replay()
        self.num_calls[message] += 1
        turn = self._turns[message.collective]
        self._turns[message.collective] += 1
        if message in self.base_s and turn % group.size() == group.rank():
            self.pause(self.factor * self.base_s[message])

    def _uncontended_s(self, replay: "_Replay") -> float:
        """Return the median seconds of a call that nothing runs beside, on a stream as FSDP's."""
        call = replay()
        with _communication_stream(self.device):
            for _ in range(WARMUP_CALLS):
                call()
            clock = clock_for(self.device)
            if self.device.type == "cuda":
                self.pause(HEAD_START_S)
            for _ in range(MEASURED_CALLS):
                clock.begin()
                call()
                clock.end()
            return statistics.median(clock.laps().lap_s)


@dataclass(frozen=True)
class _Collective:
    """What FSDP asks of the object that takes a collective's place, beside the call itself."""

    control: Control

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.empty(*size, dtype=dtype, device=device)


class _AllGather(_Collective):
    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, async_op: bool = False
    ) -> dist.Work | None:
        return self.control.all_gather(output_tensor, input_tensor, group, async_op)


class _ReduceScatter(_Collective):
    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, op: Any, async_op: bool = False
    ) -> dist.Work | None:
        return self.control.reduce_scatter(output_tensor, input_tensor, group, op, async_op)


def _gathered(output: Tensor, group: dist.ProcessGroup) -> Message:
    return Message(collective="all_gather", message_bytes=output.nbytes, num_ranks=group.size())


def _reduced(given: Tensor, group: dist.ProcessGroup) -> Message:
    return Message(collective="reduce_scatter", message_bytes=given.nbytes, num_ranks=group.size())


# Makes buffers like those of a call, and returns the call on them.
_Replay = Callable[[], Callable[[], object]]


def _gather_again(output: Tensor, group: dist.ProcessGroup) -> _Replay:
    count, dtype, device = output.numel(), output.dtype, output.device  # and not the tensor, which would be kept

    def replay() -> Callable[[], object]:
        gotten = torch.zeros(count, dtype=dtype, device=device)
        given = gotten.view(group.size(), -1)[group.rank()]  # in place, as FSDP gathers
        return lambda: _all_gather(gotten, given, group=group)

    return replay


def _reduce_again(given: Tensor, group: dist.ProcessGroup, op: Any) -> _Replay:
    count, dtype, device = given.numel(), given.dtype, given.device

    def replay() -> Callable[[], object]:
        whole = torch.zeros(count, dtype=dtype, device=device)
        part = torch.empty(count // group.size(), dtype=dtype, device=device)
        return lambda: _reduce_scatter(part, whole, op=op, group=group)

    return replay


@contextmanager
def _communication_stream(device: torch.device) -> Iterator[None]:
    """Issue what is in the block to a stream of high priority, as FSDP's are; a CPU has one stream only."""
    if device.type != "cuda":
        yield
        return
    stream = torch.cuda.Stream(device, priority=-1)  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        yield
    torch.cuda.current_stream(device).wait_stream(stream)
