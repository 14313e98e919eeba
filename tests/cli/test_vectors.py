"""`attnlight vectors` as a user gives it, and what reads its file."""

from pathlib import Path

import pytest
import yaml

from attnlight.cli.vectors import parser
from attnlight.data.word2vec import Word2VecSettings
from attnlight.models import read_vectors
from tests.commands import Printed, Refused
from tests.data.local import needs_gensim, write_corpus

FEW = ["--size=4", "--epochs=2", "--min_count=2"]


def corpus_file(folder: Path, name: str, texts: list[str], **options: str | bool) -> Path:
    """A corpus of these training texts and its YAML, with a word more to validate on."""
    train = {"text": texts, "label": [0, 1] * (len(texts) // 2)}
    validation = {"text": ["good unseen", "good unseen"], "label": [0, 1]}
    write_corpus(folder / name, train=train, validation=validation)
    arguments = {"path": str(folder / name), "validation": "validation", "test": None, **options}
    arguments["cache_dir"] = str(folder / "cache")
    file = folder / f"{name}.yaml"
    content = {"class_path": "attnlight.datamodules.TextDataModule", "init_args": arguments}
    file.write_text(yaml.safe_dump(content))
    return file


@pytest.fixture
def corpora(here: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The options that name two corpora, of words both in one and in both."""
    texts = ["A good film!", "Good, <br /> bad"]
    first = corpus_file(here, "first", texts, markup=True, splitting="words")
    second = corpus_file(here, "second", ["bad plot", "plot ."])
    return ["-c", str(first), "--config", str(second)]


@needs_gensim
def test_words_of_several_corpora_share_a_file(corpora: list[str], printed: Printed) -> None:
    said = printed("vectors", *corpora, "--output=vectors/both.vec", *FEW)
    assert said == "3 words, size 4\nvectors/both.vec\n"
    lines = Path("vectors/both.vec").read_text().splitlines()
    assert lines[0] == "3 4"
    # "good" stands four times in the first corpus, "a" and "film" once. The second corpus has no
    # "good" in its training texts, and so none in its vocabulary.
    assert [line.split()[0] for line in lines[1:]] == ["good", "bad", "plot"]
    _, found = read_vectors("vectors/both.vec", {"[PAD]": 0, "good": 1, "a": 2})
    assert found.tolist() == [False, True, False]


class TestBadInput:
    """One clear sentence, exit status 2, and no file."""

    @pytest.fixture(autouse=True)
    def _nothing_is_written(self, corpora: list[str], tmp_path: Path) -> object:
        yield
        assert not list(tmp_path.rglob("*x.vec*"))

    def test_no_such_corpus(self, refused: Refused) -> None:
        told = "there is no file nowhere.yaml; -c names a corpus, as in configs/data"
        refused("vectors", "-c", "nowhere.yaml", "--output=x.vec", names=[told])

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("class_path: attnlight.tasks.AttentionClassifier", "CorpusDataModule"),
            ("model: a.yaml\ndata: b.yaml", "CorpusDataModule"),
            ("class_path: attnlight.datamodules.PlantedEvidence\ninit_args: {size: 1}", "size"),
            ("a: [", "parsing"),
        ],
    )
    def test_a_file_of_something_else(self, refused: Refused, text: str, words: str) -> None:
        Path("other.yaml").write_text(text)
        told = "attnlight: other.yaml does not describe a corpus: "
        refused("vectors", "-c", "other.yaml", "--output=x.vec", names=(told, words))

    @pytest.mark.parametrize(
        ("options", "told"),
        [
            (["--output=x.vec", "--min_count=1000"], "no word of the text occurs min_count = 1000"),
            (["--output=file/x.vec", *FEW], "file/x.vec cannot be written"),
            (["--output=x.vec", "--epochs=0"], "epochs is 0"),
        ],
    )
    def test_options_that_cannot_be_met(
        self, corpora: list[str], refused: Refused, options: list[str], told: str
    ) -> None:
        Path("file").touch()
        refused("vectors", *corpora, *options, names=[told])


def test_defaults_are_those_of_the_settings() -> None:
    options = vars(parser().parse_args(["-c", "a.yaml", "--output", "b.vec"]))
    settings = {name: value for name, value in options.items() if name not in ("configs", "output")}
    assert Word2VecSettings(**settings) == Word2VecSettings()
