"""Tokenizers of folders and of GGUF files: ids as transformers and sentencepiece give them.

The vocabularies are small ones, trained here; text is handwritten and made up by hypothesis.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import sentencepiece
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import AutoTokenizer

from tensai.errors import ModelError
from tensai.models.opening import open_source, open_tokenizer
from tensai.models.vocabulary import TextTokenizer, folder_tokenizer

CORPUS = [
    "The quick brown fox jumps over the lazy dog, and then it doesn't.",
    "  indented code:\n\tif x == 10:\n\t\treturn y  # the answer is 42\n\n\n",
    "In 1984 there were 365 days, 12 months; in 2024 there were 366!",
    "Größe, naïve café, señor, Ελληνικά, русский текст и ещё немного.",
    "日本語の文章です。中文也有一些。한국어 문장.",
    "I'll say she's here, they've gone, WE'RE LATE, You'd think so.",
    "emoji \N{THUMBS UP SIGN} and \N{GRINNING FACE}; arrows -> => and __underscores__",
] * 3
TEXTS = [
    "",
    "hello world",
    "the lazy dog doesn't",
    "trailing spaces   ",
    "a   b    c",
    "one\n\n\ntwo\r\n\tthree \n ",
    "1234567 89 3.14",
    "e\u0301 combining n\u0303, and precomposed é ñ",
    "日本語と中文 and English",
    "\N{WOMAN}\u200d\N{WOMAN}\u200d\N{GIRL} family",
    "\N{THUMBS UP SIGN}\N{EMOJI MODIFIER FITZPATRICK TYPE-5}",
    "\x00\x01 control \x7f\x85 characters \ufffd",
    "HelloWorld ABCdef I'LL it'S",
    "aaaaaaaaaaaaaaaaaaaaa ababababab",
    "\u00a0non-breaking\u3000wide\u2009thin",
    "<0x41> <|im_start is not a token",
    "\U0010ffff\ue000",
]
LEADING = [" leading", "   three", "\n first", "\tx"]
SPECIAL = ["<|begin|>", "<|im_start|>", "<|im_end|>", "<|endoftext|>"]
WITH_SPECIAL = [
    "<|im_start|>user\nhi there<|im_end|>\n<|im_start|>assistant\n",
    "<|begin|><|begin|>x <|im_end|> y",
]
text = st.text(
    st.one_of(st.sampled_from("abet  \n'1209.éñ日本👍"), st.characters(exclude_categories=["Cs"])),
    max_size=40,
)
fuzzed = settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

# From the tokenizer.json of Llama 3, Qwen2 and Mistral Nemo, and (as features of the library) of
# GPT-2 and SmolLM.
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|"
    r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def split(pattern: str) -> list[Any]:
    return [
        pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ]


CUTS: dict[str, Callable[[], list[Any]]] = {
    "gpt-2": lambda: [pre_tokenizers.ByteLevel(add_prefix_space=False)],
    "smollm": lambda: [
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False),
    ],
    "llama-bpe": lambda: split(LLAMA3),
    "qwen2": lambda: split(LLAMA3.replace("{1,3}", "")),
    "tekken": lambda: split(TEKKEN),
}


def byte_level(pre: str, size: int = 600) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(ignore_merges=pre in ("llama-bpe", "tekken")))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(CUTS[pre]())
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_tokens([AddedToken("<think>", normalized=False)])
    return tokenizer


def names_of(tokenizer: Tokenizer) -> list[str]:
    return [name for name, _ in sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])]


def write_gguf(path: Path, model: str, architecture: str = "llama", **keys: Any) -> Path:
    """A GGUF with just a tokenizer; keys are those of tokenizer.ggml."""
    writer = gguf.GGUFWriter(str(path), architecture)
    if model:
        writer.add_tokenizer_model(model)
    for key, value in keys.items():
        name = f"tokenizer.ggml.{key}" if key != "chat_template" else f"tokenizer.{key}"
        add = {bool: writer.add_bool, int: writer.add_uint32, str: writer.add_string}
        add.get(type(value), writer.add_array)(name, value)
    writer.add_tensor("x", np.zeros((2, 2), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def byte_level_keys(tokenizer: Tokenizer, pre: str) -> dict[str, Any]:
    names = names_of(tokenizer)
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    kinds = [3 if name in SPECIAL else 4 if name == "<think>" else 1 for name in names]
    return {
        "pre": pre,
        "tokens": names,
        "token_type": kinds,
        "merges": [merge if isinstance(merge, str) else " ".join(merge) for merge in merges],
        "bos_token_id": names.index("<|begin|>"),
        "eos_token_id": names.index("<|im_end|>"),
    }


def opened(path: Path) -> TextTokenizer:
    return open_tokenizer(open_source(path))


def streamed(tokenizer: TextTokenizer, ids: list[int]) -> str:
    stream = tokenizer.stream()
    pieces = [stream.push(id) for id in ids]
    return "".join(pieces) + stream.finish()


@pytest.fixture(scope="module")
def byte_levels(
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, tuple[Tokenizer, TextTokenizer]]:
    folder = tmp_path_factory.mktemp("byte-level")
    found = {}
    for pre in CUTS:
        tokenizer = byte_level(pre)
        path = write_gguf(folder / f"{pre}.gguf", "gpt2", **byte_level_keys(tokenizer, pre))
        found[pre] = tokenizer, opened(path)
    return found


@pytest.mark.parametrize("pre", CUTS)
@fuzzed
@given(text)
@example("\n".join([*TEXTS, *LEADING]))
def test_byte_level_of_a_gguf(
    byte_levels: dict[str, tuple[Tokenizer, TextTokenizer]], pre: str, value: str
) -> None:
    reference, tokenizer = byte_levels[pre]
    for case in [value, *TEXTS, *LEADING, *WITH_SPECIAL, "a<think>b <think> c"]:
        ids = tokenizer.encode(case, special=False)
        assert ids == reference.encode(case, add_special_tokens=False).ids
        assert tokenizer.decode(ids) == reference.decode(ids) == streamed(tokenizer, ids)
        if not any(name in case for name in SPECIAL):
            assert tokenizer.decode(ids) == case


@fuzzed
@given(ids=st.lists(st.integers(0, 610), max_size=12))
def test_ids_that_no_text_has(
    byte_levels: dict[str, tuple[Tokenizer, TextTokenizer]], ids: list[int]
) -> None:
    reference, tokenizer = byte_levels["qwen2"]
    assert tokenizer.decode(ids) == reference.decode(ids) == streamed(tokenizer, ids)


def test_what_a_byte_level_gguf_says(
    byte_levels: dict[str, tuple[Tokenizer, TextTokenizer]],
) -> None:
    reference, tokenizer = byte_levels["qwen2"]
    assert tokenizer.size == reference.get_vocab_size()
    assert tokenizer.bos == reference.token_to_id("<|begin|>")
    assert tokenizer.eos == {reference.token_to_id(SPECIAL[2]), reference.token_to_id(SPECIAL[3])}
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("<|begin|>", "<|im_end|>")
    assert tokenizer.chat_template is None
    # Whether a text starts with the start token, where the file doesn't say.
    for pre, (_, other) in byte_levels.items():
        assert (other.encode("a")[0] == other.bos) == (pre in ("llama-bpe", "tekken"))


def test_a_cut_that_is_a_token_needs_no_merges(tmp_path: Path) -> None:
    tokenizer = byte_level("llama-bpe")
    keys = byte_level_keys(tokenizer, "llama-bpe")
    keys["merges"] = keys["merges"][:5]
    kept = opened(write_gguf(tmp_path / "llama3.gguf", "gpt2", **keys))
    keys["pre"] = "qwen2"
    cut = opened(write_gguf(tmp_path / "qwen.gguf", "gpt2", **keys))
    whole = tokenizer.token_to_id("\u0120were")
    assert kept.encode(" were", special=False) == [whole]
    assert len(cut.encode(" were", special=False)) > 1
    assert cut.decode(cut.encode(" were")) == " were"


@pytest.mark.parametrize("pre", ["qwen2", "llama-bpe"])
def test_a_byte_level_gguf_is_as_transformers_reads_it(tmp_path: Path, pre: str) -> None:
    keys = byte_level_keys(byte_level(pre), pre)
    keys |= {"add_bos_token": True, "add_eos_token": True}
    path = write_gguf(tmp_path / "model.gguf", "gpt2", **keys)
    reference = AutoTokenizer.from_pretrained(str(tmp_path), gguf_file="model.gguf")
    tokenizer = opened(path)
    for case in [*TEXTS, *LEADING, *WITH_SPECIAL]:
        assert tokenizer.encode(case) == reference.encode(case)
        ids = tokenizer.encode(case, special=False)
        assert ids == reference.encode(case, add_special_tokens=False)
        assert tokenizer.encode(case) == [tokenizer.bos, *ids, keys["eos_token_id"]]


def trained(**options: Any) -> sentencepiece.SentencePieceProcessor:
    """A vocabulary such as Llama 2's: bytes for what it lacks, digits alone, spaces kept."""
    made = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(line for text in CORPUS for line in text.split("\n") if line),
        model_writer=made,
        vocab_size=480,
        model_type="bpe",
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        allow_whitespace_only_pieces=True,
        split_digits=True,
        character_coverage=0.99,
        minloglevel=2,
        num_threads=1,
        **options,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=made.getvalue())


