"""The tokenizer that a GGUF file carries, as one of the tokenizers library.

Keys: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, "Tokenizer". The patterns that cut
text before merging are those of the models' own tokenizer.json; the file has just a name for
each, which llama.cpp gave it (src/llama-vocab.cpp there).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..errors import ModelError
from .files import extra
from .gguffile import GGUFFile
from .vocabulary import SPACE, TextTokenizer, chosen_template

# Of a token that others merge to. Real ones have some dozens; every cut of one is looked up.
LONGEST_NAME = 512
UNKNOWN, CONTROL, USER_DEFINED, BYTE_TOKEN = 2, 3, 4, 6  # values of tokenizer.ggml.token_type

_SUFFIXES = "'s|'t|'re|'ve|'m|'ll|'d"
_SPACES = r"\s+(?!\S)|\s+"
_LINES = r"\s*[\r\n]+|" + _SPACES
_SIGNS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_ONE_CASE = (
    r"[^\r\n\p{L}\p{N}]?" + f"{_UPPER}*{_LOWER}+",
    r"[^\r\n\p{L}\p{N}]?" + f"{_UPPER}+{_LOWER}*",
)
_GPT2 = rf"{_SUFFIXES}| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}]+|{_SPACES}"
_LLAMA3 = rf"(?i:{_SUFFIXES})|{_WORD}|\p{{N}}{{1,3}}|{_SIGNS}|{_LINES}"
_QWEN2 = rf"(?i:{_SUFFIXES})|{_WORD}|\p{{N}}|{_SIGNS}|{_LINES}"
_SLASHES = rf" ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_LINES}"


class Cut(NamedTuple):
    """How text is cut before merging: patterns, one after the other.

    `whole` is whether a cut that is a token stays one, whatever the merges say; `bos` whether a
    text starts with the start token where the file doesn't say.
    """

    patterns: tuple[str, ...]
    whole: bool = False
    bos: bool = False


_CUTS = {
    ("", "default", "gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "exaone4", "gigachat",
     "a.x-4.0", "mellum", "granite-docling"): Cut((_GPT2,)),
    ("starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b"): Cut(
        (r"\p{N}", _GPT2)
    ),
    ("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"): Cut(
        (_LLAMA3,), whole=True, bos=True
    ),
    ("dbrx", "smaug-bpe", "glm4", "chatglm-bpe"): Cut((_LLAMA3,)),
    ("qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez", "stablelm2", "hunyuan",
     "solar-open", "grok-2"): Cut((_QWEN2,)),
    ("qwen35",): Cut(
        (
            rf"(?i:{_SUFFIXES})|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
            rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_LINES}",
        )
    ),
    ("tekken",): Cut(
        (rf"{_ONE_CASE[0]}|{_ONE_CASE[1]}|\p{{N}}|{_SLASHES}",), whole=True, bos=True
    ),
    ("gpt-4o", "llama4", "kanana2", "talkie"): Cut(
        (
            rf"{_ONE_CASE[0]}(?i:{_SUFFIXES})?|{_ONE_CASE[1]}(?i:{_SUFFIXES})?"
            rf"|\p{{N}}{{1,3}}|{_SLASHES}",
        )
    ),
    ("deepseek-v3", "hunyuan-dense"): Cut(
        (
            r"\p{N}{1,3}",
            "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
            r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"""
            r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|" + _LINES,
        )
    ),
    ("deepseek-coder",): Cut(
        (
            r"[\r\n]",
            r"\s?\p{L}+",
            r"\s?\p{P}+",
            "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+",
            r"\p{N}",
        )
    ),
}  # fmt: skip
CUTS = {name: cut for names, cut in _CUTS.items() for name in names}


