"""Every YAML in configs/ is sound, and every one of them runs."""

import tempfile
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import cache, partial
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest
import yaml

from attnlight import callbacks, tasks
from attnlight.__main__ import main
from attnlight.data.raw_text import RawText
from attnlight.data.word2vec import Word2VecSettings
from attnlight.datamodules import ChunkingDataModule, PlantedEvidence
from attnlight.records import merge_shards
from attnlight.tasks.from_base import FromBase
from tests.bases import save, save_base
from tests.commands import CONFIGS, CPU, QUIET, experiment
from tests.data.local import write_yahoo

FILES = sorted(CONFIGS.rglob("*.yaml"))
EXPERIMENTS = sorted((CONFIGS / "experiments").glob("*.yaml"))
TESTS = sorted((CONFIGS / "tests").glob("*.yaml"))
ALONE = {"alignment_error", "attention_sinks", "base_divergence", "counterfactual_use"}
ALONE |= {"erasure_words", "evidence_swap", "head_ablation", "head_roles", "impermissible_mass"}
ONE_BATCH = ["--trainer.fast_dev_run=true", *CPU, *QUIET]
ONE_BATCH += ["--data.batch_size=8", "--data.eval_batch_size=8"]  # of long texts
SIZES: dict[str, Any] = {"train_size": 60, "validation_size": 40, "test_size": 40}
SMALL = [f"--data.{name}={size}" for name, size in SIZES.items()]
TINY = ["--model.net.embedding_size=8", "--model.net.hidden_size=8"]


class StrictLoader(yaml.CSafeLoader):
    """PyYAML keeps the last of two equal keys without a word; this one refuses."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for key in keys:
            assert keys.count(key) == 1, f"{key!r} stands twice{node.start_mark}"
        return super().construct_mapping(node, deep)


@cache
def read(file: Path) -> dict[str, Any]:
    content = yaml.load(file.read_text(encoding="utf-8"), StrictLoader)
    assert isinstance(content, dict), f"{file} is no mapping"
    return content


def keys(value: object) -> Iterator[str]:
    """All keys, however deep."""
    if isinstance(value, dict):
        yield from map(str, value)
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from keys(item)


LONG = {f"babi_{task}_bilstm" for task in (2, 3)}  # whose stories take long


def given(value: object, place: tuple[str, ...]) -> Iterator[tuple[object, ...]]:
    """Each option below a place, with its value if that is a word or a switch and no size."""
    if isinstance(value, dict):
        for key, x in value.items():
            yield from given(x, (*place, str(key)))
    else:
        yield *place, value if isinstance(value, str | bool) else None


def parts(experiment: Path) -> set[tuple[object, ...]]:
    """What an experiment has: options and kinds of its model, columns of its corpus.

    Which encoders and attentions go together is asked in models/test_every_classifier.py.
    """
    model, data = (read(experiment.parent / read(experiment)[kind]) for kind in ("model", "data"))
    (kind, corpus), options = (x["class_path"] for x in (model, data)), data.get("init_args", {})
    net = model.get("init_args", {}).get("net", {})
    found = {*given(model.get("init_args", {}), ()), (corpus, "local", options.get("local"))}
    found |= {(name, net.get("hierarchical")) for name in (kind, net.get("encoder"))}
    return found | {(corpus, name) for name in options}


def covering() -> set[Path]:
    """Few experiments that have all parts which any has: always the one that adds most."""
    left = {x: parts(x) for x in EXPERIMENTS if x.stem not in LONG}
    chosen = set[Path]()
    while any(left.values()):
        chosen.add(file := max(left, key=lambda x: len(left[x])))
        seen = left[file]
        left = {x: found - seen for x, found in left.items()}
    return chosen


FIRST_OF_CORPUS = {*{read(file)["data"]: file for file in reversed(EXPERIMENTS)}.values()}
QUICK = covering()


def left_over(kind: str, folder: str) -> list[Path]:
    """Files of a folder that no experiment gives as `model` or `data`."""
    named = {(file.parent / read(file)[kind]).resolve() for file in EXPERIMENTS}
    return sorted(set((CONFIGS / folder).glob("*.yaml")) - named)


@pytest.fixture
def here(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to run in; `fast_dev_run` puts records into a temporary one below it."""
    (here / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(here / "temporary"))
    return here


