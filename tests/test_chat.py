"""Chats by their templates: the same text as transformers makes of them."""

from __future__ import annotations

import re
import sys
import time
from typing import Any

import pytest
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from tensai.errors import ModelError
from tensai.models.chat import render

# In the manner of four families, with what their templates make use of.
LLAMA3 = """\
{{- bos_token }}
{%- if not date_string is defined %}
    {%- set date_string = "26 Jul 2024" %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}
    {{- "Tools: " }}
    {%- for tool in tools %}
        {{- tool | tojson(indent=4) }}
    {%- endfor %}
{%- endif %}
{{- "Today Date: " + date_string + "\\n\\n" + system_message + "<|eot_id|>" }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'
        + message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""
CHATML = """\
{% for message in messages %}
{% if loop.first and messages[0]['role'] != 'system' %}
<|im_start|>system
You are a helpful assistant.<|im_end|>
{% endif %}
{% if message.role == 'assistant' and '</think>' in message.content %}
{% set content = message.content.split('</think>')[-1].lstrip('\\n') %}
{% else %}
{% set content = message.content %}
{% endif %}
{{ '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' }}
{% endfor %}
{% if add_generation_prompt %}
<|im_start|>assistant
{% if enable_thinking is defined and enable_thinking is false %}
{{ '<think>\\n\\n</think>\\n' }}
{% endif %}
{% endif %}
"""
GEMMA = """\
{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- set first_user_prefix = messages[0]['content'] + '\\n\\n' -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Conversation roles must alternate user/assistant/user/assistant/...") }}
    {%- endif -%}
    {%- set role = "model" if message['role'] == 'assistant' else message['role'] -%}
    {{ '<start_of_turn>' + role + '\\n' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'text' -%}{{ item['text'] | trim }}{%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception("Invalid content type") }}
    {%- endif -%}
    {{ '<end_of_turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<start_of_turn>model\\n' }}{%- endif -%}
"""
MISTRAL = """\
{%- set ns = namespace(index=0, system='') %}
{%- for message in messages %}
    {%- if message['role'] == 'system' %}
        {%- set ns.system = message['content'] %}
        {%- continue %}
    {%- endif %}
    {%- if message['role'] == 'user' %}
        {%- if ns.index == 0 %}{{ bos_token }}{% endif %}
        {{- '[INST] ' + (ns.system + '\\n\\n' if ns.system and loop.last else '') }}
        {{- message['content'] + ' [/INST]' }}
    {%- elif message['role'] == 'assistant' %}
        {% generation %}
        {{- ' ' + message['content'] + eos_token }}
        {% endgeneration %}
    {%- else %}
        {{- raise_exception('Only user and assistant roles are supported!') }}
    {%- endif %}
    {%- set ns.index = ns.index + 1 %}
    {%- if ns.index > 100 %}{% break %}{% endif %}
{%- endfor %}
"""
TEMPLATES = {"llama3": LLAMA3, "chatml": CHATML, "gemma": GEMMA, "mistral": MISTRAL}
LOOPS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
DOUBLED = (
    "{{% set ns = namespace(x='a') %}}{{% for i in range(99) %}}{{% set ns.x = {} %}}{{% endfor %}}"
)
SYSTEM = {"role": "system", "content": "Be brief & kind to <everybody>.  "}
CHATS: list[list[dict[str, Any]]] = [
    [{"role": "user", "content": "Hello, wie geht's? 日本"}],
    [SYSTEM, {"role": "user", "content": "  Hi\n"}],
    [
        SYSTEM,
        {"role": "user", "content": "{{ 1 + 1 }} {% if x %}"},
        {"role": "assistant", "content": "<think>\nhm\n</think>\n\nTwo."},
        {"role": "user", "content": 'And "three"?'},
    ],
]


def expected(template: str, messages: list[dict[str, Any]], **values: Any) -> str:
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel({"<s>": 0, "</s>": 1}, unk_token="<s>")),
        bos_token="<s>",
        eos_token="</s>",
    )
    text = tokenizer.apply_chat_template(messages, chat_template=template, tokenize=False, **values)
    assert isinstance(text, str)
    return text


@pytest.mark.parametrize("asked", [True, False])
@pytest.mark.parametrize("name", TEMPLATES)
def test_text_is_that_of_transformers(name: str, asked: bool) -> None:
    for messages in CHATS:
        template = TEMPLATES[name]
        text = render(template, messages, bos="<s>", eos="</s>", add_generation_prompt=asked)
        assert text == expected(template, messages, add_generation_prompt=asked)
        assert messages[-1]["content"].strip() in text


def test_further_values_reach_the_template() -> None:
    tools = [{"type": "function", "function": {"name": "größe", "parameters": {"a": [1, None]}}}]
    for template, values in (
        (LLAMA3, {"tools": tools, "date_string": "1 Jan 2025"}),
        (CHATML, {"enable_thinking": False}),
        (CHATML, {"enable_thinking": True}),
    ):
        text = render(template, CHATS[0], "<s>", "</s>", **values)
        assert text == expected(template, CHATS[0], add_generation_prompt=True, **values)
    assert "größe" in render(LLAMA3, CHATS[0], tools=tools)
    content = [{"type": "text", "text": " a "}, {"type": "image"}, {"type": "text", "text": "b"}]
    messages = [{"role": "user", "content": content}]
    assert render(GEMMA, messages, "<s>") == expected(GEMMA, messages, add_generation_prompt=True)


def test_json_and_dates_as_templates_write_them() -> None:
    template = "{{ messages | tojson }}|{{ {'b': '<é>', 'a': 1} | tojson(indent=2) }}"
    assert render(template, CHATS[2]) == expected(template, CHATS[2])
    assert render("{{ strftime_now('%Y') }}", []) == time.strftime("%Y")


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{% for message in messages %}", "the chat template fails: Unexpected end of template"),
        ("{{ messages[0].role.nothing.more }}", "fails: .* has no attribute 'nothing'"),
        ("{{ messages | unheard_of }}", "fails: No filter named 'unheard_of'"),
        ("{{ 1 // 0 }}", "fails: ZeroDivisionError"),
        ("{{ messages['x' * 3].a }}", "fails"),
        ("{{ raise_exception('roles must alternate') }}", "fails: roles must alternate"),
        (
            "{{ ().__class__.__mro__[1].__subclasses__() }}",
            "fails: access to attribute '__class__'",
        ),
        ("{{ messages.append(1) }}", "fails: access to attribute 'append'"),
        ("{{ messages[0].update(role='x') }}", "fails: access to attribute 'update'"),
        ("{% for i in range(10**9) %}x{% endfor %}", "fails: OverflowError: Range too big"),
        ("{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}", "fails: RecursionError"),
        ("{{ 'a' * 20000000000 }}", r"fails: \* makes more than 33,554,432"),
        ("{{ 20000000000 * 'a' }}", r"fails: \* makes more than"),
        ("{{ [1] * 20000000000 }}", r"fails: \* makes more than"),
        ("{{ 9 ** (9 ** 9) }}", r"fails: \*\* makes a number of more than 65,536 bits"),
        (LOOPS, "fails: it takes more than 1,000,000 steps"),
        (LOOPS.replace("range(99999)", "('a' * 99999)"), "fails: it takes more than 1,000,000"),
        (LOOPS.replace(") %}{% endfor", ") if false %}{% endfor"), "fails: it takes more than"),
        ("{% for a in range(999) %}{{ range(99999) | list }}{% endfor %}", "takes more than"),
        (f"{DOUBLED.format('ns.x + ns.x')}", r"fails: \+ makes more than"),
        (f"{DOUBLED.format('ns.x ~ ns.x')}", "fails: ~ makes more than"),
        (f"{DOUBLED.format('ns.x * 2')}", r"fails: \* makes more than"),
        (DOUBLED.replace("'a'", "99").format("ns.x * ns.x"), r"fails: \* makes a number"),
        (
            "{% set ns = namespace(x='a') %}{% for i in range(99) %}"
            "{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = y %}{% endfor %}",
            "fails: it shows more than 33,554,432 characters",
        ),
        ("{% for i in range(9999) %}" + "x" * 9999 + "{% endfor %}", "fails: it shows more than"),
        (
            "{% macro a(n) %}{% if n %}{{ a(n - 1) }}{{ a(n - 1) }}{% endif %}{% endmacro %}"
            "{{ a(60) }}",
            "fails: it takes more than 1,000,000 steps",
        ),
        ("{% generation %}x", "fails"),
        ("{% include 'a' %}", "fails"),
    ],
)
def test_a_template_that_fails(template: str, message: str) -> None:
    start = time.process_time()
    with pytest.raises(ModelError, match=message):
        render(template, CHATS[0])
    assert time.process_time() - start < 20


def test_a_long_chat_stays_within_the_bounds() -> None:
    messages = CHATS[2] * 1000
    for name in ("llama3", "chatml", "gemma"):
        for _ in range(2):  # what was counted for one does not count for the next
            long = messages if name != "gemma" else CHATS[2][1:3] * 1000
            assert len(render(TEMPLATES[name], long)) > 50_000
    looped = "{% for m in messages %}{{ loop.index }}/{{ loop.length }}{{ loop.last }} {% endfor %}"
    assert render(looped, CHATS[2]) == expected(looped, CHATS[2])


def test_roles_that_a_template_refuses() -> None:
    wrong = [CHATS[0][0], CHATS[0][0]]
    with pytest.raises(ModelError, match="Conversation roles must alternate"):
        render(GEMMA, wrong)
    with pytest.raises(ModelError, match=re.escape("Only user and assistant roles")):
        render(MISTRAL, [{"role": "tool", "content": "x"}])


def test_without_jinja2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ImportError, match=r"jinja2 package: pip install tensai\[models\]"):
        render(CHATML, CHATS[0])
