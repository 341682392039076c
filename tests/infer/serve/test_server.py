"""The server's answers, compared with the model: requests as clients send them, and every field."""

import json
import math
import random
import re
import shutil
from pathlib import Path

import pytest
import tokenizers
import torch
from starlette.testclient import TestClient

from kernelwright import models
from kernelwright.infer import generate
from kernelwright.infer.serve import server
from kernelwright.infer.serve.sizing import EngineSettings
from kernelwright.models import tokenizer
from support import served_models

RECORDED = Path(__file__).parent / "recorded"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return served_models.saved(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="module")
def model(folder):
    return models.from_pretrained(folder)


@pytest.fixture(scope="module")
def encoder(folder):
    return tokenizer.load(folder)


@pytest.fixture(scope="module")
def client(folder):
    with TestClient(served_models.loaded(folder).app) as client:
        yield client


def recorded(name, folder):
    request = json.loads((RECORDED / f"{name}.json").read_text())
    request["body"]["model"] = str(folder)
    return request


def post(client, path, headers=None, **body):
    return client.post(path, content=json.dumps(body), headers=headers)


def completion(client, **body):
    answer = post(client, "/v1/completions", **body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def events(answer):
    """The chunks of a stream, as clients read them."""
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    *chunks, last, end = answer.text.split("\n\n")
    assert (last, end) == ("data: [DONE]", "")
    return [json.loads(c.removeprefix("data: ")) for c in chunks]


def greedy(model, encoder, tokens, count):
    """The most likely continuation."""
    rows = generate.tokens(model, [tokens], count, vocabulary=encoder.size)
    return [t for (t,) in rows]


def log_probabilities(model, encoder, tokens):
    """Of every next token, (T, V), in float64 from the model's logits."""
    with torch.no_grad():
        logits = model(torch.tensor([tokens]))[0, :, : encoder.size]
    return logits.double().log_softmax(-1)


# as clients send and read


def test_log_likelihoods_of_lm_evaluation_harness(client, folder, model, encoder):
    request = recorded("lm_eval_loglikelihood", folder)
    prompts = request["body"]["prompt"]
    choices = post(client, request["path"], **request["body"]).json()["choices"]
    assert [c["index"] for c in choices] == [0, 1, 2]
    for choice, prompt in zip(choices, prompts, strict=True):
        expected = log_probabilities(model, encoder, prompt)
        given = choice["logprobs"]
        assert len(given["token_logprobs"]) == len(given["top_logprobs"]) == len(prompt) + 1
        assert given["token_logprobs"][0] is given["top_logprobs"][0] is None
        for i, token in enumerate(prompt[1:]):
            at = expected[i]
            assert given["token_logprobs"][i + 1] == pytest.approx(float(at[token]), abs=1e-4)
            assert max(given["top_logprobs"][i + 1].values()) == pytest.approx(
                float(at.max()), abs=1e-4
            )
            # the harness takes a token for the most likely one if the numbers are the same
            same = given["token_logprobs"][i + 1] == max(given["top_logprobs"][i + 1].values())
            assert same == (int(at.argmax()) == token)


def test_generation_of_lm_evaluation_harness(client, folder, model, encoder):
    request = recorded("lm_eval_generate", folder)
    choices = post(client, request["path"], **request["body"]).json()["choices"]
    for choice, prompt in zip(choices, request["body"]["prompt"], strict=True):
        tokens = greedy(model, encoder, prompt, 24)
        end = next((i for i, t in enumerate(tokens) if t in (*served_models.ENDS, encoder.end)), 24)
        text = encoder.decode(tokens[:end])
        for stop in request["body"]["stop"]:
            text = text.partition(stop)[0]
        assert choice["text"] == text


@pytest.mark.parametrize("name", ["vllm_bench_completions", "vllm_bench_chat"])
def test_streams_of_vllms_benchmark(client, folder, name):
    request = recorded(name, folder)
    chunks = events(post(client, request["path"], request["headers"], **request["body"]))
    *parts, last = chunks
    assert last["choices"] == [] and last["usage"]["completion_tokens"] == 20
    assert last["usage"]["total_tokens"] == last["usage"]["prompt_tokens"] + 20
    assert all(c["choices"] and c["usage"] is None for c in parts) and len(parts) == 20
    assert len({c["id"] for c in chunks}) == 1
    reasons = [c["choices"][0]["finish_reason"] for c in parts]
    assert reasons == [None] * 19 + ["length"]
    body = {**request["body"], "stream": False, "temperature": 0.0}
    del body["stream_options"]
    whole = post(client, request["path"], **body).json()["choices"][0]
    if "chat" in name:
        assert parts[0]["choices"][0]["delta"]["role"] == "assistant"
        text = "".join(c["choices"][0]["delta"]["content"] for c in parts)
        assert text == whole["message"]["content"]


def test_chat_of_lm_evaluation_harness(client, folder, model, encoder):
    request = recorded("lm_eval_chat", folder)
    answer = post(client, request["path"], **request["body"]).json()
    prompt = "<|system|>You count.\n<|user|>the cat\n<|assistant|>"
    tokens = encoder.encode(prompt).tolist()
    assert answer["usage"]["prompt_tokens"] == len(tokens)
    (choice,) = answer["choices"]
    assert choice["message"]["role"] == "assistant"
    new = greedy(model, encoder, tokens, 16)
    end = next((i for i, t in enumerate(new) if t in served_models.ENDS), 16)
    assert choice["message"]["content"] == encoder.decode(new[:end])


# fields


def test_a_stream_gives_the_same_text_and_log_probabilities(client):
    draw = random.Random(random.randrange(10**6))
    for path, extra in [
        ("/v1/completions", {"prompt": ["the cat", "a"], "logprobs": 2, "echo": True}),
        ("/v1/completions", {"prompt": "你好", "stop": ["e", "th"]}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}],
                                  "logprobs": True, "top_logprobs": 2}),
    ]:  # fmt: skip
        body = {"n": 2, "seed": draw.randrange(2**40), "max_tokens": 30, **extra}
        whole = post(client, path, **body).json()
        chunks = events(post(client, path, stream=True, **body))
        assert not any("usage" in c for c in chunks)
        for choice in whole["choices"]:
            parts = [c["choices"][0] for c in chunks]
            parts = [p for p in parts if p["index"] == choice["index"]]
            assert parts[-1]["finish_reason"] == choice["finish_reason"]
            if "message" in choice:
                text = "".join(p["delta"]["content"] for p in parts)
                assert text == choice["message"]["content"]
                content = [t for p in parts for t in p["logprobs"]["content"]]
                assert content == choice["logprobs"]["content"]
            else:
                assert "".join(p["text"] for p in parts) == choice["text"]
            if choice["logprobs"] and "tokens" in choice["logprobs"]:
                for field, values in choice["logprobs"].items():
                    assert [v for p in parts for v in p["logprobs"][field]] == values


