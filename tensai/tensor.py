"""A tensor: shape, dtype and a place on a device. What it can do comes from tensai.ops."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from .dtypes import DType
from .errors import DTypeError, ShapeError, TensorFreedError

if TYPE_CHECKING:
    from .device import Device


class Tensor:
    """An array on a device: row-major, contiguous, of a fixed shape and dtype.

    Tensors come from a device (`device.upload(array)`) and from operations on other tensors.
    Operations return at once; the device works behind them, and `download()` waits for it.
    """

    __slots__ = ("__weakref__", "_storage", "device", "spec")

    # NumPy must hand `array + tensor` to the tensor instead of looping over it.
    __array_ufunc__ = None

    def __init__(self, device: Device, storage: Any, spec: Any) -> None:
        self.device = device
        self._storage = storage
        self.spec = spec

    if TYPE_CHECKING:
        # Operations are attached by name where they are described (operation.py).
        def __getattr__(self, name: str) -> Callable[..., Any]: ...

    # What it is ----------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of each axis."""
        return self.spec.shape

    @property
    def dtype(self) -> DType:
        """numpy.float32, float16, int32, uint32 or bool, as a numpy.dtype."""
        return self.spec.dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.spec.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.spec.size

    @property
    def nbytes(self) -> int:
        """Bytes of the elements, as in NumPy: size times dtype.itemsize."""
        return self.size * int(self.spec.dtype.itemsize)

    @property
    def T(self) -> Tensor:
        """The axes reversed."""
        return self.permute()

    def __getitem__(self, index: Any) -> Tensor:
        return self.getitem(index)

    def __iter__(self) -> Iterator[Tensor]:
        if not self.shape:
            raise TypeError("iteration over a 0-d tensor")
        return (self[index] for index in range(self.shape[0]))

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-d tensor")
        return self.shape[0]

    def __repr__(self) -> str:
        state = ", freed" if self._storage is None else ""
        return f"<tensor {self.shape} {self.dtype} on {self.device.name}{state}>"

    @property
    def storage(self) -> Any:
        """Where the elements lie; TensorFreedError after free()."""
        if self._storage is None:
            raise TensorFreedError(
                f"this tensor of shape {self.shape} was freed; upload or compute it again"
            )
        return self._storage

    def seen_as(self, spec: Any) -> Tensor:
        """The same memory under another shape of as many elements."""
        return Tensor(self.device, self.storage, spec)

    def detach(self) -> Tensor:
        """The same elements, without a part in any gradient (see tensai.autograd)."""
        return self

    # To and from the host ------------------------------------------------------------------

    def download(self, out: np.ndarray[Any, Any] | None = None) -> np.ndarray[Any, Any]:
        """The elements as a NumPy array, after the work that they depend on.

        `out` may be a C-contiguous array of the same shape and dtype to fill and return.
        """
        if out is not None:
            if not isinstance(out, np.ndarray):
                raise DTypeError(f"[download] expected out as an array, not {type(out).__name__}")
            if out.shape != self.shape:
                raise ShapeError(f"[download] expected out of shape {self.shape}, not {out.shape}")
            if out.dtype != self.dtype or not out.flags.c_contiguous or not out.flags.writeable:
                raise DTypeError(
                    f"[download] expected out as a writeable C-contiguous array of {self.dtype}, "
                    f"not {out.dtype}"
                )
        if self.device.program is not None:
            self.device.program.fixed("its elements were downloaded while it was recorded")
        return self.device.fetch(self, out)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if copy is False:
            raise ValueError("a tensor's elements lie on a device: an array of them is a copy")
        array = self.download()
        return array if dtype is None else array.astype(dtype)

    def item(self) -> float | int | bool:
        """The one element of a tensor of size 1, as a Python number."""
        if self.size != 1:
            raise ShapeError(f"[item] expected a tensor of one element, not of shape {self.shape}")
        return self.download().reshape(()).item()

    def tolist(self) -> Any:
        """The elements as nested lists."""
        return self.download().tolist()

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __index__(self) -> int:
        if self.dtype.kind not in "iu":
            raise TypeError(f"a tensor of {self.dtype} is no index")
        return int(self.item())

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ValueError(f"the truth of a tensor of {self.size} elements is ambiguous")
        return bool(self.item())

    def __copy__(self) -> Tensor:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        return self.copy()

    def __reduce__(self) -> Any:
        raise TypeError("a tensor lives on a device; pickle its download() instead")

    # Lifetime ------------------------------------------------------------------------------

    def free(self) -> None:
        """Give the memory back now; any later use raises TensorFreedError.

        Memory that a reshaped tensor shares stays until that one goes too.
        """
        self._storage = None

    def __enter__(self) -> Tensor:
        return self

    def __exit__(self, *exception: object) -> None:
        self.free()

    # Operators -----------------------------------------------------------------------------
    # Each is the operation of the same name in tensai.ops, with a number or array on one side
    # made into a tensor of this device.

    def _binary(self, name: str, other: Any) -> Tensor:
        if not isinstance(other, Tensor):
            other = self.device.operand(other, self)
        return Tensor.__dict__[name](self, other)  # getattr would make a bound method first

    def _reflected(self, name: str, other: Any) -> Tensor:
        return getattr(self.device.operand(other, self), name)(self)

    def __add__(self, other: Any) -> Tensor:
        return self._binary("add", other)

    def __radd__(self, other: Any) -> Tensor:
        return self._reflected("add", other)

    def __sub__(self, other: Any) -> Tensor:
        return self._binary("subtract", other)

    def __rsub__(self, other: Any) -> Tensor:
        return self._reflected("subtract", other)

    def __mul__(self, other: Any) -> Tensor:
        return self._binary("multiply", other)

    def __rmul__(self, other: Any) -> Tensor:
        return self._reflected("multiply", other)

    def __truediv__(self, other: Any) -> Tensor:
        return self._binary("divide", other)

    def __rtruediv__(self, other: Any) -> Tensor:
        return self._reflected("divide", other)

    def __floordiv__(self, other: Any) -> Tensor:
        return self._binary("floor_divide", other)

    def __rfloordiv__(self, other: Any) -> Tensor:
        return self._reflected("floor_divide", other)

    def __mod__(self, other: Any) -> Tensor:
        return self._binary("remainder", other)

    def __rmod__(self, other: Any) -> Tensor:
        return self._reflected("remainder", other)

    def __pow__(self, other: Any) -> Tensor:
        return self._binary("power", other)

    def __rpow__(self, other: Any) -> Tensor:
        return self._reflected("power", other)

    def __matmul__(self, other: Any) -> Tensor:
        return self.matmul(other)

    def __rmatmul__(self, other: Any) -> Tensor:
        return self._reflected("matmul", other)

    def __and__(self, other: Any) -> Tensor:
        return self._binary("bitwise_and", other)

    __rand__ = __and__

    def __or__(self, other: Any) -> Tensor:
        return self._binary("bitwise_or", other)

    __ror__ = __or__

    def __xor__(self, other: Any) -> Tensor:
        return self._binary("bitwise_xor", other)

    __rxor__ = __xor__

    def __neg__(self) -> Tensor:
        return self.negative()

    def __pos__(self) -> Tensor:
        return self

    def __abs__(self) -> Tensor:
        return self.abs()

    def __invert__(self) -> Tensor:
        return self.invert()

    def __eq__(self, other: object) -> Any:
        if other is None:
            return False
        return self._binary("equal", other)

    def __ne__(self, other: object) -> Any:
        if other is None:
            return True
        return self._binary("not_equal", other)

    def __lt__(self, other: Any) -> Tensor:
        return self._binary("less", other)

    def __le__(self, other: Any) -> Tensor:
        return self._binary("less_equal", other)

    def __gt__(self, other: Any) -> Tensor:
        return self._binary("greater", other)

    def __ge__(self, other: Any) -> Tensor:
        return self._binary("greater_equal", other)

    # Comparing gives a tensor, so a tensor hashes by identity, as in PyTorch.
    __hash__ = object.__hash__
