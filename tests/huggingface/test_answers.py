"""Answers of decoder-only models, against full passes of transformers by loops over texts and classes."""

import json
import math
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tokenizers import Tokenizer
from torch import Tensor

import attnlight
from attnlight.__main__ import main
from attnlight.batch import NOT_ALLOWED, TextBatch
from attnlight.errors import InputError
from attnlight.functional import log_odds
from attnlight.huggingface import AnswerModel
from attnlight.huggingface.prompt_template import fill_chat, split_template, text_tokenizer
from attnlight.probing.context_ablation import Reading, Way
from attnlight.probing.removal import keep_items
from tests.commands import CPU, QUIET
from tests.huggingface import folders
from tests.huggingface.folders import write_model

STORIES = (
    "Mary moved to the bathroom. John went to the hallway. Mary went to the garden. John sat.",
    "John went to the hallway. Mary slept.",
)
QUESTIONS = ("Where is Mary?", "Where is John?")
ANSWERS = ("bathroom", "hallway", "the garden shed")
WORDS = (*STORIES, *QUESTIONS, *ANSWERS, "Context: Question: Answer: <|im_start|>user")
write_decoder = partial(folders.write_decoder, texts=WORDS * 5)
close = partial(torch.testing.assert_close, atol=1e-5, rtol=1e-5)


