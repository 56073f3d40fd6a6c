"""Language models from their files."""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass, replace
from pathlib import Path

from ..device import Device
from ..errors import ModelError
from .decoder import Cache, Decoder
from .description import Description
from .files import read_settings
from .gguffile import GGUFFile
from .language import LanguageModel
from .layers import Reader
from .matrices import Matrices
from .opening import open_source, open_tokenizer
from .options import integer
from .progress import Progress
from .prompts import Prompts
from .source import TensorSource

CONTEXT = 4096  # tokens that a cache has room for, where nothing is asked for
# Of a model whose activations are rounded without being asked for. That moves the scores of one of
# 135 million (SmolLM2) by up to half their standard deviation: its first answer turns French.
ENOUGH_WEIGHTS = 500_000_000


def load(
    path: str | os.PathLike[str],
    device: Device,
    weights: str | None = None,
    activations: str | None = None,
    context: int | None = None,
    progress: bool = False,
) -> LanguageModel:
    """A language model (Llama, Mistral, Qwen2 and 3, Gemma 2 and 3, SmolLM) on a device.

    `path` is a folder with config.json, tokenizer.json and safetensors, or a GGUF file. `weights`:
    None keeps them as the file has them, "q8" and "q4" quantize (a scale for each 32 elements;
    with "q4", embedding and head are q8), "f16" and "f32" convert. `activations`: "int8" rounds
    what meets quantized weights to int8, with a scale for each 32 elements, "f32" does not; None
    takes int8 where the device has instructions for it and the model at least 500 million weights:
    smaller ones are fast anyway, and say other things for it. `context`: tokens that the model's
    cache has room for, by default the model's longest, at most 4096. `progress` shows how far it is
    on standard error.

    Raises ModelError, which names the file and the reason, for whatever is missing, damaged, not
    known or too large, before the weights are read; ImportError without tensai[models].
    """
    if not isinstance(device, Device):
        raise TypeError(f"expected a device, which tensai.open() gives, but got {device!r}")
    if activations not in ("f32", "int8", None):
        raise ValueError(f'expected activations "f32", "int8" or None, but got {activations!r}')
    return open_model(path, context).load(device, weights, activations, progress)


def open_model(path: str | os.PathLike[str], context: int | None = None) -> ModelFiles:
    """A model's files, of which the weights are not read yet (see load)."""
    start = time.perf_counter()
    if context is not None:
        context = integer("context", context)
    source = open_source(path)
    tokenizer = open_tokenizer(source)
    description = describe(source)
    tokenizer.check_rows(description.vocabulary, description.path)
    room = min(description.context, CONTEXT) if context is None else context
    if not 1 <= room <= description.context:
        raise ModelError(
            f"{description.path}: a context of {room} tokens was asked for; the model was made for "
            f"1 to {description.context}"
        )
    prompts = Prompts(tokenizer, description, room)
    return ModelFiles(Path(path).name, source, prompts, time.perf_counter() - start)


@dataclass(frozen=True)
class ModelFiles:
    """A model that is not on a device yet: its tensors, and what prompts it takes."""

    name: str
    source: TensorSource
    prompts: Prompts
    seconds: float  # that opening it took

    def load(
        self,
        device: Device,
        weights: str | None = None,
        activations: str | None = None,
        progress: bool = False,
    ) -> LanguageModel:
        """The model on a device."""
        start = time.perf_counter()
        source, description = self.source, self.prompts.description
        room = self.prompts.context
        if activations is None:
            # Software adapters have no instructions for it, whatever their language has.
            fast = "packed-dot" in device.features and not device.info.software
            activations = "int8" if fast and _weights(source) >= ENOUGH_WEIGHTS else "f32"
        matrices = Matrices(source, device, weights)
        with Progress(f"MB of {self.name} loaded", matrices.total // 1_000_000, progress) as line:
            try:
                reader = Reader(description, matrices)
                most = Cache.longest(description, device)
                if room > most:
                    raise ModelError(
                        f"{description.path}: a context of {room} tokens takes larger buffers than "
                        f"{device.name} has; the largest that fits is {most}"
                    )
                cache = Cache(description, device, room)  # before it takes time to read weights
                decoder = Decoder(
                    reader, activations, lambda done, total: line.show(done // 1_000_000)
                )
            except MemoryError as error:
                raise ModelError(
                    f"{description.path} does not fit {device.name} with a context of {room} "
                    f"tokens, which takes {Cache.nbytes(description, room):,} bytes beside the "
                    f"weights: {error}"
                ) from error
        device.synchronize()
        model = LanguageModel(decoder, cache, self.prompts)
        model.timings.load = self.seconds + time.perf_counter() - start
        return model


def describe(source: TensorSource) -> Description:
    """What the model in these files is made of."""
    if isinstance(source, GGUFFile):
        found = Description.from_metadata(source.settings, source.names())
        table = found.names.embedding
        if len(source.shape(table)) != 2:
            source.check_shape(table, (found.vocabulary, found.hidden))
        # Some of the rows may stand for no token.
        return replace(found, vocabulary=source.shape(table)[0])
    config = read_settings(source.path.parent / "config.json")
    found = Description.from_config(config, source.names())
    names = found.names
    # A head in the file that is not the embedding counts, whatever the settings say.
    if found.tied and names.head in source and not source.same(names.head, names.embedding):
        return replace(found, tied=False)
    return found


def _weights(source: TensorSource) -> int:
    return sum(math.prod(source.shape(name)) for name in source.readable())
