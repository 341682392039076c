"""Chat templates rendered as transformers renders them."""

import json

import pytest
import tokenizers
from transformers import PreTrainedTokenizerFast

from kernelwright.infer.serve import chat_template
from kernelwright.infer.serve.errors import RequestError
from kernelwright.support.errors import UsageError

CHATML = """\
{%- if tools %}
    {{- raise_exception("no tools") }}
{%- endif %}
{% for message in messages %}
    {% if loop.first and message.role != 'system' %}
<|im_start|>system
You help.<|im_end|>
    {% endif %}
{{ '<|im_start|>' + message['role'] }}
{{ message.content | trim }}{{ '<|im_end|>' }}
{% endfor %}
{% if add_generation_prompt %}
<|im_start|>assistant
{% endif %}
"""
LLAMA = """{{ bos_token }}{% for message in messages %}{% if message['role'] not in ['user', 'assistant'] %}{{ raise_exception('Only user and assistant roles') }}{% endif %}{% if message['role'] == 'user' %}[INST] {{ message['content'] }} [/INST]{% else %}{% generation %}{{ message['content'] ~ eos_token }}{% endgeneration %}{% endif %}{% if not loop.last %}{% continue %}{% endif %}{% endfor %}"""  # noqa: E501
DATED = """{% set ns = namespace(seen=0) %}{{ strftime_now("%Y") | length }}
{%- for m in messages %}{% set ns.seen = ns.seen + 1 %}{{ m | tojson }}{{ m | tojson(indent=2) }}
{%- endfor %}{{ ns.seen }}{{ pad_token is defined }}{{ documents is none }}"""
CONVERSATIONS = [
    [{"role": "user", "content": "Hello <b>&'\" 你 "}],
    [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi\n"},
        {"role": "user", "content": "{{ bos_token }}"},
    ],
]
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}


def theirs(template):
    library = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=library, **SPECIAL)
    tokenizer.chat_template = template
    return tokenizer


@pytest.mark.parametrize("template", [CHATML, LLAMA, DATED])
@pytest.mark.parametrize("messages", CONVERSATIONS)
def test_the_text_is_that_of_transformers(template, messages, tmp_path):
    tokenizer = theirs(template)
    tokenizer.save_pretrained(tmp_path)
    expected = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    loaded = chat_template.load(tmp_path)
    assert loaded is not None and loaded.render(messages) == expected


def test_it_is_found_in_each_of_its_places(tmp_path):
    assert chat_template.load(tmp_path) is None
    eos = {"content": "</s>", "lstrip": False, "special": True}
    config = {"chat_template": "one{{ eos_token }}", "eos_token": eos}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert chat_template.load(tmp_path).render([]) == "one</s>"
    named = [{"name": "tool_use", "template": "x"}, {"name": "default", "template": "two"}]
    config = {"chat_template": named, "eos_token": None}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert chat_template.load(tmp_path).render([]) == "two"
    (tmp_path / "chat_template.jinja").write_text("three")
    assert chat_template.load(tmp_path).render([]) == "three"


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ raise_exception('no system role') }}",
        "{{ messages[5].content }}",
    ],
)
def test_a_template_refuses_messages_or_reaches_nothing_else(template):
    template = chat_template.ChatTemplate(template, {})
    with pytest.raises(RequestError, match=r"^messages: the model's chat template refuses") as e:
        template.render([{"role": "user", "content": "x"}])
    assert e.value.status == 400 and e.value.param == "messages"


def test_damaged_files(tmp_path):
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(UsageError, match=r"tokenizer_config.json is damaged"):
        chat_template.load(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{% if %}"}))
    with pytest.raises(UsageError, match="the chat template is not valid"):
        chat_template.load(tmp_path)