@pytest.fixture(scope="module")
def pieces() -> sentencepiece.SentencePieceProcessor:
    return trained(user_defined_symbols=["<think>"])


def piece_keys(
    pieces: sentencepiece.SentencePieceProcessor, user_defined: Sequence[str] = ("<think>",)
) -> dict[str, Any]:
    ids = range(pieces.get_piece_size())

    def kind(id: int) -> int:
        if pieces.is_unknown(id):
            return 2
        if pieces.is_control(id):
            return 3
        if pieces.is_byte(id):
            return 6
        return 4 if pieces.id_to_piece(id) in user_defined else 1

    return {
        "tokens": [pieces.id_to_piece(id) for id in ids],
        "scores": [pieces.get_score(id) for id in ids],
        "token_type": [kind(id) for id in ids],
        "bos_token_id": 1,
        "eos_token_id": 2,
        "unknown_token_id": 0,
    }


@pytest.fixture(scope="module")
def sentencepiece_gguf(
    pieces: sentencepiece.SentencePieceProcessor, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    folder = tmp_path_factory.mktemp("sentencepiece")
    return write_gguf(folder / "model.gguf", "llama", **piece_keys(pieces))


@pytest.fixture(scope="module")
def llama(sentencepiece_gguf: Path) -> TextTokenizer:
    return opened(sentencepiece_gguf)


@fuzzed
@given(text.filter(lambda value: "<" not in value))
def test_sentencepiece_of_a_gguf(
    pieces: sentencepiece.SentencePieceProcessor, llama: TextTokenizer, value: str
) -> None:
    for case in [value, *TEXTS, *LEADING]:
        ids = llama.encode(case, special=False)
        assert ids == pieces.encode(case)
        assert llama.encode(case) == [1, *ids]
        # The sign that stands for a space can't be told from one.
        shown = case.replace("\u2581", " ")
        assert llama.decode(ids) == shown == streamed(llama, ids)
        assert llama.decode([1, *ids, 2]) == shown


def test_special_tokens_in_text_of_sentencepiece(
    pieces: sentencepiece.SentencePieceProcessor, llama: TextTokenizer
) -> None:
    think = pieces.piece_to_id("<think>")
    parts = [pieces.encode(part) for part in ("hi the", "dog", "x")]
    ids = llama.encode("<s>hi the</s><think>dog<s>x")
    assert ids == [1, 1, *parts[0], 2, think, *parts[1], 1, *parts[2]]
    assert llama.decode(ids) == "hi the<think> dog x" == streamed(llama, ids)


def test_sentencepiece_is_as_transformers_reads_it(
    sentencepiece_gguf: Path, llama: TextTokenizer
) -> None:
    reference = AutoTokenizer.from_pretrained(
        str(sentencepiece_gguf.parent), gguf_file="model.gguf"
    )
    # transformers 5 leaves out the space before text that starts with one, which sentencepiece
    # itself does not.
    for case in TEXTS:
        assert llama.encode(case) == reference.encode(case)
        ids = llama.encode(case)
        assert llama.decode(ids) == reference.decode(ids, skip_special_tokens=True)


def test_what_a_sentencepiece_gguf_says(
    pieces: sentencepiece.SentencePieceProcessor, llama: TextTokenizer
) -> None:
    assert llama.size == pieces.get_piece_size()
    assert (llama.bos, llama.eos) == (1, {2})
    assert (llama.bos_token, llama.eos_token) == ("<s>", "</s>")


def test_sentencepiece_without_a_space_in_front(
    tmp_path: Path, pieces: sentencepiece.SentencePieceProcessor
) -> None:
    keys = piece_keys(pieces) | {"add_space_prefix": False, "add_bos_token": False}
    tokenizer = opened(write_gguf(tmp_path / "model.gguf", "llama", **keys))
    space, hello = pieces.encode("h")[0], pieces.encode("the dog")
    for case in [*TEXTS, *LEADING]:
        ids = tokenizer.encode(case)
        assert tokenizer.decode(ids) == case == streamed(tokenizer, ids)
    assert tokenizer.encode(" the dog") == hello
    assert tokenizer.encode("h") == [id for id in pieces.encode("h") if id != space]


@pytest.mark.parametrize("spelled", ["\u2581", " "])
def test_runs_of_spaces_as_tokens(tmp_path: Path, spelled: str) -> None:
    """As in Gemma's vocabulary. Files have these tokens in either spelling."""
    own = ["\u2581\u2581", "\u2581\u2581\u2581", "\u2581" * 5, "\n", "\n\n", "<b>"]
    pieces = trained(user_defined_symbols=own, add_dummy_prefix=False)
    keys = piece_keys(pieces, own) | {"add_space_prefix": False}
    keys["tokens"] = [
        name.replace("\u2581", spelled) if name in own else name for name in keys["tokens"]
    ]
    tokenizer = opened(write_gguf(tmp_path / "model.gguf", "llama", **keys))
    runs = [f"the{' ' * count}dog{' ' * count}" for count in range(1, 14)]
    for case in [*TEXTS, *LEADING, *runs, "a <b>the  dog\n\n\n  <b> x"]:
        ids = tokenizer.encode(case, special=False)
        assert ids == pieces.encode(case)
        assert tokenizer.decode(ids) == case == streamed(tokenizer, ids)


def test_roles_of_tokens_that_a_sentencepiece_gguf_leaves_out(
    tmp_path: Path, pieces: sentencepiece.SentencePieceProcessor
) -> None:
    keys = piece_keys(pieces)
    for key in ("bos_token_id", "eos_token_id", "unknown_token_id", "token_type"):
        del keys[key]
    tokenizer = opened(write_gguf(tmp_path / "model.gguf", "llama", **keys))
    assert (tokenizer.bos, tokenizer.eos) == (1, {2})
    assert tokenizer.encode("the dog") == [1, *pieces.encode("the dog")]


def test_a_stream_waits_for_whole_characters(llama: TextTokenizer) -> None:
    face = "\N{GRINNING FACE}"
    ids = llama.encode(f"a{face}b", special=False)
    stream = llama.stream()
    parts = [stream.push(id) for id in ids]
    assert [part for part in parts if part] == ["a", face, "b"]
    assert parts.count("") >= 3
    assert stream.finish() == ""
    # A character that never ends is said to be broken, once, and not before the end.
    start = llama.encode(face, special=False)[:-1]
    stream = llama.stream()
    assert "".join(stream.push(id) for id in start) == ""
    assert stream.finish() == "\ufffd" == llama.decode(start)


def test_a_stream_that_goes_on(llama: TextTokenizer) -> None:
    prompt, ids = llama.encode("the lazy"), llama.encode("dog", special=False)
    stream = llama.stream(after=prompt)
    assert "".join(stream.push(id) for id in ids) == " dog"
    stream = llama.stream()
    assert "".join(stream.push(id) for id in ids) == "dog"


def test_ids_beyond_the_vocabulary_are_silent(llama: TextTokenizer) -> None:
    ids = np.array([llama.size + 5, *llama.encode("the dog"), 10**9], np.int64)
    assert llama.decode(ids) == "the dog"


# Folders


def save(folder: Path, tokenizer: Tokenizer, **config: Any) -> Path:
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize("config", [{}, {"add_bos_token": False}, {"add_bos_token": True}])
@pytest.mark.parametrize("template", [True, False])
def test_a_folder_is_as_transformers_reads_it(
    tmp_path: Path, template: bool, config: dict[str, Any]
) -> None:
    tokenizer = byte_level("llama-bpe")
    begin, end = (tokenizer.token_to_id(name) for name in ("<|begin|>", "<|im_end|>"))
    if template:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<|begin|> $A", special_tokens=[("<|begin|>", begin)]
        )
    # Limits for training mean nothing here.
    tokenizer.enable_padding(length=64)
    tokenizer.enable_truncation(3)
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": {"content": "<|begin|>", "__type": "AddedToken"},
        "eos_token": "<|im_end|>",
        **config,
    }
    save(tmp_path, tokenizer, **config)
    reference = AutoTokenizer.from_pretrained(tmp_path)
    found = folder_tokenizer(tmp_path)
    # Where tokenizer.json adds nothing and tokenizer_config.json says so, a text gets a start:
    # transformers 4 did that for the classes of Llama, 5 does not.
    more = [begin] if config.get("add_bos_token") and not template else []
    for case in [*TEXTS, *LEADING, *WITH_SPECIAL]:
        ids = found.encode(case)
        assert ids == [*more, *reference.encode(case, truncation=False, padding=False)]
        plain = reference.encode(case, add_special_tokens=False, truncation=False, padding=False)
        assert found.encode(case, special=False) == plain
        assert found.decode(ids) == reference.decode(ids, skip_special_tokens=True)
    assert (found.bos, found.bos_token, found.eos_token) == (begin, "<|begin|>", "<|im_end|>")
    assert end in found.eos


