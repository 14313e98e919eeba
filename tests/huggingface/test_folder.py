"""Folders that are damaged, hostile, or no classifiers of texts: one sentence each, and nothing runs."""

import builtins
import io
import json
import os
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from huggingface_hub.errors import RepositoryNotFoundError
from safetensors.torch import load_file, save_file

import attnlight
from attnlight.__main__ import main
from attnlight.data.pieces import read_tokenizer
from attnlight.errors import InputError
from attnlight.huggingface import HuggingFaceClassifier
from attnlight.records import read_record
from tests.commands import CPU, NO_FIGURE, QUIET
from tests.huggingface.folders import NAMES, TEXTS, write_model, write_tokenizer
from tests.huggingface.models import MODELS, assert_same

pytestmark = pytest.mark.usefixtures("few_steps")

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
AUTO = "AutoModelForSequenceClassification"


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("good") / "model", **NAMES)


@pytest.fixture
def folder(good: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(good, tmp_path / "model"))


def edit(folder: Path, file: str = "config.json", **changes: Any) -> None:
    content = json.loads((folder / file).read_text())
    (folder / file).write_text(json.dumps(content | changes))


def reweigh(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    state = load_file(folder / "model.safetensors")
    change(state)
    save_file(state, folder / "model.safetensors", {"format": "pt"})


def pickle(folder: Path) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def shard(folder: Path) -> None:
    model = transformers.BertForSequenceClassification.from_pretrained(folder)
    model.save_pretrained(folder, max_shard_size="20KB")
    (folder / "model.safetensors").unlink(missing_ok=True)


def shard_without_one(folder: Path) -> None:
    shard(folder)
    min(folder.glob("model-*.safetensors")).unlink()


def shard_from_outside(folder: Path) -> None:
    shutil.move(folder / "model.safetensors", folder.parent / "other.safetensors")
    listed = {"weight_map": {"x": "../other.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(listed))


def empty(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


def trainer_output(folder: Path) -> None:
    (folder / "checkpoint-500").mkdir()
    for file in [path for path in folder.iterdir() if path.is_file()]:
        file.rename(folder / "checkpoint-500" / file.name)
    (folder / "training_args.bin").write_bytes(b"")


def slow_tokenizer(folder: Path) -> None:
    vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    (folder / "vocab.txt").write_text("\n".join(vocabulary))
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "LayoutLMTokenizer"}')


def panicking(folder: Path) -> None:
    """tokenizers panics on a special token that its template lacks."""
    write_model(folder, "llama", AUTO)
    processor = json.loads((folder / "tokenizer.json").read_text())["post_processor"]
    processor["single"][0]["SpecialToken"]["id"] = "x"
    edit(folder, "tokenizer.json", post_processor=processor)


def token_tagger(folder: Path, name: str = "bert") -> None:
    empty(folder)
    write_model(folder, name, "AutoModelForTokenClassification")


def latin(folder: Path, file: str) -> None:
    (folder / file).write_bytes('{"model_type": "bért"}'.encode("latin-1"))


HARMFUL = {"model_type": "harmful", "auto_map": {"AutoConfig": "harm.Config"}}
CASES: dict[str, tuple[Callable[[Path], object], tuple[str, ...]]] = {
    "missing": (shutil.rmtree, ("there is no folder",)),
    "empty": (empty, ("is empty", "save_pretrained")),
    "no-config": (lambda f: (f / "config.json").unlink(), ("no config.json in",)),
    "trainer-output": (trainer_output, ("output folder of a Trainer", "model/checkpoint-500")),
    "run": (lambda f: (empty(f), (f / "fit.yaml").write_text("model: {}")), ("is a run of attnlight", "attnlight test")),
    "adapter": (lambda f: (f / "adapter_config.json").write_text("{}"), ("adapter", "merge")),
    "config-latin": (lambda f: latin(f, "config.json"), ("config.json", "utf-8")),
    "config-pointer": (lambda f: (f / "config.json").write_text(POINTER), ("git-lfs pointer", "git lfs pull")),
    "config-broken": (lambda f: (f / "config.json").write_text("{"), ("config.json is not readable JSON",)),
    "config-list": (lambda f: (f / "config.json").write_text("[]"), ("config.json holds a list",)),
    "config-deep": (lambda f: (f / "config.json").write_text("[" * 100_000), ("config.json is not readable",)),
    "config-junk": (lambda f: edit(f, hidden_size={"a": [{"b": None}]}), ("describes no model", "hidden_size")),
    "config-text": (lambda f: edit(f, text_config=5), ("describes no model", "text_config")),
    "config-architectures": (lambda f: edit(f, architectures=[[1]]), ("describes no model", "architectures")),
    "config-problem": (lambda f: edit(f, problem_type={}), ("describes no model", "problem_type")),
    "config-layers": (lambda f: edit(f, num_hidden_layers=2**40), ("describes no model", "num_hidden_layers")),
    "config-chunks": (lambda f: edit(f, chunk_size_feed_forward=5), ("no model that classifies texts", "chunk size 5")),
    "config-negative": (lambda f: edit(f, num_attention_heads=-3), ("no model that classifies texts",)),
    "config-unknown": (lambda f: edit(f, model_type="nothing"), ("no model_type 'nothing'", "transformers")),
    "config-link": (lambda f: ((f / "config.json").unlink(), (f / "config.json").symlink_to("/dev/zero")), ("no config.json",)),
    "quantised": (lambda f: edit(f, quantization_config={"quant_method": "awq"}), ("quantised",)),
    "own-code": (lambda f: edit(f, **HARMFUL), ("its own code (auto_map) is never run", "harmful")),
    "truncated": (lambda f: os.truncate(f / "model.safetensors", 10_000), ("model.safetensors is truncated or damaged",)),
    "pointer": (lambda f: (f / "model.safetensors").write_text(POINTER), ("git-lfs pointer", "git lfs pull")),
    "no-weights": (lambda f: (f / "model.safetensors").unlink(), ("no weights in", "expected model.safetensors")),
    "keras": (lambda f: (f / "model.safetensors").rename(f / "tf_model.h5"), ("tf_model.h5 is not read",)),
    "pickle": (pickle, ("pickled (pytorch_model.bin)", "python -c", "BertForSequenceClassification")),
    "shard-missing": (shard_without_one, ("no file model-00001-of", "model.safetensors.index.json lists")),
    "shard-outside": (shard_from_outside, ("no file ../other.safetensors",)),
    "sizes": (lambda f: edit(f, hidden_size=36), ("other sizes", "(32,), expected (36,)")),
    "fewer-layers": (lambda f: edit(f, num_hidden_layers=1), ("weights that are no part of", "bert.encoder.layer.1.", "another model")),
    "more-layers": (lambda f: edit(f, num_hidden_layers=3), ("lacks weights of its model", "bert.encoder.layer.2.")),
    "second-head": (lambda f: reweigh(f, lambda state: state.update({"classifier2.weight": torch.ones(2, 32)})), ("classifier2.weight", "another model")),
    "slow-tokenizer": (slow_tokenizer, ("vocab.txt, but no tokenizer.json", "AutoTokenizer", "python -c")),
    "no-tokenizer": (lambda f: (f / "tokenizer.json").unlink(), ("no tokenizer.json",)),
    "tokenizer-latin": (lambda f: latin(f, "tokenizer.json"), ("tokenizer.json", "utf-8")),
    "tokenizer-pointer": (lambda f: (f / "tokenizer.json").write_text(POINTER), ("git-lfs pointer",)),
    "tokenizer-junk": (lambda f: edit(f, "tokenizer.json", added_tokens=None), ("tokenizer.json",)),
    "tokenizer-of-another": (lambda f: write_tokenizer(f, "gpt2"), ("300 tokens", "the model embeddings of ")),
    "tokenizer-panic": (panicking, ("the tokenizer.json of", "is not one that can be read")),
    "regression": (lambda f: edit(f, problem_type="regression"), ("is a regression model", "num_labels 2")),
    "one-label": (lambda f: write_model(f, num_labels=1), ("is a regression model", "num_labels 1")),
    "multi-label": (lambda f: edit(f, problem_type="multi_label_classification"), ("may assign several classes", "multi_label_classification")),
    "tokens": (token_tagger, ("was trained to tag tokens (BertForTokenClassification)",)),
    "tokens-same-names": (lambda f: token_tagger(f, "modernbert"), ("was trained to tag tokens (ModernBertForTokenClassification)",)),
    "pairs": (lambda f: edit(f, id2label={"0": "not_entailment", "1": "entailment"}, label2id=None), ("reads passages with queries",)),
    "pairs-by-task": (lambda f: edit(f, finetuning_task="mrpc"), ("reads passages with queries",)),
    "interface": (lambda f: edit(f, model_type="deberta-v2"), ("model cannot be intercepted: DebertaV2ForSequenceClassification does",)),
    "class-numbers": (lambda f: edit(f, id2label={"0": "a", "2": "b"}), ("numbers its classes 0, 2; expected 0 to 1",)),
    "one-name": (lambda f: edit(f, id2label={"0": "a", "1": "A"}), ("several classes one name: a, A",)),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_one_sentence(case: str, folder: Path) -> None:
    damage, words = CASES[case]
    damage(folder)
    with pytest.raises(InputError) as error:
        attnlight.run(HuggingFaceClassifier(str(folder)), list(TEXTS), tests="predictions")
    assert all(word in str(error.value) for word in words)
    assert len(str(error.value)) < 600
    assert "\n" not in str(error.value)


IN_MEMORY: list[tuple[dict[str, Any], str]] = [
    ({"problem_type": "regression"}, "is a regression model"),
    ({"num_labels": 1}, "is a regression model"),
    ({"problem_type": "multi_label_classification"}, "may assign several classes"),
    ({"auto": "AutoModelForTokenClassification"}, r"tag tokens \(BertForTokenClassification\)"),
]


@pytest.mark.parametrize(("options", "said"), IN_MEMORY)
def test_models_in_memory(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        HuggingFaceClassifier(MODELS["bert"](**{"auto": AUTO} | options))


def logits(folder: str | Path) -> Any:
    model = HuggingFaceClassifier(folder).eval()
    return model(model.raw.encode(list(TEXTS))).logits.detach()


def linked(folder: Path) -> None:
    """As in the cache of the hub."""
    folder.rename(folder.parent / "own")
    folder.mkdir()
    for file in (folder.parent / "own").iterdir():
        (folder / file.name).symlink_to(file)


def of_older_versions(state: dict[str, torch.Tensor]) -> None:
    """Names of older versions, and weights of pretraining alone."""
    norm = "bert.embeddings.LayerNorm"
    state[f"{norm}.gamma"] = state.pop(f"{norm}.weight")
    state["bert.embeddings.position_ids"] = torch.arange(64)[None]
    state["cls.predictions.bias"] = torch.ones(90)
    state["cls.seq_relationship.weight"] = torch.ones(2, 32)


HARMLESS: dict[str, Callable[[Path], object]] = {
    "shards": shard,
    "links": linked,
    "older": lambda folder: reweigh(folder, of_older_versions),
    "name": lambda folder: edit(folder, _name_or_path="someone/else"),
    "weights": lambda folder: edit(folder, transformers_weights="../other.safetensors"),
    "kernel": lambda folder: edit(folder, attn_implementation="someone/kernel"),
    "own-kernel": lambda folder: edit(folder, _attn_implementation="flash_attention_2"),
    "fusion": lambda folder: edit(folder, fusion_config={"fuse": True}),
}


class TestWhatIsRead:
    """The same weights in other forms give the same logits, and nothing else is read."""

    @pytest.mark.parametrize("case", HARMLESS)
    def test_logits_are_those_of_the_weights(self, good: Path, folder: Path, case: str) -> None:
        HARMLESS[case](folder)
        assert len(list(folder.glob("model-*.safetensors"))) > 1 or case != "shards"
        assert_same(logits(folder), logits(good))

    @pytest.mark.parametrize("name", ["roberta", "distilbert", "electra", "gpt2", "modernbert"])
    def test_pretrained_models_are_trained_further(self, name: str, tmp_path: Path) -> None:
        kind, head = ("gpt2", "CausalLM") if name == "gpt2" else ("bert", "MaskedLM")
        size = write_tokenizer(tmp_path, kind).get_vocab_size()
        MODELS[name](f"AutoModelFor{head}", vocab_size=size).save_pretrained(tmp_path)
        assert HuggingFaceClassifier(tmp_path, num_classes=3).new

    def test_the_conversions_that_are_named(self, good: Path, folder: Path) -> None:
        pickle(folder)
        slow_tokenizer(folder)
        for _ in range(2):
            with pytest.raises(InputError) as error:
                logits(folder)
            command = str(error.value).partition("`")[2].partition("`")[0]
            program, option, code = shlex.split(command)
            assert (program, option) == ("python", "-c")
            exec(code, {})  # noqa: S102
        saved = load_file(folder / "model.safetensors")
        for name, values in load_file(good / "model.safetensors").items():
            assert_same(saved[name], values)
        assert HuggingFaceClassifier(folder).raw.encode(["a film"]).tokens.shape[0] == 1

    @pytest.mark.parametrize(
        "options",
        [
            {},
            {"tokenizer_class": "BertTokenizer", "do_lower_case": False},
            {"strip_accents": False, "tokenize_chinese_chars": False},
        ],
    )
    def test_a_vocabulary_of_word_pieces_is_what_transformers_makes_of_it(
        self, folder: Path, options: dict[str, Any]
    ) -> None:
        slow_tokenizer(folder)
        words = (folder / "vocab.txt").read_text() + "\n电\n影\nFilm\nnaïve\nnaive\n##影\n"
        (folder / "vocab.txt").write_text(words)
        (folder / "tokenizer_config.json").write_text(json.dumps(options))
        oracle = transformers.BertTokenizer.from_pretrained(folder)
        tokenizer, own = read_tokenizer(str(folder))
        for text in (*TEXTS, "A naïve, UNFUNNY Film 电影 \u2028 long zzz"):
            assert [own[number] for number in tokenizer.encode(text).ids] == oracle(text).input_ids
        if not options:
            (folder / "tokenizer_config.json").unlink()
            assert read_tokenizer(str(folder))[1] == own

    def test_files_written_over_do_not_change_a_model(self, folder: Path) -> None:
        model = HuggingFaceClassifier(folder).eval()
        batch = model.raw.encode(list(TEXTS))
        before = model(batch).logits
        reweigh(folder, lambda state: [values.zero_() for values in state.values()])
        assert_same(model(batch).logits, before)


def refuse(*_: object) -> None:
    raise AssertionError("the network was tried")


HARM = """
from pathlib import Path
Path(__file__).with_name("HARMED").touch()
raise SystemExit("harm was done")
"""


class TestHostileFolders:
    @pytest.fixture
    def hostile(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A folder with code beside the model, and a user who says yes to everything."""
        (folder / "harm.py").write_text(HARM)
        classes = ("AutoConfig", "AutoModel", AUTO, "AutoTokenizer")
        edit(folder, auto_map=dict.fromkeys(classes, "harm.Harm"))
        harm = {"auto_map": {"AutoTokenizer": ["harm.Harm", "harm.Harm"]}}
        (folder / "tokenizer_config.json").write_text(json.dumps(harm))
        monkeypatch.setattr(sys, "stdin", io.StringIO("y\n" * 100))
        monkeypatch.setattr(builtins, "input", lambda *_: "y")
        return folder

    @pytest.fixture(autouse=True)
    def no_network(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("socket.getaddrinfo", "socket.socket.connect", "socket.create_connection"):
            monkeypatch.setattr(name, refuse)

    def test_code_of_a_known_model_is_not_run(self, hostile: Path, good: Path) -> None:
        assert_same(logits(hostile), logits(good))
        options = HuggingFaceClassifier.stored_options({"path": str(hostile)})
        assert "auto_map" not in options["config"]
        assert not list(hostile.rglob("HARMED"))

    @pytest.mark.parametrize("architecture", [["Harm"], ["HarmForSequenceClassification"], None])
    def test_code_of_an_unknown_model(self, hostile: Path, architecture: Any) -> None:
        edit(hostile, model_type="harmful", architectures=architecture)
        for read in (HuggingFaceClassifier, attnlight.load):
            with pytest.raises(InputError, match=r"its own code \(auto_map\) is never run"):
                read(hostile)
        assert not list(hostile.rglob("HARMED"))

    def test_a_checkpoint_that_stores_the_path(self, hostile: Path, folder: Path) -> None:
        """Its configuration is as little trusted as the folder's."""
        own = HuggingFaceClassifier.stored_options({"path": str(folder)})
        harm = {"auto_map": {"AutoConfig": "harm.Harm", "AutoModel": "harm.Harm"}}
        kernel = {"attn_implementation": "someone/kernel", "_attn_implementation": "someone/kernel"}
        for path in (str(hostile), "gone/somewhere/else"):
            options = own | {"path": path, "config": own["config"] | harm | kernel}
            model = HuggingFaceClassifier(vocab_size=90, num_classes=2, **options)
            assert model.transformer.config._attn_implementation == "attnlight"
            options["config"] = options["config"] | {"model_type": "harmful"}
            if path != str(hostile):
                with pytest.raises(InputError, match="is never run"):
                    HuggingFaceClassifier(vocab_size=90, num_classes=2, **options)
        assert not list(hostile.rglob("HARMED"))

    def test_pickles_beside_the_weights(self, folder: Path, good: Path) -> None:
        class Harm:
            def __reduce__(self) -> Any:
                return Path.touch, (folder / "HARMED",)

        for name in ("pytorch_model.bin", "training_args.bin", "optimizer.pt", ".metadata"):
            with (folder / name).open("wb") as file:
                torch.save(Harm(), file)
        assert_same(logits(folder), logits(good))
        (folder / "model.safetensors").unlink()
        with pytest.raises(InputError, match="may run code"):
            logits(folder)
        assert not (folder / "HARMED").exists()


class TestHub:
    """Models by id come from the cache, in which transformers and huggingface_hub put them."""

    @pytest.fixture
    def cache(self, good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        repository = tmp_path / "hub/models--someone--films"
        shutil.copytree(good, repository / "snapshots/0123abcd")
        (repository / "refs").mkdir()
        (repository / "refs/main").write_text("0123abcd")
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        return repository

    def test_a_cached_model_and_one_that_is_nowhere(self, cache: Path, good: Path) -> None:
        assert_same(logits("someone/films"), logits(good))
        named = ({"path": path} for path in ("someone/films", str(good)))
        by_id, by_folder = map(HuggingFaceClassifier.stored_options, named)
        assert by_id["fingerprint"] == by_folder["fingerprint"]
        with pytest.raises(
            InputError, match="no folder someone/else, and the Hugging Face hub cannot"
        ):
            HuggingFaceClassifier("someone/else")

    def test_ids_are_models_everywhere(
        self,
        cache: Path,
        good: Path,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        monkeypatch.chdir(tmp_path)
        (expected,) = attnlight.explain(good, TEXTS[0])
        for found in (
            attnlight.explain("someone/films", TEXTS[0]),
            attnlight.explain(attnlight.load(Path("someone/films")), TEXTS[0]),
        ):
            assert found[0].attention == pytest.approx(expected.attention, abs=1e-6)
        rows = list(zip(TEXTS, ["NEG", "POS"] * 2, strict=True))
        run = attnlight.run("someone/films", rows, "predictions")
        assert run.folder.parts[-2:] == ("someone", "films")
        results = run.table("predictions")
        Path("films.csv").write_text("".join(f'"{t}",{c}\n' for t, c in [("text", "label"), *rows]))
        data = ["--data=films.csv", "--data.test=train", "--tests=predictions", NO_FIGURE]
        data += [*CPU, *QUIET]
        for words in (["someone/films"], ["--model=someone/films", "--experiment=films"]):
            assert main(["test", *data, *words, f"--run={len(words)}"]) == 0
            record = read_record(
                Path(f"checkpoints/films/{len(words)}/records/test/predictions.parquet")
            )
            assert list(record.columns["prediction"]) == list(results["prediction"])
        assert (
            attnlight.explain("checkpoints/films/1", TEXTS[0])[0].prediction == expected.prediction
        )

    def test_a_misspelt_path_is_not_looked_for(
        self, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("huggingface_hub.snapshot_download", refuse)
        monkeypatch.chdir(tmp_path)
        Path("checkpoints/films").mkdir(parents=True)
        with pytest.raises(
            InputError, match=r"no run or checkpoint checkpoints/fims.*mean 'films'"
        ):
            attnlight.load("checkpoints/fims")
        with pytest.raises(InputError, match="no folder nobody/fims, and the Hugging Face hub"):
            attnlight.load("nobody/fims")

    def test_a_model_that_the_hub_lacks(self, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def lacks(*_: Any, **__: Any) -> None:
            raise RepositoryNotFoundError.__new__(RepositoryNotFoundError, "404")

        monkeypatch.setattr("huggingface_hub.snapshot_download", lacks)
        with pytest.raises(
            InputError, match="no folder no/one, and the Hugging Face hub has no model"
        ):
            attnlight.load("no/one")

    def test_a_checkpoint_asks_the_cache_alone(
        self, cache: Path, good: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whoever wrote it chose the name."""
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
        monkeypatch.setattr("socket.getaddrinfo", refuse)
        stored = HuggingFaceClassifier.stored_options({"path": str(good)})
        for name, missing in (("someone/films", False), ("someone/else", True)):
            options = stored | {"path": name}
            model = HuggingFaceClassifier(num_classes=2, vocab_size=90, **options)
            model.require_tokenizer(read_tokenizer(str(good))[0].to_str())
            assert (model.missing is not None) is missing
