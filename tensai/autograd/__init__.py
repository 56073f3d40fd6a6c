"""Gradients by a tape: `loss.backward()` fills the `.grad` of every Parameter it was made of.

    w = Parameter(dev.upload(array))
    loss = ((x @ w).gelu() - y).square().mean()
    loss.backward()
    w.grad

What is computed from a Parameter is a Variable: a tensor with every method of one, that remembers
the operation it came from. PyTorch's semantics, where it has them: gradients accumulate until
they are set to None, a graph can be walked back once, and `no_grad()` records nothing.
"""

from .losses import cross_entropy, mse_loss
from .recorded import recorded
from .tape import is_grad_enabled, no_grad
from .variable import Parameter, Variable

__all__ = [
    "Parameter",
    "Variable",
    "cross_entropy",
    "is_grad_enabled",
    "mse_loss",
    "no_grad",
    "recorded",
]
