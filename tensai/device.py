"""Devices: what tensors live on. gpu.py and host.py are the two kinds that tensai.open() gives."""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from . import ops
from .dtypes import DType, as_dtype, f32, host_array, i32, u32
from .errors import DeviceLostError, ShapeError
from .indices import checked
from .operation import Operation, Result, Spec
from .program import Program, elsewhere, recording
from .quantized import QuantizedTensor, upload_packed, upload_quantized
from .tensor import Tensor

if TYPE_CHECKING:
    from .selfcheck import Verdict

Array = np.ndarray[Any, Any]
PLANS_KEPT = 4096
SCALARS_KEPT = 256


@dataclass(frozen=True)
class DeviceInfo:
    """What a device says of itself."""

    name: str
    vendor: str
    device: str
    driver: str
    backend: str  # "Vulkan", "Metal", "D3D12" or "CPU"
    type: str  # "discrete", "integrated", "software", "unknown" or "cpu"
    software: bool


@dataclass(frozen=True)
class LibraryInfo:
    """The wgpu-native library that a device was opened with."""

    path: Path
    version: str
    api: str


class Device(ABC):
    """Holds tensors and runs operations on them.

    Also a context manager: `with tensai.open() as dev: ...` closes it at the end.
    """

    info: DeviceInfo
    limits: dict[str, int]
    features: frozenset[str]
    library: LibraryInfo | None

    def __init__(self) -> None:
        self.lock: Any = threading.RLock()
        self.program: Program | None = None  # what is being recorded
        self.plans: dict[Any, Any] = {}
        self._scalars: OrderedDict[Any, Tensor] = OrderedDict()
        self._closed = False

    # What each kind of device must do --------------------------------------------------------

    @abstractmethod
    def store(self, array: Array) -> Any:
        """Storage that holds a contiguous array of one of tensai's dtypes."""

    @abstractmethod
    def fetch(self, tensor: Tensor, out: Array | None = None) -> Array:
        """The elements of a tensor, after the work that they depend on."""

    def view(self, tensor: Tensor) -> Array:
        """As fetch(), but possibly the elements themselves instead of a copy: only to be read."""
        return self.fetch(tensor)

    @abstractmethod
    def allocate(self, spec: Spec) -> Any:
        """Storage with unspecified contents."""

    @abstractmethod
    def overwrite(self, storage: Any, array: Array) -> None:
        """Replace what `storage` holds with an array of its size, after all work before."""

    @abstractmethod
    def assign(self, target: Tensor, source: Tensor) -> None:
        """Copy the elements of `source` into `target`, of the same shape and dtype."""

    @abstractmethod
    def plan(self, operation: Operation, arguments: dict[str, Any]) -> Any:
        """Something whose run(tensors) computes the operation for these shapes."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until all work is done."""

    @abstractmethod
    def memory(self) -> dict[str, int]:
        """Bytes "in_use" by tensors, "pooled" for new ones, and the "peak" in use."""

    @abstractmethod
    def self_check(self) -> dict[str, Verdict]:
        """Check every operation on this device against its NumPy reference."""

    @abstractmethod
    def run(
        self,
        wgsl: str,
        inputs: Sequence[Any] = (),
        outputs: Sequence[Any] = (),
        workgroups: int | tuple[int, ...] = 1,
        params: Any = None,
    ) -> Any:
        """Run your own WGSL kernel (see GpuDevice.run)."""

    # What every device does alike ------------------------------------------------------------

    @property
    def name(self) -> str:
        """Like "AMD Radeon 780M (integrated)"."""
        return self.info.name

    def __repr__(self) -> str:
        return f"<tensai device {self.name}, {self.info.backend}>"

    def usable(self) -> None:
        """Called before any work: raises DeviceLostError once the device is closed."""
        if recording:
            elsewhere(self)
        if self._closed:
            raise DeviceLostError(f"{self.name} was closed; tensai.open() gives a new device")

    def upload(self, array: Any, dtype: Any = None) -> Tensor:
        """A tensor with the elements of anything that numpy.asarray takes.

        float64 becomes float32, and integers of other widths int32 or uint32 (OverflowError for a
        value that does not fit); `dtype` asks for another of tensai's dtypes.
        """
        self.usable()
        if isinstance(array, Tensor):
            array = array.download()
        converted = host_array(array, dtype)
        if self.program is not None:
            self.program.fixed("an array or a number was uploaded while it was recorded")
        return Tensor(self, self.store(converted), Spec(converted.shape, converted.dtype))

    def upload_q8(self, w: Any, group: int | None = None) -> QuantizedTensor:
        """A matrix (k, n) as int8, a scale for each column or for each `group` rows of one.

        `w` is an array, or what tensai.quantize_q8 made of one; `x @ result` multiplies with it.
        """
        self.usable()
        return upload_quantized(self, "q8", w, group)

    def upload_q4(self, w: Any, group: int | None = 64) -> QuantizedTensor:
        """A matrix (k, n) as int4, a scale for each `group` rows of a column.

        `w` is an array, or what tensai.quantize_q4 made of one; `x @ result` multiplies with it.
        """
        self.usable()
        return upload_quantized(self, "q4", w, group)

    def upload_gguf(self, raw: Any, shape: tuple[int, int], kind: str) -> QuantizedTensor:
        """The blocks of a GGUF file's matrix of `shape` (n, k), kept packed; the result is (k, n).

        `raw` holds exactly its bytes: bytes, an array or a memory map. `kind` is Q8_0, Q4_0, Q4_1,
        Q4_K, Q5_K, Q6_K, F16, BF16 or F32. Raises ShapeError when the bytes are not as many as
        that, or k is not whole blocks; DTypeError for another kind.
        """
        self.usable()
        return upload_packed(self, raw, shape, kind)

    def empty(self, shape: int | Sequence[int], dtype: Any = f32) -> Tensor:
        """A tensor with unspecified elements."""
        self.usable()
        spec = Spec(_shape(shape), as_dtype(dtype))
        return Tensor(self, self.allocate(spec), spec)

    def full(self, shape: int | Sequence[int], value: Any, dtype: Any = f32) -> Tensor:
        """A tensor with every element `value`."""
        wanted = _shape(shape)
        single = self.upload(np.asarray(value), dtype)
        return ops.broadcast_to(single, wanted)

    def zeros(self, shape: int | Sequence[int], dtype: Any = f32) -> Tensor:
        """A tensor of zeros."""
        return self.full(shape, 0, dtype)

    def ones(self, shape: int | Sequence[int], dtype: Any = f32) -> Tensor:
        """A tensor of ones."""
        return self.full(shape, 1, dtype)

    def operand(self, value: Any, like: Tensor) -> Tensor:
        """A number or array as a tensor that can meet `like`.

        A Python number takes the dtype of `like` where it fits, as in NumPy: an integer does not
        make a float tensor anything else, a float makes an integer tensor float32.
        """
        if isinstance(value, Tensor):
            return value
        if type(value) in (bool, int, float):  # NumPy's scalars have a dtype of their own
            return self._scalar(value, like)
        return self.upload(value)

    def _scalar(self, value: float, like: Tensor) -> Tensor:
        kind = like.dtype.kind
        if isinstance(value, bool):
            dtype = np.dtype(np.bool_) if kind == "b" else like.dtype
        elif isinstance(value, int):
            dtype = i32 if kind == "b" else like.dtype
        else:
            dtype = like.dtype if kind == "f" else f32
        return self.constant(value, dtype)

    def constant(self, value: float, dtype: DType) -> Tensor:
        """A number as a 0-d tensor, kept for the next time."""
        key = (type(value), value, math.copysign(1.0, value), dtype)  # 0.0 == -0.0
        tensor = self._scalars.get(key)
        if tensor is None or tensor._storage is None:
            if isinstance(value, int) and dtype in (i32, u32):
                limits = np.iinfo(np.int32 if dtype == i32 else np.uint32)
                if not limits.min <= value <= limits.max:
                    raise OverflowError(f"Python integer {value} is out of bounds for {dtype}")
            with np.errstate(over="ignore"):
                tensor = self.upload(np.asarray(value, dtype=dtype))
            self._scalars[key] = tensor
            if len(self._scalars) > SCALARS_KEPT:
                self._scalars.popitem(last=False)
        return tensor

    def matmul(self, x: Any, y: Any) -> Array:
        """numpy.matmul of host arrays on this device: upload, multiply, download."""
        with self._matrices(x) as a, self._matrices(y) as b, ops.matmul(a, b) as product:
            return product.download()

    def _matrices(self, array: Any) -> Tensor:
        """An array uploaded; a transposed one as it lies in memory, and transposed here."""
        if isinstance(array, np.ndarray) and array.ndim > 1 and not array.flags.c_contiguous:
            across = array.swapaxes(-1, -2)
            if across.flags.c_contiguous:  # the host would take much longer to turn it
                with self.upload(across) as turned:
                    return ops.permute(
                        turned, (*range(array.ndim - 2), array.ndim - 1, array.ndim - 2)
                    )
        return self.upload(array)

    def embed(self, table: Tensor | QuantizedTensor, indices: Any) -> Tensor:
        """Rows of `table` (rows, dim) at integer `indices` of any shape: (*indices.shape, dim).

        Of a packed matrix (k, n), its n rows of k elements as they are stored.
        Indices from the host are checked and raise IndexError when out of range; indices that are
        already a tensor are not, and give rows of NaN there.
        """
        packed = isinstance(table, QuantizedTensor)
        rows = table.shape[1 if packed else 0] if table.shape else 0
        indices = checked(self, "embed", indices, rows, f"{rows} rows")
        if isinstance(table, QuantizedTensor):
            return table.rows(indices)
        return ops.embed(table, indices)

    def embed_grad(self, indices: Any, grad: Any, rows: int) -> Tensor:
        """Rows of `grad` (*indices.shape, dim) added up by index: (rows, dim), float32.

        Indices from the host are checked and raise IndexError when out of range; those that are
        already a tensor add nothing there.
        """
        if not isinstance(grad, Tensor):
            grad = self.upload(grad)
        return ops.embed_grad(
            checked(self, "embed_grad", indices, rows, f"{rows} rows"), grad, rows
        )

    def concat(self, tensors: Sequence[Any], axis: int = 0) -> Tensor:
        """The tensors (or arrays) one after the other along an axis, as numpy.concatenate."""
        return ops.joining.concat(self, tensors, axis)

    def where(self, condition: Any, a: Any, b: Any) -> Tensor:
        """Elements of `a` where `condition` is true, else of `b`; shapes broadcast."""
        like = next((value for value in (a, b, condition) if isinstance(value, Tensor)), None)
        if like is None:
            a = like = self.upload(a)
        return ops.where(
            self.operand(condition, like), self.operand(a, like), self.operand(b, like)
        )

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Hold the operations inside to one submission, where nothing is downloaded meanwhile."""
        yield

    @contextmanager
    def record(self) -> Iterator[Program]:
        """Run the operations inside and keep them: `program.replay()` runs them again.

        A replay works on the same memory: write other values into the tensors that the block read
        (in place), replay, and read the tensors that it made. Everything that the program uses
        stays alive with it. Downloads and uploads inside happen once and are not part of it; sizes
        and plain numbers are fixed, so what changes between replays belongs in tensors. Other
        threads that use this device wait until the block ends, so the block must not wait for them.
        """
        self.usable()
        with self.lock:
            if self.program is not None:
                raise RuntimeError("a program is being recorded already; end its block first")
            self.program = program = self._new_program()
            try:
                recording.append(program)
                yield program
            finally:
                if program in recording:  # unless it was interrupted before
                    recording.remove(program)
                self.program = None
                program.finish()

    def _new_program(self) -> Program:
        return Program(self)

    def remember(self, key: Any, plan: Any) -> None:
        """Keep a plan for the next call of the same shapes."""
        if len(self.plans) >= PLANS_KEPT:
            for old in list(self.plans)[: PLANS_KEPT // 4]:
                self.plans.pop(old, None)  # another thread may have been here
        self.plans[key] = plan

    def close(self) -> None:
        """Let go of the device. Tensors on it can't be used afterwards."""
        self._closed = True
        self.plans.clear()
        self._scalars.clear()

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _shape(shape: int | Sequence[int]) -> tuple[int, ...]:
    try:
        lengths = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    except TypeError:
        lengths = (None,)  # type: ignore[assignment]
    if any(not isinstance(length, (int, np.integer)) or length < 0 for length in lengths):
        raise ShapeError(f"expected a shape of lengths from 0 up, but got {shape!r}")
    return tuple(int(length) for length in lengths)