def gguf_tokenizer(source: GGUFFile) -> TextTokenizer:
    """The tokenizer of a GGUF file: byte-level BPE ("gpt2") or SentencePiece BPE ("llama").

    Control tokens are special; with user-defined ones they are found whole in text. A
    SentencePiece vocabulary puts a space before a text, and before what follows a special token,
    as llama.cpp does and the tokenizer.json of these models, unless tokenizer.ggml.add_space_prefix
    is false. Raises ModelError for a file without a tokenizer, with one of another kind, or whose
    lists do not fit each other.
    """
    try:
        from tokenizers import AddedToken
    except ImportError as error:
        raise extra("tokenizers") from error
    vocabulary = _Vocabulary(source)
    make = {"gpt2": _byte_level, "llama": _sentencepiece}.get(vocabulary.model)
    if make is None:
        raise ModelError(
            f"{source.path}: tokenizer.ggml.model is {vocabulary.model!r}; tensai reads gpt2 and "
            "llama"
        )
    try:
        tokenizer, starts = make(vocabulary)
        for add, kinds in (
            (tokenizer.add_special_tokens, (UNKNOWN, CONTROL)),
            (tokenizer.add_tokens, (USER_DEFINED,)),
        ):
            add([AddedToken(name, normalized=False) for name in vocabulary.of(*kinds)])
    except ModelError:
        raise
    except Exception as error:  # the library raises nothing narrower
        raise ModelError(f"{source.path}: its tokenizer is damaged: {error}") from error
    bos, eos = vocabulary.id("bos"), vocabulary.id("eos")
    ends = [id for id in (eos, vocabulary.id("eot"), vocabulary.id("eom")) if id is not None]
    return TextTokenizer(
        source.path,
        tokenizer,
        bos,
        ends,
        add_bos=vocabulary.adds("bos", bos, starts),
        add_eos=vocabulary.adds("eos", eos, False),
        chat_template=chosen_template(source.settings, "tokenizer.chat_template"),
    )


class _Vocabulary:
    """What the file says of its tokens, checked."""

    def __init__(self, source: GGUFFile) -> None:
        self.settings = source.settings
        if "tokenizer.ggml.tokens" not in self.settings.values:
            raise ModelError(f"{source.path} has no tokenizer (no tokenizer.ggml.tokens)")
        self.model = self.settings.get("tokenizer.ggml.model", str)
        # Files fill gaps with empty names.
        self.names = [name or f"[EMPTY_{id}]" for id, name in enumerate(self.array("tokens", str))]
        self.kinds = list(self.array("token_type", int, [1] * len(self.names)))
        if len(self.kinds) != len(self.names):
            raise self.damaged(f"{len(self.names)} tokens, but {len(self.kinds)} types of them")
        if self.model == "llama":
            self._respell()
        self.ids: dict[str, int] = {}
        for id, name in enumerate(self.names):
            if self.ids.setdefault(name, id) != id:
                raise self.damaged(f"tokens {self.ids[name]} and {id} are both {name!r}")
        for key in ("bos", "eos", "eot", "eom"):
            special = self.id(key)
            if special is not None:  # whatever the file says of which kind it is
                self.kinds[special] = CONTROL

    def _respell(self) -> None:
        """Write runs of spaces as spaces: they are found in text before its spaces are replaced."""
        for id, (name, kind) in enumerate(zip(self.names, self.kinds, strict=True)):
            if kind == USER_DEFINED and len(name) > 1 and not name.strip(SPACE):
                self.names[id] = " " * len(name)

    def damaged(self, why: str) -> ModelError:
        return ModelError(f"{self.settings.path}: its tokenizer is damaged: {why}")

    def array(self, key: str, kind: type, default: list[Any] | None = None) -> list[Any]:
        """An array of the file."""
        found: list[Any] = self.settings.get(f"tokenizer.ggml.{key}", list, default)
        if not all(type(one) is kind for one in found):
            raise self.damaged(f"expected tokenizer.ggml.{key} to be all {kind.__name__}")
        return found

    def of(self, *kinds: int) -> list[str]:
        """The tokens of these types."""
        pairs = zip(self.names, self.kinds, strict=True)
        return [name for name, kind in pairs if kind in kinds]

    def id(self, key: str) -> int | None:
        """The id of a token with a role; the defaults are llama.cpp's."""
        default = {"bos": 1, "eos": 2, "unknown": 0}.get(key) if self.model == "llama" else None
        name = f"tokenizer.ggml.{key}_token_id"
        if self.settings.values.get(name) is None:
            return default if default is not None and default < len(self.names) else None
        found: int = self.settings.get(name, int)
        if not 0 <= found < len(self.names):
            raise self.damaged(f"{name} is {found}, but there are {len(self.names)} tokens")
        return found

    def adds(self, key: str, id: int | None, default: bool) -> bool:
        """Whether a token goes around every text."""
        name = f"tokenizer.ggml.add_{key}_token"
        wanted: bool = self.settings.get(name, bool, default)
        if wanted and id is None and name in self.settings.values:
            raise self.damaged(f"{name} is true, but the file names no such token")
        return wanted

    def merges(self) -> list[tuple[str, str]]:
        """The merges as pairs of tokens."""
        pairs = []
        for merge in self.array("merges", str):
            # A token of raw text may itself start with a space.
            space = merge.find(" ", 1)
            left, right = merge[:space], merge[space + 1 :]
            if space < 0 or not {left, right, left + right} <= self.ids.keys():
                raise self.damaged(f"{merge!r} merges what are no tokens")
            pairs.append((left, right))
        return pairs