def test_flags_for_both_ends(tmp_path: Path) -> None:
    names = {"bos_token": "<|begin|>", "eos_token": "<|im_end|>"}
    flags = {"add_bos_token": True, "add_eos_token": True}
    found = folder_tokenizer(save(tmp_path, byte_level("qwen2"), **names, **flags))
    assert found.encode("a b") == [0, *found.encode("a b", special=False), 2]
    found = folder_tokenizer(save(tmp_path, byte_level("qwen2"), **flags))
    assert found.encode("a b") == found.encode("a b", special=False)


def test_ends_of_an_answer_come_from_every_file(tmp_path: Path) -> None:
    save(tmp_path, byte_level("qwen2"))
    assert folder_tokenizer(tmp_path).eos == {2, 3}  # by their names
    assert folder_tokenizer(tmp_path).bos is None
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": 7, "bos_token_id": 0}))
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [8, 9, 99_999]}))
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({"eos_token": "<|begin|>"}))
    found = folder_tokenizer(tmp_path)
    assert found.eos == {0, 2, 3, 7, 8, 9}
    assert (found.bos, found.bos_token, found.eos_token) == (0, "<|begin|>", "<|begin|>")


def test_ends_of_an_answer_in_a_gguf(tmp_path: Path) -> None:
    keys = byte_level_keys(byte_level("qwen2"), "qwen2") | {"eot_token_id": 20, "eom_token_id": 21}
    found = opened(write_gguf(tmp_path / "model.gguf", "gpt2", **keys))
    assert found.eos == {2, 3, 20, 21}


