"""Two controls of what communication costs: steps without any, and steps with each collective made longer.

Both take the place of FSDP's all-gather and reduce-scatter, on the streams on which FSDP runs them. An ordinary cell
has no control, and FSDP is left as it is.
"""

import dataclasses
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn

from falloff.bench.collective_calls import all_gather, reduce_scatter
from falloff.bench.delay import pause_on
from falloff.bench.uncontended import Replay, gather_again, reduce_again, uncontended_s
from falloff.spec.cell import TrainCell


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

    The late rank is late from where the call could begin, which is once the group's call before has ended: NCCL runs
    the calls of a communicator one after the other, whatever streams they are issued to (a launch waits for the
    communicator's own stream, NCCL's ncclLaunchPrepare), and a pause beside another call would hide behind it.
    """

    kind = "delay"

    def __init__(self, factor: float, device: torch.device) -> None:
        super().__init__()
        self.factor, self.device = factor, device
        self.pause: Callable[[float], None] = pause_on(device)
        self.base_s: dict[Message, float] = {}
        self._replays: dict[Message, Replay] = {}
        self._turns: Counter[str] = Counter()
        self._ends: dict[dist.ProcessGroup, Callable[[], object]] = {}

    def times_s(self, message: Message) -> dict[str, float | None]:
        """Return what a message takes by itself on its slowest rank, and by how much it is made longer."""
        base_s = self.base_s[message]
        return {"base_s": base_s, "delay_s": self.factor * base_s}

    def all_gather(self, output: Tensor, given: Tensor, group: dist.ProcessGroup, async_op: bool) -> dist.Work | None:
        """Gather, one rank late."""
        self._be_late(_gathered(output, group), group, lambda: gather_again(output, group))
        work: dist.Work | None = all_gather(output, given, group=group, async_op=async_op)
        self._ends[group] = self._end_of(work)
        return work

    def reduce_scatter(
        self, output: Tensor, given: Tensor, group: dist.ProcessGroup, op: Any, async_op: bool
    ) -> dist.Work | None:
        """Reduce, one rank late."""
        self._be_late(_reduced(given, group), group, lambda: reduce_again(given, group, op))
        work: dist.Work | None = reduce_scatter(output, given, op=op, group=group, async_op=async_op)
        self._ends[group] = self._end_of(work)
        return work

    def after_first_step(self) -> None:
        """Measure what each message takes by itself; its slowest rank counts, so that all ranks agree."""
        super().after_first_step()
        if not self.calls_per_step:
            return  # a single rank sends nothing
        medians = [uncontended_s(self._replays[message], self.device) for message in self.calls_per_step]
        slowest = torch.tensor(medians, dtype=torch.float64, device=self.device)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        self.base_s = dict(zip(self.calls_per_step, slowest.tolist(), strict=True))

    def _be_late(self, message: Message, group: dist.ProcessGroup, replay: Callable[[], Replay]) -> None:
        """Count the call and, where it is this rank's turn, pause on the stream from which the call is issued."""
        if message not in self._replays:
            self._replays[message] = replay()
        self.num_calls[message] += 1
        turn = self._turns[message.collective]
        self._turns[message.collective] += 1
        if message in self.base_s and turn % group.size() == group.rank():
            if group in self._ends:
                self._ends[group]()
            self.pause(self.factor * self.base_s[message])

    def _end_of(self, work: dist.Work | None) -> Callable[[], object]:
        """Return what makes the current stream wait for the call just issued to end."""
        if work is not None:
            return work.wait
        if self.device.type != "cuda":
            return lambda: None  # it has ended
        event = torch.cuda.current_stream(self.device).record_event()
        return lambda: torch.cuda.current_stream(self.device).wait_event(event)


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