def test_log_probabilities_of_an_echo_and_of_new_tokens(client, model, encoder):
    prompt = "the cat sat"
    answer = completion(client, prompt=prompt, logprobs=3, echo=True, max_tokens=9, seed=1,
                        ignore_eos=True)  # fmt: skip
    (choice,) = answer["choices"]
    given, tokens = choice["logprobs"], encoder.encode(prompt).tolist()
    assert choice["text"].startswith(prompt)
    assert answer["usage"] == {
        "prompt_tokens": len(tokens), "completion_tokens": 9, "total_tokens": len(tokens) + 9
    }  # fmt: skip
    names = {}
    for token in range(encoder.size):
        names.setdefault(encoder.decode([token]), []).append(token)
    for name in given["tokens"][len(tokens) :]:
        at = log_probabilities(model, encoder, tokens)[-1]
        value = given["token_logprobs"][len(tokens)]
        (token,) = [t for t in names[name] if math.isclose(at[t], value, abs_tol=1e-4)]
        best, which = at.topk(3)
        top = given["top_logprobs"][len(tokens)]
        for t, p in zip(which.tolist(), best.tolist(), strict=True):
            assert top[encoder.decode([t])] >= p - 1e-4
        tokens.append(token)
        before = given["tokens"][: len(tokens) - 1]
        assert given["text_offset"][len(tokens) - 1] == sum(map(len, before))


def test_an_echo_alone_generates_nothing(client):
    answer = completion(client, prompt="the cat", echo=True, max_tokens=0, logprobs=0)
    (choice,) = answer["choices"]
    assert choice["text"] == "the cat" and choice["finish_reason"] == "length"
    assert len(choice["logprobs"]["tokens"]) == answer["usage"]["prompt_tokens"]
    assert answer["usage"]["completion_tokens"] == 0


def test_seeds_choose_the_text(client):
    def texts(**more):
        answer = completion(client, prompt="the", max_tokens=12, n=3, **more)
        return [c["text"] for c in answer["choices"]]

    assert texts(seed=5) == texts(seed=5) != texts(seed=-5)
    assert len(set(texts(seed=5))) == 3
    assert texts() != texts()
    assert len(set(texts(temperature=0))) == len(set(texts(top_k=1))) == 1
    assert texts(temperature=0) == texts(top_p=1e-9) == texts(min_p=1.0)