def test_chat_templates_are_found(tmp_path: Path) -> None:
    tokenizer = byte_level("qwen2")
    assert folder_tokenizer(save(tmp_path, tokenizer)).chat_template is None
    assert folder_tokenizer(save(tmp_path, tokenizer, chat_template="x")).chat_template == "x"
    named = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]
    assert folder_tokenizer(save(tmp_path, tokenizer, chat_template=named)).chat_template == "d"
    save(tmp_path, tokenizer, chat_template=named[:1])
    assert folder_tokenizer(tmp_path).chat_template == "t"
    (tmp_path / "chat_template.jinja").write_text("a file\n")
    assert folder_tokenizer(tmp_path).chat_template == "a file\n"
    keys = byte_level_keys(tokenizer, "qwen2") | {"chat_template": "g"}
    assert opened(write_gguf(tmp_path / "model.gguf", "gpt2", **keys)).chat_template == "g"


def word_level() -> Tokenizer:
    names = ["[UNK]", "<eos>", "the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog"]
    model = models.WordLevel({name: id for id, name in enumerate(names)}, unk_token="[UNK]")
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(["<eos>"])
    return tokenizer


def word_piece() -> Tokenizer:
    vocabulary = {name: id for id, name in enumerate(["[UNK]", "the", "dog", "##s", "##gy", ","])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    return tokenizer


def unigram() -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=200, unk_token="<unk>", special_tokens=["<unk>"], show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


@pytest.mark.parametrize("make", [word_level, word_piece, unigram])
def test_vocabularies_of_other_families(tmp_path: Path, make: Callable[[], Tokenizer]) -> None:
    reference = make()
    found = folder_tokenizer(save(tmp_path, reference))
    for case in ("", "the dogs, the lazy doggy", "the quick brown fox", "Größe?"):
        ids = reference.encode(case).ids
        assert found.encode(case) == ids
        assert found.decode(ids) == reference.decode(ids) == streamed(found, ids)
    ids = found.encode("the dog")
    stream = found.stream(after=ids[:1])
    text = reference.decode(ids)
    assert reference.decode(ids[:1]) + "".join(stream.push(id) for id in ids[1:]) == text


def test_sentencepiece_of_a_folder(
    tmp_path: Path, pieces: sentencepiece.SentencePieceProcessor
) -> None:
    """As the tokenizer.json of Llama 2 says it."""
    vocabulary = {pieces.id_to_piece(id): id for id in range(pieces.get_piece_size())}
    scored = {name: pieces.get_score(id) for name, id in vocabulary.items()}
    merges = [
        (name[:cut], name[cut:])
        for name in sorted(scored, key=lambda name: -scored[name])
        for cut in range(1, len(name))
        if name[:cut] in vocabulary and name[cut:] in vocabulary
    ]
    model = models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("\u2581", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    found = folder_tokenizer(save(tmp_path, tokenizer, bos_token="<s>", eos_token="</s>"))
    for case in [*TEXTS, *LEADING]:
        ids = found.encode(case)
        assert ids == pieces.encode(case)
        assert found.decode(ids) == tokenizer.decode(ids) == case == streamed(found, ids)


# What is refused


def test_text_that_is_none(llama: TextTokenizer) -> None:
    with pytest.raises(TypeError, match="expected text as a str, but got bytes"):
        llama.encode(b"x")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"the text holds '\\ud83d', half of a character"):
        llama.encode("a\ud83d")


def test_a_vocabulary_of_another_model(llama: TextTokenizer, sentencepiece_gguf: Path) -> None:
    llama.check_rows(llama.size, Path("w"))
    llama.check_rows(llama.size + 9, Path("w"))
    message = rf"{sentencepiece_gguf.name} knows {llama.size} tokens, but the embedding in w has 7"
    with pytest.raises(ModelError, match=message):
        llama.check_rows(7, Path("w"))


def test_a_folder_without_a_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="tokenizer.json is missing$"):
        folder_tokenizer(tmp_path)
    (tmp_path / "tokenizer.model").touch()
    with pytest.raises(ModelError, match="tokenizer.json is missing; .* not read tokenizer.model"):
        folder_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match="tokenizer.json is damaged"):
        folder_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("tokenizer_config.json", "{", "tokenizer_config.json is damaged"),
        ("tokenizer_config.json", "[]", "expected a JSON object, but got a list"),
        ("tokenizer_config.json", '{"bos_token": 3}', "expected str or dict for 'bos_token'"),
        ("tokenizer_config.json", '{"bos_token": {}}', "has no 'content'"),
        ("tokenizer_config.json", '{"add_bos_token": "no"}', "expected bool for 'add_bos_token'"),
        ("tokenizer_config.json", '{"chat_template": 1}', "expected str or list for 'chat_temp"),
        ("tokenizer_config.json", '{"chat_template": [1]}', "expected named templates"),
        ("tokenizer_config.json", '{"chat_template": [{}]}', "has no 'template'"),
        ("generation_config.json", '{"eos_token_id": "x"}', "expected int or list for 'eos_token"),
        ("config.json", '{"eos_token_id": ["x"]}', "expected ids for 'eos_token_id'"),
    ],
)
def test_a_folder_whose_files_are_wrong(
    tmp_path: Path, name: str, content: str, message: str
) -> None:
    save(tmp_path, byte_level("qwen2", 300))
    (tmp_path / name).write_text(content)
    with pytest.raises(ModelError, match=message) as raised:
        folder_tokenizer(tmp_path)
    assert str(tmp_path / name) in str(raised.value)