@pytest.fixture(scope="module", params=["llama", "qwen3", "gpt2", "gemma3"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_decoder(tmp_path_factory.mktemp("answers") / request.param, request.param)


@pytest.fixture(scope="module")
def model(folder: Path) -> Any:
    return AnswerModel(folder, classes=ANSWERS).eval()


@pytest.fixture(scope="module")
def eager(folder: Path) -> Any:
    kind = transformers.AutoModelForCausalLM
    return kind.from_pretrained(folder, attn_implementation="eager").eval()


def encode(model: Any, texts: Any = STORIES, queries: Any = QUESTIONS) -> TextBatch:
    batch: TextBatch = model.raw.encode(texts, queries=queries)
    return batch


@torch.no_grad()
def full_passes(model: Any, eager: Any, ids: Tensor, places: Tensor | None, mask: Any) -> Tensor:
    """Joint log probability of each answer after a prompt's ids, (C,), by a pass for each answer.

    `mask` gives, from the number of an answer's tokens, what each token reads.
    """
    found = []
    for row in model.answers:
        answer = model.numbers[row[row >= 0]]
        at = torch.arange(len(ids)) if places is None else places
        at = torch.cat([at, at[-1] + 1 + torch.arange(len(answer))])
        given = torch.cat([ids, answer])
        options = {} if mask is None else {"attention_mask": mask(len(answer))}
        logits = eager(given[None], position_ids=at[None], use_cache=False, **options).logits[0]
        each = logits.log_softmax(-1)[len(ids) - 1 : -1].gather(1, answer[:, None])
        found.append(each.sum())
    return torch.stack(found)


def test_logits_are_joint_log_probabilities_of_full_passes(model: Any, eager: Any) -> None:
    batch = encode(model)
    output, prompts = model(batch), model.prompts(batch)
    for text in range(2):
        ids = model.numbers[prompts.flat.batch.tokens[text][prompts.mask[text]]]
        close(output.logits[text], full_passes(model, eager, ids, None, None))
    assert not prompts.mask[1, 0], "no text is padded on the left"
    alone = model(batch.select(torch.tensor([1])))
    close(alone.logits, output.logits[1:])
    close(alone.weights, output.weights[1:])
    close(model.readout(output, output.weights.unsqueeze(2)).squeeze(1), output.logits)


def test_in_double_precision_they_are_equal(folder: Path) -> None:
    model = AnswerModel(folder, classes=ANSWERS).double().eval()
    kind = transformers.AutoModelForCausalLM
    full = kind.from_pretrained(folder, attn_implementation="sdpa").double().eval()
    batch = encode(model)
    found, prompts = model(batch).logits, model.prompts(batch)
    for text in range(2):
        ids = model.numbers[prompts.flat.batch.tokens[text][prompts.mask[text]]]
        expected = full_passes(model, full, ids, None, None)
        torch.testing.assert_close(found[text], expected, atol=1e-10, rtol=1e-10)


def test_weights_are_eager_attention_of_the_last_token_over_sentences(
    model: Any, eager: Any
) -> None:
    batch = encode(model)
    output, prompts = model(batch), model.prompts(batch)
    for text in range(2):
        real = prompts.mask[text]
        ids = model.numbers[prompts.flat.batch.tokens[text][real]]
        with torch.no_grad():
            row = eager(ids[None], output_attentions=True).attentions[-1][0, :, -1]
        items = torch.where(prompts.flat.batch.mask[text], prompts.flat.item[text], -1)[real]
        count = int(batch.mask[text].any(-1).sum())
        sums = torch.stack([row[:, items == item].sum(-1) for item in range(count)], dim=1)
        total = sums.sum(-1, keepdim=True)
        expected = torch.where(total > 0, sums / total, 1 / count)
        close(output.weights[text, :, :count], expected)


def test_given_embeddings_and_gradients(model: Any) -> None:
    batch = encode(model)
    embeddings = model.embed(batch).requires_grad_()
    output = model(batch, embeddings=embeddings)
    close(output.logits, model(batch).logits)
    (gradient,) = torch.autograd.grad(output.logits[:, 0].sum(), embeddings)
    assert (gradient[batch.mask].norm(dim=-1) > 0).all()
    assert not gradient[~batch.mask].any()


def full_pass_without(
    model: Any, eager: Any, prompts: Any, text: int, kept: Tensor, way: Way
) -> Tensor:
    """`full_passes` of a text of which some items (N,) alone are left."""
    real = prompts.mask[text]
    ids = model.numbers[prompts.flat.batch.tokens[text][real]]
    items = torch.where(prompts.flat.batch.mask[text], prompts.flat.item[text], -1)[real]
    stays = (items < 0) | kept[items.clamp(min=0)]

    def mask(answer: int) -> Tensor:
        columns = torch.cat([stays, torch.ones(answer, dtype=torch.bool)])
        if way == "masked":
            return columns[None].long()
        size, end = len(columns), int((items >= 0).nonzero().amax()) + 1
        reads = torch.ones(size, size, dtype=torch.bool).tril()
        reads[end:] &= columns
        return torch.where(reads, 0.0, torch.finfo(torch.float32).min)[None, None]

    if way == "removed":
        return full_passes(model, eager, ids[stays], None, None)
    return full_passes(model, eager, ids, torch.arange(len(ids)), mask)


def kept_sets() -> Tensor:
    sets = torch.tensor(
        [[1, 1, 1, 1], [0, 1, 1, 1], [1, 1, 0, 1], [0, 1, 0, 0], [1, 0, 0, 1]]
    ).bool()
    return torch.stack([sets, sets])


@pytest.mark.parametrize("way", ["removed", "masked", "hidden"])
def test_ablations_are_full_passes(model: Any, eager: Any, way: Way, folder: Path) -> None:
    batch = encode(model)
    found, tokens = model.ablated_logits(batch, kept_sets(), way)
    close(model.ablated_logits(batch, kept_sets(), way, budget=1)[0], found)
    prompts = model.prompts(batch)
    for text, number in product(range(2), range(5)):
        if way == "hidden" and folder.name == "gemma3":
            continue  # a mask of one's own takes the place of its windows
        kept = kept_sets()[text, number]
        close(
            found[text, number].float(), full_pass_without(model, eager, prompts, text, kept, way)
        )
    if way == "hidden":
        end = int(prompts.flat.batch.mask[0].nonzero().amax()) + 1
        assert tokens[0].tolist() == pytest.approx([1 - end / prompts.mask.shape[1]] * 5)


def prompts_read(model: Any, batch: TextBatch, kept: Tensor, way: Way) -> float:
    """Tokens that the model reads, padding included, as a multiple of the prompt's, without answers."""
    seen: list[int] = []

    def count(_: Any, args: Any, given: dict[str, Any]) -> None:
        embeddings = given.get("inputs_embeds")
        seen.append(0 if embeddings is None else embeddings.shape[:2].numel())

    handle = model.transformer.base_model.register_forward_pre_hook(count, with_kwargs=True)
    _, shares = model.ablated_logits(batch, kept, way)
    handle.remove()
    found = sum(seen) / model.prompts(batch).mask.shape[1]
    assert found >= 1 + float(shares.sum()) - 1e-9, "what is recorded leaves out padding alone"
    return found


def test_few_tokens_are_read_again(model: Any) -> None:
    batch = encode(model, ["Mary went to the garden. " * 16], ["Who?"])
    inside = model.prompts(batch).flat.batch.mask[0]
    suffix = len(inside) - 1 - int(inside.nonzero().amax())
    single = ~torch.eye(16).bool()[None]
    sets = torch.rand(1, 64, 16, generator=torch.Generator().manual_seed(0)) < 0.5
    most = 2 + 16 / 2 + 16 * suffix / len(inside)
    assert prompts_read(model, batch, single, "removed") <= most
    if model.transformer.config.model_type != "gemma3_text":  # whose windows count masked tokens
        assert prompts_read(model, batch, single, "masked") <= most
        assert prompts_read(model, batch, sets, "masked") <= 36
    assert prompts_read(model, batch, sets, "hidden") <= 2 + 64 * suffix / len(inside)


def test_candidates_are_the_only_answers(model: Any) -> None:
    batch = model.raw.encode(STORIES, queries=QUESTIONS, candidates=[ANSWERS[:2], ANSWERS[1:]])
    logits = model(batch).logits
    assert logits[0, 2] == logits[1, 0] == NOT_ALLOWED
    close(logits[0, :2], model(encode(model)).logits[0, :2])


def test_names_of_special_tokens_in_a_question_are_text(tmp_path: Path) -> None:
    write_decoder(tmp_path, "gpt2")
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    full = json.dumps(content)
    (end,) = Tokenizer.from_str(full).encode("<|endoftext|>").ids
    read = Tokenizer.from_str(text_tokenizer(full)).encode("Is it <|endoftext|>?").ids
    assert end not in read
    assert len(read) > 10


def test_a_chat_template_and_its_sandbox(tmp_path: Path) -> None:
    write_decoder(tmp_path, "gpt2")
    chat = "{% for m in messages %}<|endoftext|>{{ m['role'] }}\n{{ m['content'] }}\n{% endfor %}"
    chat += "{% if add_generation_prompt %}assistant\n{% endif %}"
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": chat}))
    texts, _ = split_template(AnswerModel(tmp_path, classes=ANSWERS).template)
    assert texts[0].startswith("<|endoftext|>user\nContext:")
    assert texts[2] == "\nassistant\n"
    assert "assistant" not in AnswerModel(tmp_path, classes=ANSWERS, chat=False).template
    with pytest.raises(InputError, match="cannot be rendered"):
        fill_chat("{{ ''.__class__.__mro__ }}", "{context}{question}")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"template": "{question}"}, r"template has \{context\} 0 times"),
        ({"template": "{context}{context}{question}"}, r"template has \{context\} 2 times"),
        ({"template": {"Context": {"context": None}}}, "expected a text: put it in quotes"),
        ({"classes": ["bathroom", " "]}, "the answer ' ' has no token"),
        ({"classes": ["bathroom", "bathroom "]}, "are the same tokens"),
    ],
)
def test_options_that_make_no_prompt(tmp_path: Path, options: Any, message: str) -> None:
    write_decoder(tmp_path, "gpt2")
    with pytest.raises(InputError, match=message):
        AnswerModel(tmp_path, **options)