def cast_inputs(inputs: Sequence[Tensor], result: Result) -> list[Tensor]:
    """The inputs, converted to the dtypes that the rule asks for."""
    return [
        tensor if tensor.dtype == wanted else ops.astype(tensor, wanted)
        for tensor, wanted in zip(inputs, result.cast, strict=True)
    ]


def finished(
    device: Device,
    storages: Sequence[Any],
    specs: Sequence[Spec],
    finish: DType | None,
    written: Sequence[Tensor] = (),
) -> Any:
    """Storages as tensors, converted to `finish` if there is one; without any, what was written.

    One tensor, or a tuple.
    """
    made = [Tensor(device, storage, spec) for storage, spec in zip(storages, specs, strict=True)]
    if not made:
        made = list(written)
    if finish is not None:
        made = [ops.astype(tensor, finish) for tensor in made]
    return made[0] if len(made) == 1 else tuple(made)


def needs_cast(specs: Sequence[Spec], result: Result) -> bool:
    """Whether any input is of another dtype than the kernels take."""
    return any(spec.dtype != wanted for spec, wanted in zip(specs, result.cast, strict=True))


def give_back(inputs: Sequence[Tensor], cast: Sequence[Tensor], written: Sequence[int]) -> None:
    """Carry what an operation wrote into converted copies of its inputs back into the inputs."""
    for place in written:
        if cast[place] is not inputs[place]:
            target = inputs[place]
            target.device.assign(target, ops.astype(cast[place], target.dtype))
