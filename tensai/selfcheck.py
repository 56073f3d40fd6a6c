"""No kernel's first result is trusted: its probe runs on the device and must match NumPy.

What is checked is a source, as compiled for one device: every probe of the operation that uses it
must come out right. A refused pipeline, a device error and a wrong result mean the same: the
source is not used here, the operation's next kernel is tried, and at last NumPy.
"""

from __future__ import annotations

import hashlib
import logging
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import DeviceLostError, KernelError, LimitExceededError, ValidationError
from .operation import OPERATIONS, Job, Kernel, Operation, Probe, Spec, fold, fold_early
from .tensor import Tensor
from .verdicts import VerdictStore

if TYPE_CHECKING:
    from .gpu import GpuDevice

logger = logging.getLogger("tensai")

SURE_LOOPS = 40_000  # iterations that every driver makes

MODES = ("first-use", "always", "off")

# What came of a kernel's probe in one folding: "" where it was right.
Ran = dict[tuple[int, int, Callable[[int], tuple[int, int, int]]], str]


@dataclass(frozen=True)
class Verdict:
    """What a self-check found about one operation on one device.

    `ok`: every probe has a kernel that is right; otherwise the operation runs on the CPU there.
    `kernels`: those that are right. `failures`: one line for each that is not, with the kernel,
    what it gave and what was expected.
    """

    operation: str
    ok: bool
    kernels: tuple[str, ...]
    failures: tuple[str, ...]


def mode() -> str:
    """TENSAI_SELF_CHECK, checked."""
    chosen = os.environ.get("TENSAI_SELF_CHECK") or "first-use"
    if chosen not in MODES:
        raise ValueError(f"TENSAI_SELF_CHECK is {chosen!r}; it can be {', '.join(MODES)}")
    return chosen