def test_other_models_and_texts(tmp_path: Path) -> None:
    model = AnswerModel(write_decoder(tmp_path / "llama", "llama"), classes=ANSWERS).eval()
    with pytest.raises(InputError, match="is an encoder"):
        AnswerModel(write_model(tmp_path / "bert", auto="AutoModelForMaskedLM"))
    with pytest.raises(InputError, match="no part of GPT2LMHeadModel"):
        AnswerModel(write_model(tmp_path / "gpt2", "gpt2"))
    with pytest.raises(InputError, match="prompts are longer than the 256 tokens"):
        model(encode(model, [STORIES[0] * 30], QUESTIONS[:1]))
    with pytest.raises(InputError, match="with each passage"):
        model(model.raw.encode(STORIES))


def test_half_precision_and_a_model_in_memory(folder: Path, eager: Any) -> None:
    own = transformers.AutoModelForCausalLM.from_pretrained(folder)
    model = AnswerModel(own, folder, ANSWERS).eval()
    batch = encode(model)
    expected = AnswerModel(folder, classes=ANSWERS).eval()(batch)
    close(model(batch).logits, expected.logits)
    readings: list[Reading] = ["attention", "value_norm", "rollout"]
    single = [model.answer_attention(batch, of) for of in readings]
    ways: tuple[Way, ...] = ("removed", "masked", "hidden")
    exact = {way: model.ablated_logits(batch, kept_sets(), way)[0] for way in ways}
    half = model.bfloat16()(batch)
    assert half.logits.dtype == torch.float32
    assert (half.logits.softmax(-1) - expected.logits.softmax(-1)).abs().amax() < 0.1
    for of, rows in zip(readings, single, strict=True):
        assert ((model.answer_attention(batch, of) - rows).abs() / rows.amax()).amax() < 2**-4
    for way, logits in exact.items():
        found, _ = model.ablated_logits(batch, kept_sets(), way)
        # bfloat16 has 8 bits: an error of a few rounding steps relative to the log probabilities.
        largest = ((found - logits).abs() / logits.abs().clamp(min=1)).amax()
        assert 0 < float(largest) < 8 * 2**-8, way