def _byte_level(vocabulary: _Vocabulary) -> tuple[Any, bool]:
    """GPT-2's kind of tokenizer, and whether a text starts with the start token."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    name = vocabulary.settings.get("tokenizer.ggml.pre", str, "")
    cut = CUTS.get(name)
    if cut is None:
        raise ModelError(
            f"{vocabulary.settings.path}: tokenizer.ggml.pre is {name!r}; tensai knows "
            f"{', '.join(sorted(CUTS)[1:])}"
        )
    model = models.BPE(vocab=vocabulary.ids, merges=vocabulary.merges(), ignore_merges=cut.whole)
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            *(pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in cut.patterns),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer, cut.bos


def _sentencepiece(vocabulary: _Vocabulary) -> tuple[Any, bool]:
    """SentencePiece's BPE, and that a text starts with the start token."""
    from tokenizers import Tokenizer, decoders, models, normalizers

    unknown = vocabulary.id("unknown")
    model = models.BPE(
        vocab=vocabulary.ids,
        merges=_scored_merges(vocabulary),
        unk_token=None if unknown is None else vocabulary.names[unknown],
        fuse_unk=True,
        byte_fallback=True,
    )
    tokenizer = Tokenizer(model)
    spaces: Any = normalizers.Replace(" ", SPACE)
    steps: list[Any] = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if vocabulary.settings.get("tokenizer.ggml.add_space_prefix", bool, True):
        spaces = normalizers.Sequence([normalizers.Prepend(SPACE), spaces])
        steps.append(decoders.Strip(" ", 1, 0))
    tokenizer.normalizer = spaces
    tokenizer.decoder = decoders.Sequence(steps)
    return tokenizer, True


def _scored_merges(vocabulary: _Vocabulary) -> list[tuple[str, str]]:
    """SentencePiece merges whichever two neighbours make the token with the best score."""
    scores = vocabulary.array("scores", float)
    if len(scores) != len(vocabulary.names):
        raise vocabulary.damaged(f"{len(vocabulary.names)} tokens, but {len(scores)} scores")
    merged = {
        name: score
        for name, kind, score in zip(vocabulary.names, vocabulary.kinds, scores, strict=True)
        if kind not in (UNKNOWN, CONTROL, USER_DEFINED, BYTE_TOKEN)
    }
    longest = max(merged, key=len, default="")
    if len(longest) > LONGEST_NAME:
        raise vocabulary.damaged(
            f"token {vocabulary.ids[longest]} has {len(longest)} characters; tensai reads "
            f"SentencePiece tokens of up to {LONGEST_NAME}"
        )
    return [
        (name[:cut], name[cut:])
        for name in sorted(merged, key=lambda name: -merged[name])
        for cut in range(1, len(name))
        if name[:cut] in merged and name[cut:] in merged
    ]