def test_stop_strings_and_end_tokens(client, model, encoder):
    prompt = "the dog"
    new = greedy(model, encoder, encoder.encode(prompt).tolist(), 40)
    base = {"prompt": prompt, "max_tokens": 40, "temperature": 0}
    whole = completion(client, **base, ignore_eos=True)["choices"][0]
    assert (whole["text"], whole["finish_reason"]) == (encoder.decode(new), "length")
    middle = whole["text"][9:12]
    cut = completion(client, **base, ignore_eos=True, stop=[middle, "never"])
    expected = whole["text"].partition(middle)[0]
    assert cut["choices"][0]["text"] == expected and cut["choices"][0]["finish_reason"] == "stop"
    assert cut["usage"]["completion_tokens"] < 40
    end = new[6]
    cut = completion(client, **base, ignore_eos=True, stop_token_ids=[end])["choices"][0]
    assert cut["text"] == encoder.decode(new[: new.index(end)]) and cut["finish_reason"] == "stop"


def test_the_models_own_end_tokens_all_count(folder, model, encoder, tmp_path):
    new = greedy(model, encoder, encoder.encode("the dog").tolist(), 20)
    first = next(i for i in range(3, 20) if new[i] not in new[:i])
    for ends in ([new[first], 5], [5, new[first]]):
        shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
        (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
        with TestClient(served_models.loaded(tmp_path).app) as client:
            base = {"prompt": "the dog", "temperature": 0, "max_tokens": 20}
            (choice,) = completion(client, **base)["choices"]
            assert choice["text"] == encoder.decode(new[: min(first, *at(new, ends))])
            assert choice["finish_reason"] == "stop"
            (choice,) = completion(client, **base, ignore_eos=True)["choices"]
            assert choice["text"] == encoder.decode(new)


def at(tokens, ends):
    return [tokens.index(e) for e in ends if e in tokens]


def test_all_forms_of_a_prompt(client, encoder):
    one, two = ([int(t) for t in encoder.encode(p)] for p in ("the cat", "hat"))
    texts = {}
    for name, prompt in [("texts", ["the cat", "hat"]), ("tokens", [one, two])]:
        answer = completion(client, prompt=prompt, temperature=0, max_tokens=6)
        texts[name] = [c["text"] for c in answer["choices"]]
        assert answer["usage"]["prompt_tokens"] == len(one) + len(two)
    singles = [
        completion(client, prompt=p, temperature=0, max_tokens=6)["choices"][0]["text"]
        for p in (one, "hat")
    ]
    assert texts["texts"] == texts["tokens"] == singles
    # an empty text begins with the token between documents
    empty = completion(client, prompt="", temperature=0, max_tokens=6)
    end = completion(client, prompt=[encoder.end], temperature=0, max_tokens=6)
    assert empty["choices"] == end["choices"]


def test_texts_begin_as_the_models_texts_begin(folder, encoder, tmp_path):
    """As with Llama's tokenizer; neither messages nor lists of tokens get the special token."""
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "tokenizer.json"
    library = tokenizers.Tokenizer.from_file(str(path))
    library.post_processor = tokenizers.processors.TemplateProcessing(
        single="<|endoftext|> $A <|endoftext|>", special_tokens=[("<|endoftext|>", encoder.end)]
    )
    library.save(str(path))
    plain = encoder.encode("the cat").tolist()
    base = {"temperature": 0, "max_tokens": 6, "ignore_eos": True}
    with TestClient(served_models.loaded(tmp_path).app) as client:
        text = completion(client, prompt="the cat", **base)
        tokens = completion(client, prompt=[encoder.end, *plain], **base)
        assert text["choices"] == tokens["choices"] and text["usage"] == tokens["usage"]
        assert completion(client, prompt=plain, **base)["usage"]["prompt_tokens"] == len(plain)
        messages = [{"role": "user", "content": "a"}]
        usage = post(client, "/v1/chat/completions", messages=messages, **base).json()["usage"]
        assert usage["prompt_tokens"] == len(encoder.encode("<|user|>a\n<|assistant|>"))


def test_deterministic_answers_are_equal_in_bits_alone_and_together(folder):
    engine = EngineSettings(deterministic=True, step_tokens=64, sequences=8)
    loaded = server.load(folder, torch.device("cpu"), server.Settings(engine))
    draw = random.Random(random.randrange(10**6))
    prompts = [draw.choices(range(256), k=draw.randint(1, 40)) for _ in range(5)]
    base = {"seed": 3, "max_tokens": 12, "logprobs": 2, "echo": True, "n": 2}
    with TestClient(loaded.app) as client:
        together = completion(client, prompt=prompts, **base)["choices"]
        alone = [c for p in prompts for c in completion(client, prompt=p, **base)["choices"]]
    for i, (one, other) in enumerate(zip(together, alone, strict=True)):
        assert one == {**other, "index": i}


def test_the_context_ends_an_answer(client):
    answer = completion(client, prompt=[5] * 60, max_tokens=99, ignore_eos=True)
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 4
    chat = {"messages": [{"role": "user", "content": "a"}], "temperature": 0, "ignore_eos": True}
    usage = post(client, "/v1/chat/completions", **chat).json()["usage"]
    assert usage["total_tokens"] == 64


def test_neutral_values_of_fields_are_accepted(client):
    neutral = {
        "frequency_penalty": 0, "presence_penalty": 0.0, "repetition_penalty": 1.0, "best_of": 1,
        "logit_bias": {}, "suffix": None, "user": "me", "min_tokens": 0, "top_k": -1, "stop": None,
        "logprobs": None, "seed": None, "n": 1, "use_beam_search": False, "metadata": {},
    }  # fmt: skip
    assert completion(client, prompt="a", max_tokens=2, **neutral)
    chat = {"tools": [], "tool_choice": "none", "response_format": {"type": "text"}}
    messages = [{"role": "user", "content": "a", "name": "me"}]
    assert post(client, "/v1/chat/completions", messages=messages, max_tokens=2, **chat).is_success


WRONG = [
    ({"prompt": "a", "spam": 1}, "spam: is not a known field"),
    ({"prompt": "a", "frequency_penalty": 0.5}, "frequency_penalty: is not supported"),
    ({"prompt": "a", "best_of": 2}, "best_of: is not supported"),
    ({"prompt": "a", "logit_bias": {"5": 1}}, "logit_bias: is not supported"),
    ({}, "prompt: is missing"),
    ({"prompt": []}, "prompt: must be a string, a list"),
    ({"prompt": [[]]}, "prompt: must be a string, a list"),
    ({"prompt": ["a", 1]}, "prompt: must be a string, a list"),
    ({"prompt": [True]}, "prompt: must be a string, a list"),
    ({"prompt": [1, 5000]}, "prompt: has tokens outside the vocabulary of 290"),
    ({"prompt": [290]}, "prompt: has tokens outside the vocabulary of 290"),
    ({"prompt": [-1]}, "prompt: has tokens outside the vocabulary"),
    ({"prompt": "\ud800"}, "prompt: contains a surrogate"),
    ({"prompt": [5] * 64}, "prompt: has 64 tokens; the model's context is 64"),
    ({"prompt": "a", "max_tokens": 0}, "max_tokens: must be an integer from 1"),
    ({"prompt": "a", "max_tokens": 2.5}, "max_tokens: must be an integer"),
    ({"prompt": "a", "max_tokens": True}, "max_tokens: must be an integer"),
    ({"prompt": "a", "temperature": -1}, "temperature: must be finite and not negative"),
    ({"prompt": "a", "temperature": math.nan}, "temperature: must be finite"),
    ({"prompt": "a", "temperature": "hot"}, "temperature: must be a number"),
    ({"prompt": "a", "temperature": 10**400}, "temperature: must be finite"),
    ({"prompt": "a", "top_p": 0}, "top_p: must be above 0"),
    ({"prompt": "a", "min_p": 2}, "min_p: must be between 0 and 1"),
    ({"prompt": "a", "top_k": -2}, "top_k: must be an integer"),
    ({"prompt": "a", "n": 0}, "n: must be an integer from 1"),
    ({"prompt": "a", "logprobs": True}, "logprobs: must be an integer"),
    ({"prompt": "a", "logprobs": 21}, "logprobs: must be an integer from 0 to 20"),
    ({"prompt": "a", "seed": 2**63}, "seed: must be an integer"),
    ({"prompt": "a", "stop": [""]}, "stop: a string is empty"),
    ({"prompt": "a", "stop": ["a"] * 17}, "stop: must be a string, or a list of at most 16"),
    ({"prompt": "a", "stop": [1]}, "stop: must be a string"),
    ({"prompt": "a", "stop_token_ids": "1"}, "stop_token_ids: must be a list of tokens"),
    ({"prompt": "a", "stream": "yes"}, "stream: must be true or false"),
    ({"prompt": "a", "stream_options": {"include_usage": True}}, "stream_options: needs stream"),
    ({"prompt": "a", "stream": True, "stream_options": {"x": 1}}, "x: is not a known field"),
    ({"prompt": "a", "echo": 1}, "echo: must be true or false"),
    ([], "the body: must be a JSON object"),
    ({"messages": []}, "messages: must be a list of messages"),
    ({"messages": ["a"]}, r"messages\[0\]: must be a JSON object"),
    ({"messages": [{"role": "tool", "content": "a"}]}, r"messages\[0\].role: must be one of"),
    ({"messages": [{"role": "user"}]}, r"messages\[0\].content: must be a string"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "only 'text'"),
    ({"messages": [{"role": "user", "content": "a"}], "tools": [{}]}, "tools: is not supported"),
    ({"messages": [{"role": "user", "content": "a"}], "prompt": "a"}, "prompt: is not a known"),
    ({"messages": [{"role": "user", "content": "a"}], "top_logprobs": 2}, "top_logprobs: needs"),
    ({"messages": [{"role": "user", "content": "a"}], "max_tokens": 1,
      "max_completion_tokens": 2}, "max_tokens: differs"),
    ({"messages": [{"role": "user", "content": "a" * 80}]}, "messages: has .* context is 64"),
]  # fmt: skip


@pytest.mark.parametrize("body, message", WRONG, ids=[m[:40] for _, m in WRONG])
def test_wrong_requests_are_refused_by_name(client, body, message):
    chat = isinstance(body, dict) and "messages" in body
    path = "/v1/chat/completions" if chat else "/v1/completions"
    answer = client.post(path, content=json.dumps(body))
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert re.search(message, error["message"]), error["message"]


def test_bodies_that_are_no_json(client):
    for body in (b"", b"{", b"\xff", b"[" * 100_000, b'{"prompt": ' + b"9" * 5000 + b"}"):
        answer = client.post("/v1/completions", content=body)
        assert answer.status_code == 400
        assert answer.json()["error"]["message"].startswith(("the body is not JSON", "prompt"))


def test_other_models_paths_and_methods(client, folder):
    answer = post(client, "/v1/completions", prompt="a", model="gpt-4")
    assert answer.status_code == 404 and answer.json()["error"]["code"] == "model_not_found"
    assert client.get("/v1/other").json()["error"]["message"] == "/v1/other: Not Found"
    assert client.get("/v1/completions").status_code == 405
    (listed,) = client.get("/v1/models").json()["data"]
    assert listed["id"] == str(folder) and listed["max_model_len"] == 64
    assert client.get("/health").json() == {"status": "ok"}


def test_a_model_without_a_chat_template(tmp_path):
    folder = served_models.saved(tmp_path, chat=False)
    with TestClient(served_models.loaded(folder).app) as client:
        answer = post(client, "/v1/chat/completions", messages=[{"role": "user", "content": "a"}])
    assert answer.status_code == 400
    assert "has no chat template; use /v1/completions" in answer.json()["error"]["message"]


def test_an_api_key(folder):
    with TestClient(served_models.loaded(folder, api_key="secret").app) as client:
        assert client.get("/health").is_success and client.get("/metrics").is_success
        for headers in ({}, {"authorization": "Bearer no"}, {"authorization": b"Bearer s\xe9"}):
            answer = client.get("/v1/models", headers=headers)
            assert answer.status_code == 401
            assert answer.json()["error"]["type"] == "authentication_error"
        good = {"authorization": "Bearer secret"}
        assert client.get("/v1/models", headers=good).is_success


def test_metrics(folder):
    with TestClient(served_models.loaded(folder).app) as client:
        completion(client, prompt="the cat", max_tokens=5, ignore_eos=True, n=2)
        post(client, "/v1/completions", prompt=1)
        values = dict(
            line.rsplit(" ", 1)
            for line in client.get("/metrics").text.splitlines()
            if not line.startswith("#")
        )
    name = "kernelwright_"
    assert values[name + 'http_responses_total{path="/v1/completions",status="200"}'] == "1"
    assert values[name + 'http_responses_total{path="/v1/completions",status="400"}'] == "1"
    assert values[name + 'texts_finished_total{reason="length"}'] == "2"
    assert values[name + "generated_tokens_total"] == "10"
    assert values[name + "requests_queued"] == values[name + "sequences_running"] == "0"
    for histogram, count in [("time_to_first_token", 2), ("time_per_output_token", 2),
                             ("request", 2)]:  # fmt: skip
        stem = f"{name}{histogram}_seconds"
        buckets = [int(v) for k, v in values.items() if k.startswith(stem + "_bucket")]
        assert buckets == sorted(buckets) and buckets[-1] == int(values[stem + "_count"]) == count
        assert float(values[stem + "_sum"]) > 0
