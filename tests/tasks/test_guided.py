"""A guided model attends as its guide does, text by text."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from attnlight.batch import TextBatch
from attnlight.compatibility import arguments
from attnlight.datamodules import PlantedEvidence
from attnlight.errors import InputError
from attnlight.problems.classification import attended_items
from attnlight.reference import Reference
from attnlight.tasks import AdversarialVariant, GuidedVariant
from tests.bases import Planted, batch_of, running, save, save_base, trainer
from tests.commands import CONFIGS, QUIET, attnlight_on_two, experiment
from tests.tasks.watching import Watch


@pytest.fixture(scope="module")
def corpus() -> Planted:
    return Planted()


@pytest.fixture
def base(tmp_path: Path, corpus: Planted) -> Path:
    return save_base(tmp_path / "base.ckpt", corpus, encoder="none", attention="dot")


def guided(corpus: PlantedEvidence, base: Path, **options: Any) -> GuidedVariant:
    return GuidedVariant(corpus.spec, str(base), **arguments(options))


def seen(folder: Path) -> dict[str, list[int]]:
    """Indices by split, of all loops and ranks."""
    found: dict[str, list[int]] = {}
    for path in folder.glob("*.json"):
        for split, indices in json.loads(path.read_text()).items():
            found.setdefault(split, []).extend(indices)
    return found


def test_every_text_of_every_loop_has_its_guide_s_attention(
    tmp_path: Path, corpus: Planted, base: Path
) -> None:
    """Under bucketing, in the shuffled batches of two epochs, and in evaluation."""
    task = guided(corpus, base)
    for verb in ("fit", "test", "predict"):
        started = trainer(tmp_path, Watch(str(base), str(tmp_path)), max_epochs=2)
        getattr(started, verb)(task, datamodule=corpus)
    found = seen(tmp_path)
    assert sorted(found["train"]) == sorted([*range(61)] * 2)
    assert sorted(found["validation"]) == sorted([*range(21)] * 2)
    assert sorted(found["test"]) == sorted([*range(23)] * 2)  # of test and of predict


@pytest.mark.ddp
@pytest.mark.slow
def test_two_devices_give_every_text_its_guide_s_attention(tmp_path: Path) -> None:
    sizes = ["--data.train_size=101", "--data.validation_size=33", "--data.test_size=21"]
    corpus = PlantedEvidence(train_size=101, validation_size=33, test_size=21)
    base = save_base(tmp_path / "base.ckpt", corpus)
    watch = f"--trainer.callbacks+={Watch.__module__}.Watch"
    watched = [watch, f"--trainer.callbacks.guide={base}", f"--trainer.callbacks.out={tmp_path}"]
    options = [*sizes, *QUIET, *watched, "--trainer.logger=false", "--trainer.max_epochs=2"]
    model = [f"--model.base={base}", "--model.guide=base", f"--root={tmp_path}", "--run=r"]
    root = str(CONFIGS.parent)
    attnlight_on_two(
        "fit", *experiment("planted_guided_mlp"), *options, *model, cwd=tmp_path, PYTHONPATH=root
    )
    run = tmp_path / "planted_guided_mlp" / "r"
    command = ["-c", f"{run}/fit.yaml", f"--ckpt_path={run}/best.ckpt", *QUIET]
    for verb in ("test", "predict"):
        attnlight_on_two(verb, *command, cwd=tmp_path, PYTHONPATH=root)
    found = seen(tmp_path)
    assert set(found["train"]) == set(range(101))
    assert set(found["validation"]) == set(range(33))
    assert sorted(found["test"]) == sorted([*range(21)] * 2)


def test_shuffled_attention_is_as_peaked_and_says_nothing(corpus: Planted, base: Path) -> None:
    tasks = [guided(corpus, base, guide="shuffled", shuffle_seed=seed) for seed in (0, 0, 1)]
    batch = batch_of(corpus)
    for task in tasks:
        running(task, corpus)
    first, again, other = (task.model(batch).weights for task in tasks)
    rows, mask = attended_items(batch)
    own, _ = Reference(base).outputs(corpus, "train").read(rows, mask)
    assert torch.equal(first.sort(-1).values, own.sort(-1).values)
    assert torch.equal(first, again)
    assert torch.equal(first > 0, own > 0)
    assert not torch.equal(first, own)
    assert not torch.equal(first, other)
    alone = tasks[0].model(batch.select(torch.arange(8) == 3)).weights
    assert torch.equal(alone[0], first[3])


def test_learned_and_uniform_guides_are_the_model_s_own(corpus: Planted, base: Path) -> None:
    learned = guided(corpus, base, guide="learned")
    names = {name for name, _ in learned.model.named_parameters() if "attention" in name}
    assert names == {"attention.key.weight", "attention.key.bias", "attention.value.weight"}
    uniform = guided(corpus, base, guide="uniform").model(batch_of(corpus)).weights
    torch.testing.assert_close(uniform.amax(-1), 1 / (uniform > 0).sum(-1))
    for task in (learned, guided(corpus, base, guide="uniform"), guided(corpus, base)):
        assert type(task.model.encoder).__name__ == "Average"  # type: ignore[attr-defined]
        assert task.model.decoder.in_features == 4


def test_guide_checkpoint_gives_its_own_attention(
    tmp_path: Path, corpus: Planted, base: Path
) -> None:
    adversary = AdversarialVariant(corpus.spec, str(base), 0.1)
    adversary.adopt_corpus(corpus)
    saved = save(adversary, tmp_path / "adversary.ckpt")
    batch = batch_of(corpus)
    for guide, checkpoint in (("adversary", saved), ("other", saved)):
        task = guided(corpus, base, guide=guide, guide_checkpoint=str(checkpoint))
        running(task, corpus)
        own = adversary.model.eval()(batch).weights
        torch.testing.assert_close(task.model(batch).weights, own, atol=2e-6, rtol=0)
        assert set(task.settled["inherited"]) == {"base", "guide"}


class TestRefusal:
    @pytest.mark.parametrize("guide", ["adversary", "other"])
    def test_no_guide_checkpoint(self, corpus: Planted, base: Path, guide: str) -> None:
        with pytest.raises(InputError, match=f"guide {guide} needs a guide_checkpoint"):
            guided(corpus, base, guide=guide)

    @pytest.mark.parametrize("guide", ["base", "shuffled", "uniform", "learned"])
    def test_guide_checkpoint_without_use(self, corpus: Planted, base: Path, guide: str) -> None:
        with pytest.raises(InputError, match=f"guide {guide} takes no guide_checkpoint"):
            guided(corpus, base, guide=guide, guide_checkpoint=str(base))

    def test_adversary_of_another_base(self, tmp_path: Path, corpus: Planted, base: Path) -> None:
        other = save_base(tmp_path / "other.ckpt", corpus, seed=9)
        adversary = AdversarialVariant(corpus.spec, str(other), 0.1)
        adversary.adopt_corpus(corpus)
        saved = save(adversary, tmp_path / "adversary.ckpt")
        for checkpoint in (saved, other):
            with pytest.raises(InputError, match="is no AdversarialVariant trained against"):
                guided(corpus, base, guide="adversary", guide_checkpoint=str(checkpoint))

    def test_guide_of_another_corpus(self, tmp_path: Path, corpus: Planted, base: Path) -> None:
        other = save_base(tmp_path / "other.ckpt", Planted(corpus_seed=2))
        task = guided(corpus, base, guide="other", guide_checkpoint=str(other))
        with pytest.raises(InputError, match=r"other\.ckpt was trained on another corpus"):
            trainer(tmp_path, fast_dev_run=True).fit(task, datamodule=corpus)

    def test_text_of_another_length(self, corpus: Planted, base: Path) -> None:
        task = guided(corpus, base)
        running(task, corpus)
        batch = batch_of(corpus)
        longer = TextBatch(batch.index.roll(1), batch.tokens, batch.mask)
        with pytest.raises(InputError, match=r"text \d+ has \d+ items, but the attention given"):
            task.model(longer)

    @pytest.mark.parametrize("used", [False, True])
    def test_raw_text(self, tmp_path: Path, corpus: Planted, base: Path, used: bool) -> None:
        task = guided(corpus, base)
        task.adopt_corpus(corpus)
        if used:
            trainer(tmp_path).test(task, corpus, verbose=False)
        with pytest.raises(InputError, match="no raw text"):
            task.classify(["good1 filler1"])


def test_a_guide_that_knows_helps(tmp_path: Path, corpus: Planted) -> None:
    """Told where the evidence is, words alone suffice early; shuffled attention says nothing."""
    texts = PlantedEvidence(train_size=600, validation_size=200, min_tokens=30, max_tokens=40)
    base = save_base(
        tmp_path / "base.ckpt", texts, encoder="none", attention="dot", embedding_scale=1
    )
    checkpoint = torch.load(base, weights_only=True)
    state = checkpoint["state_dict"]
    keywords = [token for word, token in vocabulary(texts).items() if word[:3] in ("bad", "goo")]
    state["model.embedding.weight"].zero_()[keywords, 0] = 5.0
    state["model.attention.key.weight"].zero_()[0, 0] = 1.0
    torch.save(checkpoint, base)
    accuracy = {}
    for guide in ("base", "shuffled"):
        torch.manual_seed(0)
        task = guided(texts, base, guide=guide, training={"learning_rate": 0.03})
        started = trainer(tmp_path, max_epochs=2)
        started.fit(task, datamodule=texts)
        accuracy[guide] = float(started.callback_metrics["val/accuracy"])
    assert accuracy["base"] > 0.95
    assert accuracy["shuffled"] < accuracy["base"] - 0.1


def vocabulary(corpus: PlantedEvidence) -> dict[str, int]:
    from tokenizers import Tokenizer

    found: dict[str, int] = Tokenizer.from_str(corpus.tokenizer_json).get_vocab()
    return found