@pytest.fixture
def sources(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Ask for the real corpora where a file of data/ reads one, and only then; short by default."""

    def prepare(data: Path, corpora: str = "short_corpora") -> None:
        if not read(data)["class_path"].endswith(
            (
                *("TextDataModule", "PairDataModule", "BabiStories", "ChunkingDataModule"),
                "TranslationDataModule",
            )
        ):
            return
        folder = request.getfixturevalue(corpora)
        local = read(data)["init_args"].get("local")
        if local == "yahoo_answers_topics":  # nowhere here as a whole
            folder = request.getfixturevalue("tmp_path") / "corpora"
            write_yahoo(folder)
        monkeypatch.setenv("ATTNLIGHT_DATA", str(folder))

    return prepare


@pytest.fixture
def vectors(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Write the file of word vectors that a file of models/ names; train others for one epoch."""
    monkeypatch.setattr(
        "attnlight.tasks.attention.Word2VecSettings", partial(Word2VecSettings, epochs=1)
    )

    def prepare(model: Path) -> None:
        options = read(model).get("init_args", {})
        place = options.get("vectors", {}).get("path", "corpus")
        if place != "corpus":
            size = options["net"]["embedding_size"]
            Path(place).parent.mkdir()
            Path(place).write_text(f"1 {size}\nthe{' 0.5' * size}\n")

    return prepare


def few_texts(data: Path) -> list[str]:
    """The options by which a corpus is small that is generated."""
    return (
        SMALL
        if read(data)["class_path"].endswith(("PlantedEvidence", "BabiStories", "SymbolSequences"))
        else []
    )


def saved_base(folder: Path, data: Path) -> str:
    """The checkpoint of a base for what is made from one, or compared with one."""
    corpus = PlantedEvidence(**(read(data).get("init_args", {}) | SIZES))
    return str(save_base(folder / "base.ckpt", corpus))


def saved_tagger(folder: Path, data: Path) -> str:
    """The same of a tagger."""
    corpus = ChunkingDataModule(**read(data)["init_args"])
    sizes = {"hidden_size": 8, "embedding_size": 8, "feature_size": 4}
    task = tasks.ChunkTagger(corpus.spec, sizes)
    task.raw = RawText.of_corpus(corpus)
    return str(save(task, folder / "base.ckpt"))


def base_of(folder: Path, model: Path, data: Path) -> list[str]:
    """What names a base on the command line, where the model is a variant of one."""
    if not issubclass(getattr(tasks, read(model)["class_path"].rpartition(".")[2]), FromBase):
        return []
    tagged = read(data)["class_path"].endswith("ChunkingDataModule")
    saved = saved_tagger if tagged else saved_base
    return [f"--model.base={saved(folder, data)}"]


def pretrained_of(folder: Path, model: Path) -> list[str]:
    """What names a small model in place of a pretrained one, where the model reads such a one."""
    net = read(model).get("init_args", {}).get("net", {})
    if "path" not in net.get("init_args", {}):
        return []
    pytest.importorskip("transformers")
    from tests.huggingface.folders import write_decoder, write_model

    place = folder / "pretrained"
    if net["class_path"].endswith("AnswerModel"):
        write_decoder(place, n_positions=1024)  # bAbI tells long stories
        return [f"--model.net.path={place}", f"--data.tokenizer={place}", "--data.joined=false"]
    write_model(place, auto="AutoModel", max_position_embeddings=512)
    return [f"--model.net.path={place}", f"--data.tokenizer={place}"]


def test_files_say_what_counts() -> None:
    """No key stands twice or drops what another says, as a dotted key drops the file beside it."""
    for file in FILES:
        content = read(file)
        names = {name for axis in content.get("grid", ()) for name in axis}  # of conditions
        assert not [key for key in keys(content) if "." in key and key not in names], file
        assert ("callbacks" in keys(content)) == (file == CONFIGS / "trainer.yaml"), file


def runs() -> Iterator[Any]:
    """Command, model, corpus and fixture of corpora: all experiments, and what no experiment names."""
    for file in EXPERIMENTS:
        given = experiment(file.stem), *(file.parent / read(file)[x] for x in ("model", "data"))
        slow = [pytest.mark.slow] * (file not in QUICK)
        yield pytest.param(*given, "short_corpora", id=file.stem, marks=slow)
        if file in FIRST_OF_CORPUS:
            yield pytest.param(*given, "corpora", id=f"{file.stem}-whole", marks=pytest.mark.slow)
    corpora = left_over("data", "data")
    pairs = [
        x for x in corpora if read(x)["class_path"].endswith(("PairDataModule", "BabiStories"))
    ]
    turns = chain(pairs, repeat(CONFIGS / "data/babi_1.yaml"))  # each corpus once
    for model in left_over("model", "models"):
        of_pairs = read(model).get("init_args", {}).get("problem") == "pairs"
        yield beside(model, next(turns) if of_pairs else CONFIGS / "data/planted.yaml")
    assert next(turns) not in pairs[1:], "more corpora than models of pairs"
    for data in (x for x in corpora if x not in pairs):
        options = read(data).get("init_args", {})
        nested = options.get("sentences") == "nested" or "sentence_length" in options
        yield beside(CONFIGS / f"models/{('none_additive', 'han_none')[nested]}.yaml", data, *TINY)


def beside(model: Path, data: Path, *options: str) -> Any:
    """The same of a model and a corpus that no experiment joins."""
    command = ["-c", f"{CONFIGS}/trainer.yaml", f"--model={model}", f"--data={data}", *options]
    return pytest.param(command, model, data, "short_corpora", id=f"{model.stem}-{data.stem}")


@pytest.mark.parametrize(("command", "model", "data", "source"), list(runs()))
def test_experiment_runs(
    here: Path,
    sources: Callable[..., None],
    vectors: Callable[[Path], None],
    command: list[str],
    model: Path,
    data: Path,
    source: str,
) -> None:
    sources(data, source)
    vectors(model)
    given = [*base_of(here, model, data), *pretrained_of(here, model), *few_texts(data)]
    assert main(["fit", *command, *given, *ONE_BATCH]) == 0
    assert not (here / "checkpoints").exists(), "fast_dev_run leaves no run behind"


def classes(file: Path) -> list[str]:
    """The class path of each test of a file."""
    return [callback["class_path"] for callback in read(file)["trainer"]["callbacks+"]]


def together() -> list[list[Path]]:
    """The files of tests, of which those have a command of their own that need another model or corpus.

    Others share one where their tests differ and all else that they say is the same; each of them
    runs alone in tests/api/test_shipped.py.
    """
    groups: list[tuple[object, set[str], list[Path]]] = []
    for file in TESTS:
        alone = file.stem in ALONE or file.stem.startswith("mixing")
        said = {name: x for name, x in read(file)["trainer"].items() if name != "callbacks+"}
        common, names = file.stem if alone else said, {*classes(file)}
        fits = (g for g in groups if g[0] == common and not g[1] & names)
        group = next(fits, None) or (common, set[str](), list[Path]())
        groups += [] if group[2] else [group]
        group[1].update(names)
        group[2].append(file)
    return [files for _, _, files in groups]


@pytest.mark.usefixtures("few_steps")
@pytest.mark.parametrize("files", together(), ids=lambda files: "-".join(x.stem for x in files))
def test_tests_run(
    here: Path, sources: Callable[..., None], files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, *more = files
    records: set[str] = set()  # a fast_dev_run keeps none: seen where they are merged

    def merge(shards: Sequence[Path], target: Path, **options: Any) -> int:
        records.add(target.stem.rpartition("-")[0])
        return merge_shards(shards, target, **options)

    monkeypatch.setattr("attnlight.callbacks.hooks.epoch_recorder.merge_shards", merge)
    command = ["fit", *experiment("planted_none"), *SMALL]
    if file.stem == "evidence_swap":  # class names must be words of the texts
        sources(CONFIGS / "data/babi_1.yaml")
        command = ["fit", "--data=babi_1", "--model=pair_average_additive"]
    if file.stem == "counterfactual_use":  # originals and edits
        sources(CONFIGS / "data/counterfactual_imdb.yaml")
        command = ["fit", *experiment("counterfactual_imdb_none")]
    if file.stem == "erasure_words":  # sentences
        command = ["fit", "--data=planted_sentences", "--model=han_none", *SMALL]
    if file.stem == "alignment_error":
        command = ["fit", *experiment("symbols_copy"), *SMALL]
    if file.stem in ("attention_sinks", "head_ablation", "head_roles"):  # layers of a transformer
        sources(CONFIGS / "data/conll2000.yaml")
        command = ["fit", *experiment("conll2000_text"), "--data.batch_size=8"]
    options = TINY
    if file.stem.startswith("mixing"):  # a model of transformers
        pytest.importorskip("transformers")
        command, options = ["fit", *experiment("known_answers_transformer"), *SMALL], []
    attached = [name for file in files for name in classes(file)]
    given = [word for file in more for word in ("-c", str(file))]
    if attached[-1].endswith(".BaseDivergence"):
        base = saved_base(here, CONFIGS / "data/planted.yaml")
        given += [f"--trainer.callbacks.base={base}"]
    if file.stem == "impermissible_mass":
        given += ["--trainer.callbacks.column=evidence"]
    assert main([*command, "-c", str(file), *given, *options, *ONE_BATCH]) == 0
    assert len(set(attached)) == len(attached) > 0
    recorded = [name for name in attached if not name.endswith(".Texts")]  # not while training
    assert len(records) == len(recorded)


def interpretability_tests() -> set[str]:
    """Names of the tests among what `attnlight.callbacks` names."""
    base = callbacks.InterpretabilityTest
    kinds = (getattr(callbacks, name) for name in callbacks.__all__)
    return {kind.__name__ for kind in kinds if issubclass(kind, base) and kind is not base}


def test_all_tests_are_in_all() -> None:
    attached = read(CONFIGS / "tests/all.yaml")["trainer"]["callbacks+"]
    names = {callback["class_path"].rpartition(".")[2] for callback in attached}
    # A model to compare with must be named; few corpora mark tokens; explanations cost more; not
    # every data set gives the words of its texts.
    apart = {"BaseDivergence", "EvidenceMass", "Faithfulness", "MeasuredUse", "Plausibility"}
    apart |= {"AttributionCost", "ImpermissibleMass", "SaliencyAgreement", "Sanity"}
    apart |= {"StateTokenAgreement", "Texts", "CounterfactualUse", "ErasedAccuracy"}
    apart |= {"AlignmentError"}  # of translations alone
    apart |= {"ContextAblation"}  # which reads each text many times
    apart |= {"AttentionInterchange"}  # which needs other texts of the corpus
    apart |= {"AttentionSinks", "HeadAblation", "HeadRoles"}  # few models have layers of attention
    apart |= {"Conicity"}  # which is of states alone, whatever attention is
    assert names == interpretability_tests() - apart
