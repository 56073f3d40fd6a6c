"""The device that is a GPU: plans become dispatches, dispatches wait in an open encoder."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import wgpu_native_py as wgpu

from . import kernels, userkernel
from .device import Array, Device, DeviceInfo, LibraryInfo
from .dtypes import bool_, device_bytes, u32
from .errors import TensaiError
from .gpu_plan import GpuPlan
from .memory import Pool, Storage, size_class
from .operation import Job, Operation, Result, Spec, pack
from .ops.tiles import Pace
from .plan import ReferencePlan
from .program import GpuProgram, recording
from .selfcheck import SelfCheck, Verdict
from .tensor import Tensor
from .tuning import saved_paces

JUNK = 0x47C5C5C7  # no small number in any dtype, and another one when something is added
POISON = 0xFFFFFF00  # and the next ones: NaN, or an integer that is no index
GUARD = 64  # bytes of junk, at least, behind each tensor of a self-check
LOOPS_COUNTED = 1 << 20


class GpuDevice(Device):
    """A GPU, or a software adapter, through wgpu-native."""

    def __init__(self, adapter: wgpu.Adapter, *, checked: bool = False) -> None:
        super().__init__()
        self.native = adapter.open()
        self.lock = self.native.lock
        self.info = device_info(adapter.info)
        self.limits = dict(self.native.limits)
        self.features = frozenset(self.native.features)
        library = self.native.library
        self.library = LibraryInfo(Path(library.path), library.version, library.api)
        self.checked = checked
        self.pool = Pool(self.native, self._relieve)
        self.checks = SelfCheck(self)
        self.program: GpuProgram | None = None
        self._encoder: wgpu.CommandEncoder | None = None
        self._held = 0  # how many batch() blocks are open
        self._guards: dict[int, int] = {}  # what is behind a self-check's tensors, by storage
        self._poisoned = 0  # how many tensors of self-checks, modulo 256
        self._apart = False  # recording beside pending work, whose memory must not be touched
        self._pipelines: dict[tuple[str, int, bool], wgpu.ComputePipeline] = {}
        self._staging: wgpu.Buffer | None = None

    def usable(self) -> None:
        native = self.native  # each call comes here
        if recording or self._closed or native.lost or native.handle is None:
            super().usable()
            native.usable()

    # Recording -----------------------------------------------------------------------------

    def encoder(self) -> wgpu.CommandEncoder:
        """The encoder that takes the next dispatch. The caller holds the lock."""
        if self._encoder is None:
            self.pool.recording = True
            self._encoder = wgpu.CommandEncoder(self.native)
        return self._encoder

    def replayed(self, enough: int) -> None:
        """Called after a replay: has it submitted aside once that many dispatches are pending."""
        encoder = self._encoder
        if encoder is not None and encoder.count >= enough and not self._held:
            with wgpu.uninterrupted():
                self._take_encoder()
                encoder.submit_aside()

    def submit(self) -> None:
        """Submit what is recorded, without waiting for it."""
        with self.lock, wgpu.uninterrupted():
            encoder = self._take_encoder()
            # At the end of the process the collector may come to the native device first.
            if encoder is not None and self.native.handle is not None:
                encoder.submit()
                self.native.poll()

    def _take_encoder(self) -> wgpu.CommandEncoder | None:
        encoder, self._encoder = self._encoder, None
        if encoder is not None and not self._apart:
            self.pool.turn += 1
            self.pool.recording = False
        return encoder

    @contextmanager
    def batch(self) -> Iterator[None]:
        with self.lock:
            self._held += 1
        try:
            yield
        finally:
            with self.lock:
                self._held -= 1
                if not self._held:
                    self.submit()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Record and submit on its own, leaving pending work pending (for self-checks)."""
        with self.lock:
            before = self._encoder, self._held, self._apart, self.program
            reserve, self.pool.recording_into = self.pool.recording_into, None
            self._guards = {}
            self._encoder, self._held, self._apart, self.program = None, 0, True, None
            try:
                yield
            finally:
                self._encoder, self._held, self._apart, self.program = before
                self.pool.recording_into = reserve
                self.pool.recording = self._apart or self._encoder is not None

    def synchronize(self) -> None:
        self.usable()
        self.submit()
        self.native.poll(wait=True)
        self.native.check("while it worked")

    def _relieve(self) -> None:
        if not self._apart:
            self.submit()
        self.native.poll(wait=True)

    # Memory --------------------------------------------------------------------------------

    def take(self, nbytes: int) -> Storage:
        """Memory that the next recorded dispatch may write."""
        # A kernel that writes nothing must not find the last one's right answer here.
        return self._guarded(nbytes, JUNK) if self._apart else self.pool.take(nbytes)

    def _guarded(self, nbytes: int, word: int) -> Storage:
        """Memory for a self-check, full of one word, with some of it behind the tensor."""
        storage = self.pool.take(nbytes + GUARD, unread=True)
        self._guards[id(storage)] = word
        self._write(storage, np.full(storage.buffer.size // 4, word, np.uint32))
        return storage

    def allocate(self, spec: Spec) -> Storage:
        with self.lock:
            return self.take(device_bytes(spec.size, spec.dtype))

    def store(self, array: Array) -> Storage:
        data = array.astype(np.uint32) if array.dtype == bool_ else array
        self.usable()
        with self.lock:
            nbytes = device_bytes(array.size, array.dtype)
            if self._apart:
                # Each another one, so that copying one tensor's to another's shows.
                self._poisoned = (self._poisoned + 1) % 256
                storage = self._guarded(nbytes, POISON + self._poisoned)
            else:
                storage = self.pool.take(nbytes, unread=True)
            self._write(storage, data)
            if self.program is not None:
                self.program.pin(storage)
            return storage

    def overwrite(self, storage: Storage, array: Array) -> None:
        data = array.astype(np.uint32) if array.dtype == bool_ else array
        with self.lock:
            storage.version += 1
            self.submit()  # a write overtakes work that is only recorded
            self._write(storage, data)

    def assign(self, target: Tensor, source: Tensor) -> None:
        size = device_bytes(target.size, target.dtype)
        with self.lock:
            target.storage.version += 1
            if size:
                self.encoder().copy(source.storage.buffer, target.storage.buffer, size)
            if size and self.program is not None:
                self.program.copy(source.storage, target.storage, size)

    def fetch(self, tensor: Tensor, out: Array | None = None) -> Array:
        storage = tensor.storage
        spec = tensor.spec
        raw_dtype = np.dtype(np.uint32) if spec.dtype == bool_ else spec.dtype
        raw = out if out is not None and spec.dtype != bool_ else np.empty(spec.shape, raw_dtype)
        self.usable()
        with self.lock:
            if raw.size:
                self._read(storage.buffer, raw)
        if spec.dtype != bool_:
            return raw
        if out is None:
            return raw.astype(np.bool_)
        np.not_equal(raw, 0, out=out)
        return out

    def fetch_whole(self, tensor: Tensor) -> tuple[Array, str]:
        """A self-check's tensor, and where a kernel wrote beyond its end ("" if nowhere)."""
        spec, buffer = tensor.spec, tensor.storage.buffer
        words = np.empty(buffer.size // 4, np.uint32)
        with self.lock:
            self._read(buffer, words)
        # Kernels may write whole vectors of 16 bytes.
        end = -(-device_bytes(spec.size, spec.dtype) // 16) * 4
        written = np.flatnonzero(words[end:] != self._guards[id(tensor.storage)])
        beyond = f"wrote {4 * int(written[0])} bytes beyond its result" if written.size else ""
        raw = words if spec.dtype == bool_ else words.view(spec.dtype)  # 1 is true and no other
        return raw[: spec.size].reshape(spec.shape), beyond

    def _read(self, buffer: wgpu.Buffer, target: Array) -> None:
        flat = target.reshape(-1).view(np.uint8).data
        if flat.nbytes > wgpu.LARGE:
            self.submit()
            transfers = self.native.transfers
            self.pool.with_room(flat.nbytes, lambda: transfers.read(buffer, flat))
            return
        size = flat.nbytes + -flat.nbytes % 4
        with wgpu.uninterrupted():
            staging = self._staging
            if staging is None or staging.size < size:
                self._staging = None  # a small one only holds memory
                staging = self._new_staging(size_class(size))
            # Taken until it is known to be unmapped again: a submit with it would abort.
            self._staging = None
            self.encoder().copy(buffer, staging, size)
            self.submit()
            staging.read_into(flat, flat.nbytes)
            self._staging = staging

    def _new_staging(self, size: int) -> wgpu.Buffer:
        return self.pool.with_room(size, lambda: self.native.create_buffer(size, "read"))

    def _write(self, storage: Storage, data: Any) -> None:
        buffer = storage.buffer
        size = memoryview(data).nbytes
        if size:  # the library stages what is written in memory of its own
            self.pool.with_room(size, lambda: self.native.queue.write(buffer, data))

    def memory(self) -> dict[str, int]:
        pool = self.pool
        with self.lock:
            pool.collect()
        return {"in_use": pool.in_use, "pooled": pool.pooled, "peak": pool.peak}

    # Plans ---------------------------------------------------------------------------------

    def plan(self, operation: Operation, arguments: dict[str, Any]) -> Any:
        self.usable()
        specs = [arguments[name] for name in operation.tensors if arguments[name] is not None]
        result, _ = operation.job(arguments)
        written = operation.written(arguments)
        if all(spec.size == 0 for spec in (*result.outputs, *(specs[place] for place in written))):
            return GpuPlan(self, [], specs, result, [], written)
        if any(spec.size == 0 for spec in specs):
            return ReferencePlan(self, operation, arguments, result)
        job = self.checks.choose(operation, arguments)
        if job is None:
            return ReferencePlan(self, operation, arguments, result)
        return self.compile(job, specs, result, written)

    def compile(
        self, job: Job, specs: Sequence[Spec], result: Result, written: tuple[int, ...] = ()
    ) -> GpuPlan:
        """A plan of a job's steps; `written` are the inputs that they write."""
        steps = []
        with self.lock:
            for step in job.steps:
                pipeline = self.pipeline(step.source, len(step.params), step.label, self.checked)
                dispatch = self.pool.with_room(
                    len(step.params), functools.partial(pipeline.dispatch, step.groups, step.params)
                )
                steps.append((dispatch, step.slots))
        return GpuPlan(self, steps, specs, result, job.scratch, written)

    def _new_program(self) -> GpuProgram:
        return GpuProgram(self)

    def pipeline(
        self, source: str, params_size: int, label: str, checked: bool
    ) -> wgpu.ComputePipeline:
        """A source compiled once."""
        key = (source, params_size, checked)
        pipeline = self._pipelines.get(key)
        if pipeline is None:
            pipeline = self.native.create_pipeline(
                source, params_size=params_size, label=label, checked=checked
            )
            self._pipelines[key] = pipeline
        return pipeline

    @functools.cached_property
    def paces(self) -> dict[str, Pace]:
        """What `tensai tune` has measured here, by the names of kernels."""
        return saved_paces(self)

    @functools.cached_property
    def loop_limit(self) -> int:
        """After how many loop iterations this driver cuts an invocation off, without a word.

        Found out by counting: llvmpipe stops at 65,535, over all loops of an invocation.
        """
        with self.aside():
            storage = self.take(4)
            pipeline = self.pipeline(kernels.source("count"), 4, "count", checked=False)
            dispatch = pipeline.dispatch((1, 1, 1), pack(LOOPS_COUNTED))
            self.encoder().dispatch(dispatch, [storage.buffer])
            counted = int(self.fetch(Tensor(self, storage, Spec((), u32))))
        return counted if counted < LOOPS_COUNTED else 1 << 62

    def self_check(self) -> dict[str, Verdict]:
        self.usable()
        return self.checks.everything()

    def run(
        self,
        wgsl: str,
        inputs: Sequence[Any] = (),
        outputs: Sequence[Any] = (),
        workgroups: int | tuple[int, ...] = 1,
        params: Any = None,
    ) -> list[Tensor]:
        """Run your own WGSL kernel, entry point `main`; returns the output tensors.

        Bindings 0, 1, ... of group 0 are `inputs` (tensors or arrays) followed by `outputs`
        (tensors to write, or shapes, or (shape, dtype) pairs of new ones). `params` (bytes, or
        numbers packed to four bytes each: ints as i32/u32, floats as f32) is reached as
        `var<params> p: MyStruct;`, or as a `var<uniform>` at the binding after the last output.
        On a device, float16 is packed two to a word and bool is a u32 for each element.

        Raises KernelError with the compiler's message, or when bindings and tensors do not match.
        """
        self.usable()
        return userkernel.run(self, wgsl, inputs, outputs, workgroups, params)

    def close(self) -> None:
        with self.lock:
            if self._closed:
                return
            with contextlib.suppress(TensaiError):
                # Submitted, not dropped: v22 keeps a device alive for what is recorded and dropped.
                self.submit()
                self.native.poll(wait=True)
            self._encoder = None
            super().close()
            self._staging = None
            self._pipelines.clear()
            self.pool.keep = 0
            self.pool.trim()
            self.native.close()

    def __del__(self) -> None:
        # v22 keeps a device alive for what is recorded and never submitted.
        recorded = getattr(self, "_encoder", None) is not None  # its making may have failed
        if recorded and self.native.handle is not None and not sys.is_finalizing():
            with contextlib.suppress(TensaiError):
                self.submit()


def device_info(info: wgpu.AdapterInfo) -> DeviceInfo:
    """tensai's description of an adapter."""
    return DeviceInfo(
        name=f"{info.name} ({info.type})",
        vendor=info.vendor or f"0x{info.vendor_id:04x}",
        device=info.name,
        driver=info.driver,
        backend=info.backend,
        type=info.type,
        software=info.type == "software",
    )