def test_run_and_the_command_record_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_decoder(tmp_path / "model", "gpt2")
    rows = [
        {"passage": STORIES[n % 2].split(". ")[: 1 + n % 3], "query": QUESTIONS[n % 2]}
        | {"label": ANSWERS[n % 3]}
        for n in range(12)
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    found = attnlight.run(AnswerModel(folder), rows, "predictions").table("predictions")
    monkeypatch.chdir(tmp_path)
    options = ["--model", "answers", f"--model.net.path={folder}", "--data", "rows.jsonl"]
    options += ["--experiment", "stories", "--run", "one", "--tests", "predictions"]
    main(["test", *options, "--root", str(tmp_path / "runs"), *CPU, *QUIET])
    from attnlight.records import read_record

    path = tmp_path / "runs" / "stories" / "one" / "records" / "test" / "predictions.parquet"
    columns = read_record(path).columns
    assert list(columns["label"]) == list(found["label"])
    assert columns["probabilities"][5] == pytest.approx(list(found["probabilities"][5]), abs=1e-5)


def test_answer_attention_is_eager_attention_of_every_layer(model: Any, eager: Any) -> None:
    batch = encode(model)
    prompts = model.prompts(batch)
    rows = model.answer_attention(batch, "attention")
    rolled = model.answer_attention(batch, "rollout")
    norms = model.answer_attention(batch, "value_norm")
    assert norms.shape == (2, len(rows[0]), 1, 4)
    for text in range(2):
        real = prompts.mask[text]
        ids = model.numbers[prompts.flat.batch.tokens[text][real]]
        items = torch.where(prompts.flat.batch.mask[text], prompts.flat.item[text], -1)[real]
        with torch.no_grad():
            layers = eager(ids[None], output_attentions=True).attentions
        product = torch.eye(len(ids)).double()
        for number, layer in enumerate(layers):
            product = (torch.eye(len(ids)) + layer[0].double().mean(0)) / 2 @ product
            for item in range(int(batch.mask[text].any(-1).sum())):
                expected = layer[0, :, -1, items == item].sum(-1)
                close(rows[text, number, :, item].float(), expected)
        for item in range(int(batch.mask[text].any(-1).sum())):
            close(rolled[text, 0, 0, item], product[-1, items == item].sum(), check_dtype=False)


@pytest.fixture(scope="module")
def free(folder: Path) -> Any:
    return AnswerModel(folder, free=4).eval()


class TestFreeText:
    """The model's own greedy answer, against loops that read every prefix anew."""

    @torch.no_grad()
    def odds_of(self, eager: Any, ids: Tensor, answer: list[int]) -> float:
        """Log odds of the joint probability of an answer after a prompt's ids."""
        total, read = 0.0, ids.tolist()
        for token in answer:
            logits = eager(torch.tensor([read]), use_cache=False).logits[0, -1].double()
            total += float(logits.log_softmax(-1)[token])
            read.append(token)
        return total - float(torch.log1p(-torch.tensor(total).double().exp()))

    @torch.no_grad()
    def greedy(self, eager: Any, ids: Tensor) -> list[int]:
        answer: list[int] = []
        while len(answer) < 4:
            read = torch.tensor([[*ids.tolist(), *answer]])
            answer.append(int(eager(read, use_cache=False).logits[0, -1].argmax()))
            if answer[-1] == eager.generation_config.eos_token_id:
                return answer[:-1] or answer
        return answer

    def test_answers_and_their_log_odds(self, free: Any, eager: Any) -> None:
        batch = encode(free)
        output, prompts = free(batch), free.prompts(batch)
        raised = batch.known["raised"]
        odds = log_odds(output.logits, torch.zeros(2, dtype=torch.long)) - raised
        assert output.logits.argmax(-1).tolist() == [0, 0]
        without, _ = free.ablated_logits(batch, kept_sets(), "removed")
        shortened = log_odds(without, torch.zeros(2, dtype=torch.long)) - raised[:, None]
        for text in range(2):
            ids = free.numbers[prompts.flat.batch.tokens[text][prompts.mask[text]]]
            answer = self.greedy(eager, ids)
            found = batch.known["answer"][text]
            assert found[found >= 0].tolist() == answer
            own = self.odds_of(eager, ids, answer)
            assert float(odds[text].detach()) == pytest.approx(own, abs=1e-4)
            assert float(raised[text]) == pytest.approx(max(0, math.log(2) - own), abs=1e-4)
            real = prompts.mask[text]
            items = torch.where(prompts.flat.batch.mask[text], prompts.flat.item[text], -1)[real]
            for number, kept in enumerate(kept_sets()[text]):
                stays = (items < 0) | kept[items.clamp(min=0)]
                expected = self.odds_of(eager, ids[stays], answer)
                assert float(shortened[text, number]) == pytest.approx(expected, abs=1e-4)

    def test_a_batch_its_texts_and_their_copies_answer_alike(self, free: Any) -> None:
        batch = encode(free)
        logits = free(batch).logits
        for text in range(2):
            alone = encode(free).select(torch.tensor([text]))
            close(free(alone).logits, logits[text : text + 1])
            own, of_batch = (
                x[x >= 0] for x in (alone.known["answer"], batch.known["answer"][text])
            )
            assert own.tolist() == of_batch.tolist()
        kept = batch.mask.any(-1) & torch.tensor([False, True, True, True])
        shortened, _ = keep_items(batch, torch.arange(2), kept)
        assert torch.equal(shortened.known["answer"], batch.known["answer"])
        sets = kept[:, None]
        close(free(shortened).logits, free.ablated_logits(batch, sets, "removed")[0][:, 0])

    def test_the_page_shows_the_answer(self, free: Any) -> None:
        rows = [{"passage": story, "query": QUESTIONS[0]} for story in STORIES * 2]
        test: Any = {"class_path": "attnlight.callbacks.Texts"}
        found = attnlight.run(free, rows, [test]).table("texts")["answer"]
        batch = encode(free, STORIES, [QUESTIONS[0]] * 2)
        free(batch)
        assert list(found) == free.free_texts(batch) * 2
        assert all(found)

    def test_what_is_refused(self, folder: Path) -> None:
        with pytest.raises(InputError, match="free is 0"):
            AnswerModel(folder, free=0)
        with pytest.raises(InputError, match="free text has no `classes`"):
            AnswerModel(folder, classes=ANSWERS, free=2)
        with pytest.raises(InputError, match="no labels, which commands need"):
            AnswerModel.encoding_of({"path": str(folder), "free": 2}, ())