def test_a_chat_template_of_other_bytes(tmp_path: Path) -> None:
    save(tmp_path, byte_level("qwen2", 300))
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(ModelError, match="chat_template.jinja can't be read"):
        folder_tokenizer(tmp_path)


TINY = {"pre": "gpt-2", "tokens": ["a", "b", "ab"], "merges": ["a b"]}
TINY_PIECES = {"tokens": ["<unk>", "<s>", "a"], "scores": [0.0, 0.0, -1.0]}


@pytest.mark.parametrize(
    ("model", "keys", "message"),
    [
        ("gpt2", {"pre": "gpt-2"}, "has no tokenizer"),
        ("", TINY, "has no 'tokenizer.ggml.model'"),
        ("t5", TINY, "tokenizer.ggml.model is 't5'; tensai reads gpt2 and llama"),
        ("gpt2", TINY | {"pre": "new"}, "tokenizer.ggml.pre is 'new'; tensai knows .*llama-bpe"),
        ("gpt2", TINY | {"tokens": ["a", "b", "a"]}, "tokens 0 and 2 are both 'a'"),
        ("gpt2", TINY | {"tokens": [1, 2]}, "expected tokenizer.ggml.tokens to be all str"),
        ("gpt2", TINY | {"tokens": 3}, "expected list for 'tokenizer.ggml.tokens', but got 3"),
        ("gpt2", TINY | {"token_type": [1, 1]}, "3 tokens, but 2 types of them"),
        ("gpt2", TINY | {"merges": ["a a"]}, "'a a' merges what are no tokens"),
        ("gpt2", TINY | {"merges": ["ab"]}, "'ab' merges what are no tokens"),
        ("gpt2", TINY | {"merges": ["a  b"]}, "'a  b' merges what are no tokens"),
        ("gpt2", {"pre": "gpt-2", "tokens": ["a"]}, "has no 'tokenizer.ggml.merges'"),
        ("gpt2", TINY | {"eos_token_id": 3}, "eos_token_id is 3, but there are 3 tokens"),
        ("gpt2", TINY | {"add_bos_token": True}, "add_bos_token is true, but the file names no"),
        ("llama", {"tokens": ["a"]}, "has no 'tokenizer.ggml.scores'"),
        ("llama", TINY_PIECES | {"scores": [0.5]}, "3 tokens, but 1 scores"),
        ("llama", TINY_PIECES | {"scores": [1, 2, 3]}, "tokenizer.ggml.scores to be all float"),
        ("llama", TINY_PIECES | {"unknown_token_id": 9}, "unknown_token_id is 9, but there are 3"),
    ],
)
def test_a_gguf_whose_tokenizer_is_wrong(
    tmp_path: Path, model: str, keys: dict[str, Any], message: str
) -> None:
    path = write_gguf(tmp_path / "model.gguf", model, **keys)
    with pytest.raises(ModelError, match=message) as raised:
        opened(path)
    assert str(path) in str(raised.value)


def test_gaps_in_a_vocabulary(tmp_path: Path) -> None:
    keys = {"pre": "gpt-2", "tokens": ["a", "", "b", "", "ab"], "merges": ["a b"]}
    found = opened(write_gguf(tmp_path / "model.gguf", "gpt2", **keys))
    assert found.size == 5
    assert found.encode("aba") == [4, 0]


def test_without_the_tokenizers_package(
    sentencepiece_gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ImportError, match=r"tokenizers package: pip install tensai\[models\]"):
        opened(sentencepiece_gguf)