class SelfCheck:
    """The verdicts of one device."""

    def __init__(self, device: GpuDevice) -> None:
        self.device = device
        self.mode = mode()
        self._verdicts: dict[str, str] = {}  # key of a source -> "" or why not
        self._store = VerdictStore(device) if self.mode == "first-use" else None
        self._warned: set[str] = set()

    def choose(self, operation: Operation, arguments: dict[str, Any]) -> Job | None:
        """The job of the first kernel that fits these arguments and is right on this device."""
        failures = []
        fitting = []
        for kernel in operation.kernels:
            job = self._fitting(operation, kernel, arguments)
            if job is not None:
                fitting.append((not kernel.worth(job), kernel.cost(job), kernel, job))
        for *_, kernel, job in sorted(fitting, key=lambda item: item[:2]):
            if not self._planned(kernel, job):
                continue
            reason = self._reason(operation, kernel, job)
            if not reason:
                return job
            failures.append(reason)
            logger.info("%s", reason)
        if operation.name not in self._warned:
            self._warned.add(operation.name)
            why = "; ".join(failures) or "no kernel of it fits these shapes on this device"
            logger.warning(
                "%s runs on the CPU instead of %s: %s", operation.name, self.device.name, why
            )
        return None

    def only(self, operation: Operation, kernel: Kernel, arguments: dict[str, Any]) -> Job | None:
        """The job of one kernel, or None where it does not fit or is not right."""
        job = self._job(operation, kernel, arguments)
        return None if job is None or self._reason(operation, kernel, job) else job

    def everything(self) -> dict[str, Verdict]:
        """Check every kernel of every operation."""
        return {name: self.check(operation) for name, operation in OPERATIONS.items()}

    def check(self, operation: Operation) -> Verdict:
        """Check every kernel of one operation that this device can run, whatever is known."""
        found_now: dict[str, str] = {}
        ran: Ran = {}
        covered = True
        right: list[str] = []
        failures: list[str] = []
        for probe in operation.probes():
            arguments = probe_arguments(operation, probe)
            found = False
            for kernel in operation.kernels:
                job = self._job(operation, kernel, arguments)
                if job is None:
                    continue
                reason = self._reason(operation, kernel, job, found_now, ran)
                if reason:
                    if reason not in failures:
                        failures.append(reason)
                    continue
                found = True
                if kernel.name not in right:
                    right.append(kernel.name)
            covered = covered and found
        return Verdict(operation.name, covered, tuple(right), tuple(failures))

    def _job(
        self,
        operation: Operation,
        kernel: Kernel,
        arguments: dict[str, Any],
        folded: Callable[[int], tuple[int, int, int]] = fold,
    ) -> Job | None:
        """The planned job of a kernel, or None where it can't be used."""
        job = self._fitting(operation, kernel, arguments)
        if job is None:
            return None
        job.fold = folded
        return job if self._planned(kernel, job) else None

    def _fitting(
        self, operation: Operation, kernel: Kernel, arguments: dict[str, Any]
    ) -> Job | None:
        """A job without steps yet, which cost some time, or None where the kernel does not fit."""
        if not kernel.needs <= self.device.features:
            return None
        _, job = operation.job(arguments)
        job.device = self.device
        return job if kernel.fits(job) else None

    def _planned(self, kernel: Kernel, job: Job) -> bool:
        """Fill a job with steps; whether the driver makes as many loop iterations as they need."""
        kernel.plan(job)
        return job.loops < SURE_LOOPS or job.loops < self.device.loop_limit

    def _reason(
        self,
        operation: Operation,
        kernel: Kernel,
        job: Job,
        known: dict[str, str] | None = None,
        ran: Ran | None = None,
    ) -> str:
        """Empty if every source of the job may be used, else why not.

        `known` are the verdicts that count, by default those of this process and of the cache,
        or none at all where checks are off. What probes that already `ran` said is not asked again.
        """
        if known is None and self.mode == "off":
            return ""
        ran = {} if ran is None else ran
        for source in dict.fromkeys(step.source for step in job.steps):
            text = f"{operation.name}\0{kernel.name}\0{int(self.device.checked)}\0{source}"
            key = hashlib.sha256(text.encode()).hexdigest()[:32]
            reason = (self._verdicts if known is None else known).get(key)
            if reason is None and known is None and self._store is not None:
                reason = self._store.get(key)
            if reason is None:
                reason = self._probe(operation, kernel, source, ran)
                if self._store is not None:
                    self._store.put(key, reason)
            self._verdicts[key] = reason
            if known is not None:
                known[key] = reason
            if reason:
                return reason
        return ""

    def uses(self, operation: Operation, kernel: Kernel, source: str) -> list[tuple[Probe, Job]]:
        """The probes of a source, the largest of them with its workgroups folded early."""
        found = []
        sizes = []
        for probe in operation.probes():
            job = self._job(operation, kernel, probe_arguments(operation, probe))
            own = [step for step in job.steps if step.source == source] if job else []
            if job is not None and own:
                found.append((probe, job))
                sizes.append(sum(math.prod(step.groups) for step in own))
        if not found:
            return []
        place = sizes.index(max(sizes))
        probe, job = found[place]
        early = self._job(operation, kernel, probe_arguments(operation, probe), fold_early)
        if early is None or all(
            a.groups == b.groups for a, b in zip(early.steps, job.steps, strict=True)
        ):
            return found
        del sizes[place]
        if max(sizes, default=1) > 1:  # another probe takes several workgroups as they are
            found[place] = probe, early
        else:
            found.append((probe, early))
        return found

    def _probe(self, operation: Operation, kernel: Kernel, source: str, ran: Ran) -> str:
        """Run the operation's probes that use `source`; "" if all are right."""
        what = f"kernel {kernel.name} of {operation.name}"
        uses = self.uses(operation, kernel, source)
        for probe, job in uses:
            key = id(kernel), id(probe), job.fold
            if key not in ran:
                try:
                    ran[key] = self._run(operation, probe, job)
                except DeviceLostError:
                    raise
                except (KernelError, ValidationError, LimitExceededError) as error:
                    ran[key] = f"was refused: {error}"
            if ran[key]:
                return f"{what} {ran[key]}"
        return "" if uses else f"{what} has no probe for this use"

    def _run(self, operation: Operation, probe: Probe, job: Job) -> str:
        arguments = probe_arguments(operation, probe)
        result, _ = operation.job(arguments)
        given = [array for array in probe.inputs if array is not None]
        arrays = [array.astype(dtype) for array, dtype in zip(given, result.cast, strict=True)]
        expected = operation.compute(arguments, result, arrays)
        device = self.device
        with device.aside():
            tensors = [
                Tensor(device, device.store(array), Spec(array.shape, array.dtype))
                for array in arrays
            ]
            written = operation.written(arguments)
            plan = device.compile(job, [t.spec for t in tensors], result, written)
            plan.finish = None
            made = plan.run(tensors)
            outputs = made if isinstance(made, tuple) else (made,)
            outputs = outputs[: len(result.outputs)]
            outputs += tuple(tensors[place] for place in written)
            got = [device.fetch_whole(tensor) for tensor in outputs]
        for (one, beyond), other in zip(got, expected, strict=True):
            wrong = difference(one, other, probe.tolerance, floor=probe.floor) or beyond
            if wrong:
                shapes = ", ".join(str(array.shape) for array in given)
                return f"{wrong} (probe of {shapes})"
        return ""


def probe_arguments(operation: Operation, probe: Probe) -> dict[str, Any]:
    """A probe as the arguments of a rule: specs for tensors, attributes as they are."""
    specs = [array if array is None else Spec(array.shape, array.dtype) for array in probe.inputs]
    named = dict(zip(operation.tensors, specs, strict=False))
    bound = operation.signature.bind(**named, **probe.arguments)
    bound.apply_defaults()
    return dict(bound.arguments)


def difference(
    got: np.ndarray[Any, Any],
    expected: np.ndarray[Any, Any],
    tolerance: float,
    *,
    floor: float | None = None,
) -> str:
    """Empty if two arrays agree, NaN for NaN, else where they first differ.

    `tolerance` is relative to the largest finite element, or with a `floor` to each.
    """
    with np.errstate(invalid="ignore"):  # NumPy warns about some NaNs here
        a = got.astype(np.float64).reshape(-1)
        b = expected.astype(np.float64).reshape(-1)
    finite = np.isfinite(b)
    scale = float(np.abs(b[finite]).max()) if finite.any() else 0.0
    with np.errstate(invalid="ignore"):
        allowed = tolerance * scale if floor is None else tolerance * np.abs(b) + floor
        close = np.abs(a - b) <= allowed
    same = (a == b) | (np.isnan(a) & np.isnan(b)) | (close & finite)
    if same.all():
        return ""
    index = int(np.argmin(same))
    gave, wanted = got.reshape(-1)[index], expected.reshape(-1)[index]
    return f"gave {gave} where {wanted} was expected, at element {index}"
