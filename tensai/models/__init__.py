"""Models that run on tensai's tensors: `from tensai.models import SentenceEncoder`."""

from __future__ import annotations

from .sentence import SentenceEncoder

__all__ = ["SentenceEncoder"]
