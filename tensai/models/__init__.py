"""Models that run on tensai's tensors: `from tensai.models import load, SentenceEncoder`."""

from __future__ import annotations

from .language import LanguageModel
from .loading import load
from .sentence import SentenceEncoder

__all__ = ["LanguageModel", "SentenceEncoder", "load"]
