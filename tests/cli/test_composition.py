"""One configuration from files and options: what replaces what, and what is refused."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from attnlight.cli.composition import DEFAULT_TRAINER, compose, read_config
from attnlight.errors import InputError
from tests.commands import CONFIGS, Refused

KEYS = {"seed_everything", "overwrite", "ckpt_path", "verbose", "run", "data", "model"} | {
    f"trainer.{key}" for key in yaml.safe_load(DEFAULT_TRAINER.read_text())["trainer"]
}
TRAINER = ["-c", str(CONFIGS / "trainer.yaml")]
SST = ["-c", str(CONFIGS / "experiments/sst_bilstm.yaml")]
PERMUTATION = ["-c", str(CONFIGS / "tests/attention_permutation.yaml")]
FIT_YAML = {
    "seed_everything": 0,
    "trainer": {
        "max_epochs": 3,
        "callbacks": [
            {"class_path": "lightning.pytorch.callbacks.EarlyStopping"},
            {"class_path": "attnlight.callbacks.AttentionPermutation", "init_args": {"draws": 7}},
        ],
    },
    "model": {
        "class_path": "attnlight.tasks.AttentionClassifier",
        "init_args": {"net": {"encoder": "cnn", "hidden_size": 9}},
    },
    "data": {
        "class_path": "attnlight.datamodules.TextDataModule",
        "init_args": {"path": "one", "local": "one_here", "digits": "qqq"},
    },
    "ckpt_path": None,
    "overwrite": False,
}


def composed(*arguments: str, verb: str = "fit") -> dict[str, Any]:
    return compose(verb, arguments, KEYS).config


def written(folder: Path, content: dict[str, Any], name: str = "more.yaml") -> str:
    (folder / name).write_text(yaml.safe_dump(content, sort_keys=False))
    return str(folder / name)


def callbacks(config: dict[str, Any]) -> list[str]:
    return [item["class_path"].rpartition(".")[2] for item in config["trainer"]["callbacks"]]


DEFAULTS = callbacks(read_config(DEFAULT_TRAINER))


class TestData:
    """Two corpora never mix."""

    @pytest.mark.parametrize("how", ["option", "option=", "section", "file in a section"])
    def test_is_replaced_whole(self, tmp_path: Path, how: str) -> None:
        other = {"class_path": "attnlight.datamodules.TextDataModule", "init_args": {"path": "two"}}
        file = written(tmp_path, other, "other.yaml")
        more = {
            "option": ["--data", file],
            "option=": [f"--data={file}"],
            "section": ["-c", written(tmp_path, {"data": other})],
            "file in a section": ["-c", written(tmp_path, {"data": "other.yaml"})],
        }
        config = composed("-c", written(tmp_path, FIT_YAML, "fit.yaml"), *more[how])
        assert config["data"] == other
        assert config["model"] == FIT_YAML["model"]

    @pytest.mark.parametrize("name", ["reviews", "./reviews", "reviews/"])
    def test_may_be_a_folder(self, here: Path, name: str) -> None:
        """Of the current one, also where a file that comes with attnlight has the name."""
        for folder in ("reviews", "imdb"):
            (here / folder).mkdir()
        composition = compose("fit", [f"--data={name}"], KEYS)
        assert composition.config["data"]["init_args"] == {"path": "reviews"}
        assert composition.corpus == "reviews"
        assert composed("--data=imdb")["data"]["init_args"] == {"path": "imdb"}
        assert composed("--data=data/imdb")["data"]["init_args"]["path"] == "stanfordnlp/imdb"

    @pytest.mark.parametrize(
        ("model", "file", "kind"),
        [
            ("tagger_bilstm", "tags.conll", "Chunking"),
            ("tagger_bilstm", "tags.jsonl", "Chunking"),
            ("tagger_text", "tags.tsv", "Chunking"),
            ("bilstm_additive", "tags.tsv", "Text"),
            *(("bilstm_additive", f"a/tags.{x}", "Text") for x in ("csv", "jsonl", "parquet")),
        ],
    )
    @pytest.mark.parametrize("turned", [False, True])
    def test_is_of_tags_for_a_tagger(self, model: str, file: str, kind: str, turned: bool) -> None:
        options = ["--model", model, f"--data={file}"]
        found = compose("fit", options[2:] + options[:2] if turned else options, KEYS)
        kind = f"attnlight.datamodules.{kind}DataModule"
        assert found.config["data"] == {"class_path": kind, "init_args": {"path": file}}
        assert found.corpus == "tags"

    def test_named_in_a_file_lies_beside_it(self, tmp_path: Path) -> None:
        file = written(tmp_path, {"data": "a/texts.csv"})
        assert composed("-c", file)["data"]["init_args"] == {"path": str(tmp_path / "a/texts.csv")}

    def test_has_sentences_for_a_hierarchical_model(self) -> None:
        found = composed("--data=texts.csv", "--model=han_rnn")["data"]["init_args"]
        assert found == {"path": "texts.csv", "sentences": "nested", "boundary_tokens": False}

    def test_without_a_class_changes_single_options(self, tmp_path: Path) -> None:
        more = written(tmp_path, {"data": {"init_args": {"digits": "0"}}})
        config = composed("-c", written(tmp_path, FIT_YAML, "fit.yaml"), "-c", more)
        own = FIT_YAML["data"]
        assert config["data"] == own | {"init_args": own["init_args"] | {"digits": "0"}}


class TestModel:
    def test_of_the_same_class_is_merged_option_by_option(self, tmp_path: Path) -> None:
        named = {"class_path": "AttentionClassifier", "init_args": {"net": {"attention": "dot"}}}
        for part in (named, {"init_args": named["init_args"]}):
            more = written(tmp_path, {"model": part})
            config = composed("-c", written(tmp_path, FIT_YAML, "fit.yaml"), "-c", more)
            expected = {"encoder": "cnn", "hidden_size": 9, "attention": "dot"}
            assert config["model"]["init_args"] == {"net": expected}

    @pytest.mark.parametrize("option", ["--model", "--model.class_path"])
    def test_of_another_class_is_replaced(self, tmp_path: Path, option: str) -> None:
        fit = written(tmp_path, FIT_YAML, "fit.yaml")
        config = composed("-c", fit, f"{option}=attnlight.tasks.SeedVariant")
        assert config["model"] == {"class_path": "attnlight.tasks.SeedVariant"}
        assert composed("-c", fit, f"{option}=AttentionClassifier")["model"]["init_args"]

    @pytest.mark.parametrize("null", ["null", "Null", "NULL", "~"])
    def test_an_option_is_unset_as_yaml_spells_null(self, tmp_path: Path, null: str) -> None:
        fit = ["-c", written(tmp_path, FIT_YAML, "fit.yaml")]
        for given in ([f"--model.net.hidden_size={null}"], ["--model.net.hidden_size", null]):
            found = compose("fit", [*fit, *given], KEYS)
            assert found.config["model"]["init_args"]["net"]["hidden_size"] is None
            assert found.options == []
        for text in ("none", ""):
            found = compose("fit", [*fit, f"--model.vectors.path={text}"], KEYS)
            assert found.options == [f"--model.vectors.path={text}"]


class TestTrainer:
    """The default lies under everything, and tests stay."""

    def test_naming_the_default_changes_nothing(self) -> None:
        without = compose("fit", [*SST, *PERMUTATION], KEYS)
        for order in ([*TRAINER, *SST, *PERMUTATION], [*SST, *PERMUTATION, *TRAINER]):
            assert compose("fit", order, KEYS) == without
        assert callbacks(without.config) == [*DEFAULTS, "AttentionPermutation"]
        assert composed()["trainer"] == read_config(DEFAULT_TRAINER)["trainer"]

    def test_tests_before_a_trainer_of_ones_own_stay(self, tmp_path: Path) -> None:
        """A plain `callbacks:` replaces those of the default alone."""
        plain = {"trainer": {"callbacks": [{"class_path": "lightning.pytorch.callbacks.Timer"}]}}
        file = written(tmp_path, plain)
        assert callbacks(composed(*PERMUTATION, "-c", file)) == ["AttentionPermutation", "Timer"]
        option = "--trainer.callbacks=[{class_path: lightning.pytorch.callbacks.Timer}]"
        assert callbacks(composed(*PERMUTATION, option)) == ["AttentionPermutation", "Timer"]

    def test_keys_are_merged_one_by_one_and_lists_appended_to(self, tmp_path: Path) -> None:
        logger = {"class_path": "lightning.pytorch.loggers.TensorBoardLogger"}
        more = {"max_epochs": 2, "logger+": logger}
        config = composed("-c", written(tmp_path, {"trainer": more}))["trainer"]
        default = read_config(DEFAULT_TRAINER)["trainer"]
        assert config == default | {"max_epochs": 2, "logger": [*default["logger"], logger]}


class TestFitYaml:
    """What `fit` wrote gives other verbs no tests."""

    @pytest.mark.parametrize("verb", ["validate", "test", "predict"])
    def test_gives_no_tests(self, tmp_path: Path, verb: str) -> None:
        fit = ["-c", written(tmp_path, FIT_YAML, "renamed.yaml")]
        assert callbacks(composed(*fit, verb=verb)) == ["EarlyStopping"]
        assert not compose(verb, fit, KEYS).tests
        with_test = compose(verb, [*fit, *PERMUTATION], KEYS)
        assert with_test.tests
        assert callbacks(with_test.config) == ["EarlyStopping", "AttentionPermutation"]
        option = "--trainer.callbacks+=attnlight.callbacks.Predictions"
        assert compose(verb, [*fit, option], KEYS).tests

    @pytest.mark.parametrize(("verb", "more"), [("fit", {}), ("test", {"verbose": False})])
    def test_gives_fit_its_tests_and_is_told_from_what_test_wrote(
        self, tmp_path: Path, verb: str, more: dict[str, Any]
    ) -> None:
        assert compose(verb, ["-c", written(tmp_path, FIT_YAML | more)], KEYS).tests


class TestMistakes:
    """Full names, and the nearest one where there is none."""

    @pytest.mark.parametrize(
        ("arguments", "wrong", "nearest"),
        [
            (["--model.attnetion", "dot"], "attnetion", "net.attention"),
            (["--data.train_siz=3"], "train_siz", "train_size"),
            (["--trainer.max_epoch", "1"], "--trainer.max_epoch", "--trainer.max_epochs"),
            (["--overwrit"], "--overwrit", "--overwrite"),
            (["--model", "AttentionClasifier"], "AttentionClasifier", "AttentionClassifier"),
            (["--data=attnlight.datamodules.TextDataModul"], "TextDataModul", "TextDataModule"),
            (["--trainer.callbacks+=DecisionFlp"], "DecisionFlp", "DecisionFlip"),
            (["-c", "CONFIGS/trainr.yaml"], "trainr.yaml", "trainer.yaml"),
            (["--data", "CONFIGS/data/ssst.yaml"], "ssst.yaml", "sst.yaml"),
            (["-c", "{modle: 1}"], "modle", "model"),
            (["-c", "{trainer: {max_epoch: 1}}"], "trainer.max_epoch", "trainer.max_epochs"),
            (["-c", "{model: {init_args: {attnetion: dot}}}"], "attnetion", "net.attention"),
            (["--model.net.attnetion", "dot"], "attnetion", "attention"),
            (["-c", "{trainer: {callbacks+: DecisionFlp}}"], "DecisionFlp", "DecisionFlip"),
        ],
    )
    def test_are_answered_with_the_nearest(
        self, arguments: list[str], wrong: str, nearest: str, here: Path, refused: Refused
    ) -> None:
        if arguments[-1].startswith("{"):
            Path("wrong.yaml").write_text(arguments[-1])
            arguments = ["-c", "wrong.yaml"]
        arguments = [word.replace("CONFIGS", str(CONFIGS)) for word in arguments]
        told = refused(
            "fit", *arguments, names=(wrong, f"did you mean '{nearest}'?"), leaving=here, alone=True
        )
        internal = ("NestedArg", "Namespace", "Union", "class_path", "subclass", "import path")
        assert not [name for name in internal if name in told]

    @pytest.mark.parametrize(
        ("arguments", "nearest"),
        [
            (["fitt"], "fit"),
            (["study", "--dry", "a.yaml"], "--dry-run"),
            (["study", f"{CONFIGS}/studies/plnted.yaml"], "planted.yaml"),
            (["report", "--otput", "a", "b"], "--output"),
            (["test", *SST, "--ckpt_path=bst.ckpt"], "best.ckpt"),
        ],
    )
    def test_in_other_verbs(
        self, arguments: list[str], nearest: str, here: Path, refused: Refused
    ) -> None:
        (here / "best.ckpt").write_bytes(b"")
        refused(*arguments, names=[f"did you mean '{nearest}'?"])

    @pytest.mark.parametrize(
        ("words", "told"),
        [
            (["--data"], "--data needs a value"),
            (["--data=tags.conll"], "tags.conll has a tag for each token, which a tagger learns"),
        ],
    )
    def test_what_cannot_be_read(self, words: list[str], told: str) -> None:
        with pytest.raises(InputError, match=told):
            composed("--model=bilstm_additive", *words)
