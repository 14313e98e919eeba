"""The verdict card: its sentence on models built by hand and by records, its numbers by loops."""

import csv
import importlib
import io
import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from numpy.typing import NDArray
from torch.nn.utils.rnn import pad_sequence

import attnlight
from attnlight.api.recording import build_tests
from attnlight.batch import PAD, TextBatch
from attnlight.errors import InputError
from attnlight.models import FlatClassifier
from attnlight.report.compare import write_comparison
from attnlight.report.verdict import card as verdict_card
from attnlight.report.verdict.card import Verdict, verdict_of
from attnlight.report.verdict.estimate import Estimate, digest, rules
from attnlight.report.verdict.lines import line_of
from tests.commands import ROOT
from tests.kept import page
from tests.report.fake import write_record

page("known_answers")  # puts docs on the path
models = importlib.import_module("known_models")
pytestmark = pytest.mark.usefixtures("few_steps")
BY_NAME = {model.name: model for model in models.MODELS}
RULES = rules()
NAMES = ["ranks", "finds", "needed", "words", "alternative", "smallest_set", "uniqueness"]
Rows = dict[str, NDArray[Any]]


@cache
def hand_built(
    name: str, batch_size: int = 64, backwards: bool = False, texts: int = 150
) -> Verdict:
    known = BY_NAME[name]
    batches = models.batches(known, batch_size, texts)
    tests = build_tests("card")[:: -1 if backwards else 1]
    return attnlight.run(models.classifier(known), batches, tests).verdict()


@pytest.mark.parametrize(
    ("model", "case"),
    [("F1", "yes"), ("F3", "yes"), ("F10", "yes"), ("D", "not_following"), ("R", "unseen")],
)
def test_models_of_known_answers(model: str, case: str) -> None:
    card = hand_built(model)
    given = "not_established" if card["ranks"].value is not None else "unseen"
    assert (card.case_if_licensed, card.case) == (case, given), "of no licensed kind"
    assert (given == "unseen") == (model == "R"), "whose words all say the same"
    assert [line.name for line in card.lines] == [
        n for n in NAMES if n != "smallest_set" or model != "R"
    ]
    assert "not measured" not in {line.answer for line in card.lines}
    assert card["words"].answer == "yes", "there is no encoder"
    assert max(map(len, str(card).splitlines())) <= 80
    assert not re.search(r"\bnan\b|None|\{|\}", str(card))


def test_neither_batches_nor_the_order_of_tests_change_it() -> None:
    card, other = (hand_built("D", *given, texts=95) for given in ((64, False), (17, True)))
    assert str(other) == str(card)
    for line in card.lines:
        for name in ("value", "low", "high"):
            expected, found = getattr(line, name), getattr(other[line.name], name)
            assert found == (None if expected is None else pytest.approx(expected, abs=1e-9))


class Cues(torch.nn.Module):
    """Texts of fillers, cues of two classes and decoys without logits, each with a score of its own."""

    FILLER, CUE, DECOY, KINDS = 10, 74, 76, 90

    def __init__(
        self,
        scores: tuple[float, float, float],
        cues: tuple[float, float],
        spread: float | None = None,  # of scores that are drawn in place of the given ones
    ) -> None:
        super().__init__()
        self.classes = ["bad", "good"]
        attention = "dot" if spread is None else "random_by_text"
        net = {"encoder": "none", "attention": attention, "embedding_size": 3}
        torch.manual_seed(0)
        model = FlatClassifier(vocab_size=self.KINDS, num_classes=3, **net).double()
        random, rows = np.random.default_rng(0), torch.zeros(self.KINDS, 3)
        rows[self.FILLER : self.CUE, 1:] = torch.from_numpy(0.2 * random.normal(size=(64, 2)))
        rows[self.CUE, 1], rows[self.CUE + 1, 2] = cues
        for first, score in zip((self.FILLER, self.CUE, self.DECOY), scores, strict=True):
            rows[first:, 0] = score
        with torch.no_grad():
            model.embedding.weight.copy_(rows)
            if spread is None:
                model.attention.key.weight.copy_(torch.eye(3)[:1])
            else:
                model.attention.spread.fill_(spread)
            model.decoder.weight.copy_(torch.stack([torch.zeros(3), *torch.eye(3)[1:]]))
            model.decoder.bias.copy_(torch.tensor([-9.0, 0.2, 0.0]))
        self.model = model.eval()

    def test_step(self, batch: TextBatch, batch_idx: int) -> dict[str, Any]:
        return {"loss": torch.zeros(()), "output": self.model(batch)}

    def texts(self, decoys: int, absent: bool) -> list[TextBatch]:
        """Of each class 40 texts; of the first one without its cue if that is absent."""
        random, ids = np.random.default_rng(1), []
        for label in [0, 1] * 40:
            fillers = random.integers(self.FILLER, self.CUE, 18)
            cue = [] if absent and label == 0 else [self.CUE + label]
            ids.append(random.permutation([*fillers, *cue, *[self.DECOY] * decoys]))
        tokens = pad_sequence([torch.from_numpy(x) for x in ids], batch_first=True)
        labels = 1 + torch.arange(80) % 2
        return [TextBatch(torch.arange(80), tokens, tokens != PAD, labels)]


@pytest.mark.parametrize(
    ("scores", "cues", "decoys", "absent", "case"),
    [
        ((0, 3.5, 4.5), (30, 30), 2, False, "opposing"),  # decoys carry most of the mass
        ((0, 4.0, 0), (9, 9), 0, True, "unseen"),  # one class by the absence of a cue
        ((0, 0.0, 0), (90, 90), 0, False, "not_following"),  # uniform
    ],
)
def test_evidence_by_hand(scores: Any, cues: Any, decoys: int, absent: bool, case: str) -> None:
    task = Cues(scores, cues)
    card = attnlight.run(task, task.texts(decoys, absent), build_tests("card")).verdict()
    assert card.case_if_licensed == case, str(card)


def test_frozen_attention_by_hand() -> None:
    """Scores drawn by the text and the word, which are never trained, order nothing."""
    task = Cues((0, 0, 0), (90, 90), spread=0.5)
    card = attnlight.run(task, task.texts(0, False), build_tests("card")).verdict()
    assert rules()["decisions"][card.case_if_licensed] == "no", str(card)


def write(
    folder: Path, test: str, rows: Mapping[str, Any], stage: str = "test", **more: Any
) -> None:
    """A record of a run; one row for each text unless `index` is given."""
    size = len(next(iter(rows.values())))
    whole = {"prediction": np.zeros(size, np.int64)} | dict(rows)
    about = {"stage": stage, "partial": False, "checkpoint_hash": "abc", "corpus": "v2-x"} | more
    write_record(folder / f"records/{stage}/{test}.parquet", whole, test=test, measures=[], **about)


def agreement(
    *means: float, texts: int = 100, noise: float = 0.1, opposing: float = 0.1, effect: float = 2.0
) -> Rows:
    """Rows of as many predicted classes as means of Somers' D, noisy."""
    random, classes = np.random.default_rng(0), len(means)
    prediction = np.repeat(np.arange(classes), texts)
    d = np.repeat(means, texts) + noise * random.normal(size=classes * texts)
    rows = {"somers_d_attention": d, "prediction": prediction}
    rows["opposing_mass"] = np.full(len(d), opposing)
    rows["largest_effect"] = effect * (1 + random.random(len(d)))
    rows["log_odds"] = np.full(len(d), 4.0)
    return rows | {"supporting": np.full(len(d), 3.0), "length": np.full(len(d), 20)}


CLASSIFIER = {"problem": "classification", "net": {"encoder": "none"}}
METHODS = ("input_gradient", "integrated_gradients", "occlusion")


def comprehensiveness(
    ratio: float = 0.6, texts: int = 200, noise: float = 0.1, seed: int = 0
) -> tuple[Rows, dict[str, Any]]:
    """Rows in which attention gains `ratio` of what integrated gradients do, and their metadata."""
    random, shares = np.random.default_rng(seed), {"attention": ratio}
    shares |= {"input_gradient": 0.7, "integrated_gradients": 1.0, "occlusion": 0.9}
    shares |= {f"{name}_by_size": 0.6 * shares[name] for name in METHODS}
    rows = {
        f"excess_comprehensiveness_{name}": 0.4 * share + noise * random.normal(size=texts)
        for name, share in shares.items()
    }
    methods = {
        name: {"name": name.removesuffix("_by_size"), "signed": name in METHODS} for name in shares
    }
    rows["steps_integrated_gradients"] = np.full(texts, 16.0)
    return rows, {"methods": methods, "replacement": "delete"}


@pytest.fixture(autouse=True)
def licences(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Licences of a test alone: models without an encoder have one."""
    given = {"rules": digest(), "none": {"licensed": True}, "recurrent": {"licensed": False}}
    read = verdict_card.rules
    monkeypatch.setattr(
        verdict_card, "rules", lambda name="verdict": given if name == "licences" else read(name)
    )
    return given


def card_of(
    folder: Path, rows: Rows, own: float = 1.0, ratio: float = 0.6, **model: Any
) -> Verdict:
    """A card where attention finds `ratio` of the best signed method, whose best twin finds 0.6."""
    write(
        folder, "leave_one_out_agreement", rows, model=CLASSIFIER | model, classes=["dull", "fine"]
    )
    words = {"tau_erasure_deletion": np.full(50, 0.4), "hidden_token_attribution": np.full(50, own)}
    write(folder, "state_token_agreement", words)
    values, metadata = comprehensiveness(ratio)
    values["prediction"] = np.resize(rows["prediction"], 200)
    write(folder, "faithfulness", values, **metadata)
    return verdict_of(folder)


MIXED, LOW = {"own": 0.5}, {"ratio": 0.2}  # states mix words; the first words find little


class TestSentence:
    @pytest.mark.parametrize(
        ("rows", "given", "case", "said"),
        [
            (agreement(0.9, 0.8), {}, "yes", "Yes: it orders the words by their use in every"),
            (agreement(0.9), {}, "yes", 'by their use where it predicts "dull".'),
            (agreement(0.9, 0.72), {}, "yes", "Yes: it orders the words by their use"),
            (agreement(0.9, 0.8), MIXED, "mixing", "in every class, but each state mixes several."),
            (
                agreement(0.9, 0.64),
                MIXED | {"ratio": 0.4},
                "mixing",
                "but each state mixes several.",
            ),
            (agreement(0.9), MIXED, "mixing", 'where it predicts "dull", but each state mixes'),
            (
                agreement(0.9, 0.8),
                MIXED | LOW,
                "not_finding",
                "weighs most moves the prediction only 3",
            ),
            (agreement(0.56, 0.55), MIXED, "top_words", "Top words only"),
            (
                agreement(0.6, 0.62),
                LOW,
                "top_words",
                "that the best other method weighs most; do not",
            ),
            (agreement(0.3, 0.6), {}, "top_words", "moves the prediction 99 % as far as"),
            (agreement(0.48, 0.48, noise=0.3), {}, "top_words", "Top words only"),
            (agreement(0.9, 0.3), LOW, "some_classes", 'Only where it predicts "dull"; elsewhere'),
            (agreement(0.9, 0.6), LOW, "some_classes", 'Only where it predicts "dull"; elsewhere'),
            (
                agreement(0.9, 0.3),
                {},
                "order_in_some",
                "read its top words alone: deleting them moves",
            ),
            (agreement(0.3, 0.6), LOW, "not_following", "(Somers' D 0.31); read integrated"),
            (agreement(0.9, 0.9, opposing=0.6), {}, "opposing", "60 % of its weight is on words"),
            (
                agreement(0.9, 0.7),
                {},
                "not_decided",
                "0.69 [0.67, 0.72]; about 3,300 texts would do.",
            ),
            (agreement(0.9, 0.52, noise=0.5), LOW, "not_decided", "too near a bound for more"),
            (agreement(0.9, 0.9, effect=1e-3), {}, "unseen", 'where it predicts "'),
        ],
    )
    def test_the_first_case_that_fits(
        self, tmp_path: Path, rows: Rows, given: dict[str, float], case: str, said: str
    ) -> None:
        card = card_of(tmp_path, rows, **given)
        assert (card.case, card.case_if_licensed, card.kind) == (case, case, "none")
        assert said in card.sentence
        assert re.fullmatch(RULES["answers"][case], card.sentence_parts[1])
        assert card.decision == RULES["decisions"][case]
        assert str(card).split("\n\n")[2].replace("\n", " ") == card.sentence

    @pytest.mark.parametrize(
        ("own", "ratio", "case"),
        [
            (1.0, 0.5, "yes"),
            (1.0, 0.44, "not_finding"),
            (0.5, 0.44, "mixing"),
            (0.5, 0.29, "not_finding"),
        ],
    )
    def test_weights_must_also_find(
        self, tmp_path: Path, own: float, ratio: float, case: str
    ) -> None:
        """The best method by size takes 0.6: half of that, surely, and alone three quarters are a yes."""
        card = card_of(tmp_path, agreement(0.9, 0.8), own, ratio)
        assert card.case == case
        if case == "not_finding":
            assert card.decision == "in part"
            share = "7" if own == 1 else "4"
            assert re.search(rf"only {share}\d % as far as .*; read integrated", card.sentence)
            (tmp_path / "records/test/faithfulness.parquet").unlink()
            assert verdict_of(tmp_path).case == "unmeasured"

    def test_half_of_the_weight_against_the_prediction_decides_nothing(
        self, tmp_path: Path
    ) -> None:
        rows = agreement(0.9, 0.9) | {"opposing_mass": np.resize([0.3, 0.69], 200)}
        card = card_of(tmp_path, rows)
        assert card.case == "not_decided"
        assert re.search(r"49 % \[46, 53\] of its weight is on words that speak", card.sentence)

    def test_where_the_first_words_find_little_the_best_method_is_named(
        self, tmp_path: Path
    ) -> None:
        said = "; read integrated gradients (about 48 forward passes a text)."
        for ratio in (0.2, 0.6):
            card = card_of(tmp_path, agreement(0.56, 0.55), 0.5, ratio)
            assert card.case == "top_words"
            assert card.sentence.endswith(said) == (ratio == 0.2)

    @pytest.mark.parametrize("defined", [0, 20, 40])
    def test_words_whose_deletions_do_the_same(self, tmp_path: Path, defined: int) -> None:
        """Deletions move the prediction, but no two words of most texts differently."""
        rows = agreement(0.9, 0.9)
        rows["somers_d_attention"][defined:100] = np.nan
        card = card_of(tmp_path, rows)
        assert card.case == ("yes" if defined == 40 else "unseen")
        alike = 'predicts "dull": in fewer than 30 of its texts does deleting one word move the'
        assert (alike in card.sentence) == (defined < 40)
        assert "hardly moves" not in card.sentence

    @pytest.mark.parametrize("name", ["50% off, or less", '{a} "b", c', "c\\d"])
    def test_the_name_of_a_class_stays_as_it_is(self, tmp_path: Path, name: str) -> None:
        card_of(tmp_path, agreement(0.9), own=0.5)
        rows = agreement(0.9)
        about = {"model": CLASSIFIER, "classes": [name]}
        write(tmp_path, "leave_one_out_agreement", rows, **about)
        card = verdict_of(tmp_path)
        assert card.sentence_parts[1] == f'where it predicts "{name}"'
        assert f'predicted class, "{name}" (yes' in card["ranks"].says

    def test_a_class_without_effect_beside_another(self, tmp_path: Path) -> None:
        rows = agreement(0.9, 0.9)
        rows["largest_effect"][100:] /= 25
        assert card_of(tmp_path, rows).case == "unseen"
        assert 'where it predicts "fine"' in card_of(tmp_path, rows).sentence
        rows["somers_d_attention"][:100] = 0.1
        assert card_of(tmp_path, rows, ratio=0.2).case == "not_following", "what is seen is a no"

    def test_where_no_method_takes_anything_there_is_no_share(self, tmp_path: Path) -> None:
        card_of(tmp_path, agreement(0.9, 0.8), own=0.5)
        values, metadata = comprehensiveness()
        none = {name: np.zeros(200) for name in values if name.endswith("_by_size")}
        write(tmp_path, "faithfulness", values | none, **metadata)
        card = verdict_of(tmp_path)
        assert card.case == "not_decided"
        assert "so that attention has nothing to find" in card.sentence

    def test_what_the_first_words_find_is_asked_in_each_class(self, tmp_path: Path) -> None:
        """Of two classes with a poor order they find all in one alone: that of the other is a no."""
        rows = agreement(0.3, 0.3)
        card_of(tmp_path, rows)
        values, metadata = comprehensiveness()
        values["prediction"] = rows["prediction"]
        values["excess_comprehensiveness_attention"][100:] = 0.01
        write(tmp_path, "faithfulness", values, **metadata)
        card = verdict_of(tmp_path)
        assert card.case == "not_following"
        assert f"D {rows['somers_d_attention'][100:].mean():.2f})" in card.sentence

    @pytest.mark.parametrize("encoder", ["none", "bilstm"])
    @pytest.mark.parametrize("undefined", [100, 200])
    def test_agreement_that_is_undefined(
        self, tmp_path: Path, encoder: str, undefined: int
    ) -> None:
        """No deletion moves a prediction, where evidence is redundant: of one class, or of both."""
        rows = agreement(0.9, 0.9)
        rows["somers_d_attention"][:undefined], rows["largest_effect"][:undefined] = np.nan, 0
        card = card_of(tmp_path, rows, net={"encoder": encoder})
        assert "nan" not in str(card)
        assert card.case_if_licensed == "unseen"
        if encoder == "none" or undefined == 200:
            assert (card.case, "Not seen by erasure" in card.sentence) == ("unseen", True)
        else:
            assert card.case == "not_established"
            assert "Somers' D of its weights" in card.sentence
            defined = np.mean(rows["somers_d_attention"][100:])
            assert f" is {defined:.2f} [" in card.sentence
        line = " ".join(str(card).split())
        assert ("Undefined in every text" in line) == (undefined == 200)

    @pytest.mark.parametrize(("d", "case"), [(0.9, "yes"), (0.6, "unseen"), (0.1, "unseen")])
    def test_deletions_that_hardly_move_a_certain_prediction(
        self, tmp_path: Path, d: float, case: str
    ) -> None:
        rows = agreement(d, d) | {"log_odds": np.full(200, 40.0)}
        assert card_of(tmp_path, rows).case == case

    def test_classes_that_are_seldom_predicted_are_not_said_to_be_judged(
        self, tmp_path: Path
    ) -> None:
        rows = {name: column[:-80] for name, column in agreement(0.9, 0.8, 0.1).items()}
        card = card_of(tmp_path, rows)
        where = "in every class that it predicts of 30 texts or more"
        assert card.sentence == f"Yes: it orders the words by their use {where}."
        mixing = card_of(tmp_path, rows, **MIXED)
        assert "".join(mixing.sentence_parts[1:]) == f"{where}, but each state mixes several."

    def test_no_kind_gets_a_yes_without_a_licence(self, tmp_path: Path) -> None:
        kinds = {
            "recurrent": {"net": {"encoder": "bilstm"}},
            "convolutional": {"net": {"encoder": "cnn"}},
            "hierarchical": {"net": {"encoder": "none", "hierarchical": True}},
            "transformer": {"net": {}, "scope": "Of the last layer."},
            "pairs": {"problem": "pairs", "net": {"encoder": "cnn"}},
            "tagger": {"problem": "tagging"},
            "other": {"net": {"encoder": "mine"}},
        }
        not_judged = [
            {"problem": "pairs", "net": {"path": "decoder"}, "scope": "Of the last layer."},
            {"problem": "pairs", "net": {"class_path": "mine.Net"}},
            {"problem": "translation", "net": {"encoder": "bigru"}},
        ]
        for kind, model in (*kinds.items(), *(("other", model) for model in not_judged)):
            card = card_of(tmp_path, agreement(0.9, 0.8), **model)
            assert (card.kind, card.case, card.decision) == (kind, "not_established", "none")
            assert card.case_if_licensed == "yes"
            assert card.sentence.startswith(f"Not established for {RULES['kind_words'][kind]}: ")
            assert "0.79" in card.sentence
            assert card["ranks"].answer == "", "the number alone"
        card = card_of(tmp_path, agreement(0.9), **kinds["hierarchical"])
        assert "order the sentences as" in card["ranks"].question
        assert "the effect of deleting each sentence is 0.91 [" in card.sentence
        assert "Each state depends on its own sentence alone" in card["words"].says

    def test_how_often_the_card_was_right_is_a_sentence_of_every_kind(
        self, tmp_path: Path, licences: dict[str, Any]
    ) -> None:
        judged = {"evidence": {"right": [51, 54]}, "resampled": {"right": [52, 54]}}
        licences["transformer"] = {"licensed": True, "judgement": judged}
        card = card_of(tmp_path, agreement(0.9, 0.8), net={}, scope="Of the last layer.")
        said = "this card was right 51 of 54 times for the last layer of a transformer."
        assert card.remarks[0] == f"Judged on small models whose use of words is known, {said}"

    @pytest.mark.filterwarnings("error")
    def test_without_a_licence_the_worst_class_is_told(self, tmp_path: Path) -> None:
        """Of taggers, whose tokens are never deleted from their own sentence, `own` is undefined."""
        card = card_of(tmp_path, agreement(0.9, 0.1), own=np.nan, problem="tagging")
        assert card.case_if_licensed == "order_in_some"
        assert card["ranks"].value == pytest.approx(0.1, abs=0.03)
        assert f"is {card['ranks'].value:.2f} [" in card.sentence

    def test_a_licence_is_for_the_rules_that_were_judged(
        self, tmp_path: Path, licences: dict[str, Any]
    ) -> None:
        assert card_of(tmp_path, agreement(0.9, 0.8)).case == "yes"
        licences["rules"] = "others"
        assert verdict_of(tmp_path).case == "not_established"

    def test_uniform_attention_that_predicts_the_same_is_said(self, tmp_path: Path) -> None:
        for tvd, said in ((0.01, True), (0.2, False)):
            columns = {"uniform_tvd": np.full(60, tvd), "median_tvd": np.full(60, 0.3)}
            write(tmp_path, "attention_permutation", columns)
            card = card_of(tmp_path, agreement(0.9, 0.8))
            assert card.sentence.endswith("Uniform attention would predict the same.") == said
            assert (card["needed"].answer, card["needed"].value) == (
                "no" if said else "yes",
                pytest.approx(tvd),
            )
            assert "shuffled attention by 0.300" in card["needed"].says

    def test_a_model_at_its_majority_class_explains_nothing(self, tmp_path: Path) -> None:
        write(tmp_path, "predictions", TestMajority.labelled(0))
        card = card_of(tmp_path, agreement(0.9, 0.8))
        assert (card.case, card.case_if_licensed) == ("majority", "majority")
        assert card.remarks == (), "nothing was said that could be right"
        assert card["ranks"].answer == ""
        assert card.sentence.startswith("Nothing can be read here")

    def test_nothing_measured(self, tmp_path: Path) -> None:
        card = verdict_of(tmp_path)
        assert (card.case, card.decision) == ("unmeasured", "none")
        assert {line.answer for line in card.lines} == {"not measured"}
        assert all(line.texts == 0 for line in card.lines)
        assert 'attnlight.run(model, data, tests="card")' in str(card)


class TestRanks:
    def test_worst_class_with_the_interval_of_two_by_a_loop(self, tmp_path: Path) -> None:
        rows = agreement(0.8, 0.6, texts=50, noise=0.3)
        line = card_of(tmp_path, rows)["ranks"]
        values, random = rows["somers_d_attention"][50:], np.random.default_rng(0)
        drawn = [values[random.integers(0, 50, 50)].mean() for _ in range(1_000)]
        assert line.value == pytest.approx(values.mean())
        assert (line.low, line.high) == pytest.approx(np.quantile(drawn, [0.0125, 0.9875]))
        assert line.texts == 50
        assert f'"dull" {rows["somers_d_attention"][:50].mean():.2f}' in line.says

    @pytest.mark.parametrize("texts", [29, 30])
    def test_classes_of_few_texts_are_not_judged(self, tmp_path: Path, texts: int) -> None:
        few, many = agreement(0.9, 0.1, texts=texts), agreement(0.9, texts=80)
        rows = {name: np.concatenate([many[name], few[name][texts:]]) for name in few}
        assert card_of(tmp_path, rows).case == ("yes" if texts == 29 else "some_classes")
        only = {name: values[:texts] for name, values in few.items()}
        card = card_of(tmp_path, only)
        assert (card.case, card["ranks"].answer) == (
            ("too_few", "not shown") if texts == 29 else ("yes", "yes")
        )

    @pytest.mark.filterwarnings("error")
    def test_texts_of_one_item_do_not_count(self, tmp_path: Path) -> None:
        """Nothing is measured there, which is no sign that deleting hardly moves a prediction."""
        rows = agreement(0.9, 0.1)
        for name in ("somers_d_attention", "opposing_mass", "largest_effect", "log_odds"):
            rows[name][129:] = np.nan
        card = card_of(tmp_path, rows)
        assert (card.case, card["ranks"].texts) == ("yes", 100), "29 texts of the other class"
        rows["largest_effect"][29:100] = np.nan
        card = card_of(tmp_path, rows)
        assert (card.case, card["ranks"].answer) == ("too_few", "not shown")

    @pytest.mark.parametrize(("mean", "noise", "bound"), [(0.66, 0.6, 0.7), (0.74, 1.5, 0.6)])
    def test_texts_that_would_decide(
        self, tmp_path: Path, mean: float, noise: float, bound: float
    ) -> None:
        """The half width falls with the root of the number; to two digits, rounded up."""
        card = card_of(tmp_path, agreement(mean, texts=200, noise=noise))
        line = card["ranks"]
        assert None not in (line.low, line.high, line.value)
        distance = abs(bound - float(line.value or 0))
        needed = 200 * ((float(line.high or 0) - float(line.low or 0)) / 2 / distance) ** 2
        digits = 10 ** (int(np.log10(needed)) - 1)
        assert f"about {int(-(-needed // digits) * digits):,} texts would do" in card.sentence


class TestFinds:
    def test_ratio_to_the_best_of_each_resample_by_a_loop(self, tmp_path: Path) -> None:
        rows, metadata = comprehensiveness(0.8, 61, noise=0.5)
        write(tmp_path, "faithfulness", rows, **metadata)
        card = verdict_of(tmp_path)
        names = [f"excess_comprehensiveness_{name}" for name in ("attention", *METHODS)]
        values, random, replicates = (
            np.stack([rows[n] for n in names], 1),
            np.random.default_rng(0),
            [],
        )
        for _ in range(1_000):
            means = values[random.integers(0, 61, 61)].mean(0)
            replicates.append(means[0] / max(means[1:]))
        line, means = card["finds"], values.mean(0)
        assert line.value == pytest.approx(means[0] / max(means[1:]))
        assert (line.low, line.high) == pytest.approx(np.quantile(replicates, [0.025, 0.975]))
        by_size = np.mean([rows[f"{name}_by_size"] for name in names[1:]], axis=1).max()
        assert f"{means[0] / by_size:.2f} [" in line.says
        best = METHODS[int(means[1:].argmax())].replace("_", " ").capitalize()
        assert card["alternative"].says.startswith(best.replace("Input gradient", "Gradient ×")[:8])  # noqa: RUF001
        assert card["alternative"].value == pytest.approx(max(means[1:]))

    def test_cost_of_the_alternative(self, tmp_path: Path) -> None:
        says = card_of(tmp_path, agreement(0.9))["alternative"].says
        assert "Integrated gradients: " in says
        assert "about 48 forward passes a text" in says, "16 steps, forward and backward"

    def test_methods_and_settings_that_it_needs(self, tmp_path: Path) -> None:
        rows, metadata = comprehensiveness()
        lacking = [
            {"methods": {n: x for n, x in metadata["methods"].items() if n != name}}
            for name in metadata["methods"]
        ]
        for changed in (*lacking, {"replacement": "attention"}):
            write(tmp_path, "faithfulness", rows, **metadata | changed)
            assert verdict_of(tmp_path)["finds"].answer == "not measured"

    @pytest.mark.parametrize("d", [0.9, 0.3])
    def test_methods_by_size_that_take_less_than_random_deletion(
        self, tmp_path: Path, d: float
    ) -> None:
        """Nothing is a share of what they take, so that nothing follows from it."""
        card_of(tmp_path, agreement(d))
        rows, metadata = comprehensiveness()
        rows |= {f"{name}_by_size": -x for name, x in rows.items() if name[-7:] != "by_size"}
        write(tmp_path, "faithfulness", rows, **metadata)
        card = verdict_of(tmp_path)
        assert card.case == ("not_decided" if d == 0.9 else "not_following")
        assert "and – [–, –] times what the best method by size takes" in card["finds"].says  # noqa: RUF001
        assert not re.search(r"\bnan\b", str(card))

    def test_nothing_to_find(self, tmp_path: Path) -> None:
        rows, metadata = comprehensiveness()
        write(tmp_path, "faithfulness", {n: 0.01 * x for n, x in rows.items()}, **metadata)
        line = verdict_of(tmp_path)["finds"]
        assert (line.answer, line.value) == ("not shown", None)
        assert "too little to compare by" in line.says


class TestSmallestSet:
    def rows(self, heads: int = 1) -> tuple[Rows, Rows]:
        random, shape = np.random.default_rng(0), (120, heads)
        least = random.choice([1.0, 2, 5, 6, np.nan], shape)
        removed = least + random.choice([0, 1, 2, 4], shape)
        removed[random.random(shape) < 0.05] = np.nan
        names = ("minimal_count", "removed_count_attention")
        suffix = "_by_head" * (heads > 1)
        columns = (x if heads > 1 else x[:, 0] for x in (least, removed))
        found = dict(zip((f"{name}{suffix}" for name in names), columns, strict=True))
        return found, agreement(0.9, texts=120) | {"supporting": random.integers(1, 6, 120) * 1.0}

    @pytest.mark.parametrize("heads", [1, 3])
    def test_share_by_a_loop(self, tmp_path: Path, heads: int) -> None:
        flips, effects = self.rows(heads)
        write(tmp_path, "leave_one_out_agreement", effects)
        write(tmp_path, "decision_flip", flips)
        shares = []
        for of_text, gone, most in zip(*flips.values(), effects["supporting"], strict=True):
            counted = [
                (x, y)
                for x, y in zip(np.atleast_1d(of_text), np.atleast_1d(gone), strict=True)
                if x <= most
            ]
            if counted:
                shares.append(np.mean([y <= x + max(1, x / 4) for x, y in counted]))
        line = verdict_of(tmp_path)["smallest_set"]
        assert (line.value, line.texts) == (pytest.approx(np.mean(shares)), len(shares))
        assert ("of each head alone" in line.says) == (heads > 1)

    def test_is_not_shown_where_deletion_finds_less(self, tmp_path: Path) -> None:
        flips, effects = self.rows()
        write(tmp_path, "decision_flip", flips)
        for supporting in (0.0, None):
            if supporting is not None:
                write(tmp_path, "leave_one_out_agreement", effects | {"supporting": np.zeros(120)})
            assert "smallest_set" not in {line.name for line in verdict_of(tmp_path).lines}


class TestUniqueness:
    def rows(self, exact: bool = True) -> Rows:
        share = np.linspace(0.5, 1, 101)
        upper = 0.6 * share + 0.1 * (not exact)
        return {"worst_share": share, "worst_js": 0.6 * share, "upper_js": upper}

    @pytest.mark.parametrize("exact", [True, False])
    def test_is_a_caution_with_its_number(self, tmp_path: Path, exact: bool) -> None:
        write(tmp_path, "adversarial_attention", self.rows(exact), epsilon=0.05)
        line = verdict_of(tmp_path)["uniqueness"]
        assert (line.answer, line.value) == ("caution", pytest.approx(0.75))
        assert ("at least 75 %" in line.says) != exact
        assert "at most 0.05" in line.says
        assert line.missing == "No adversary was trained from it."

    def test_variants_that_were_trained(self, tmp_path: Path) -> None:
        run = tmp_path / "checkpoints/e/base"
        write(run, "adversarial_attention", self.rows(), epsilon=0.01)
        columns = {"uniform_tvd": np.full(60, 0.1), "median_tvd": np.full(60, 0.3)}
        write(run, "attention_permutation", columns)
        adversary, seed = "AdversarialVariant", "SeedVariant"
        trained = [(adversary, 0.1, 0.6, 0.2), (adversary, 0.01, 0.4, 0.04)]
        trained += [(adversary, 0.001, 0.2, 0.01), (adversary, 0, 0.5, 0.01)]  # the last imitates
        trained += [(seed, None, 0.1, 0.03), (seed, None, 0.2, 0.05)]
        trained += [("UniformVariant", None, 0.9, 0.0)]  # of another base
        for number, (kind, weight, js, tvd) in enumerate(trained):
            folder = tmp_path / f"checkpoints/variants/{number}"
            rows = {"attention_js": np.full(20, js), "prediction_tvd": np.full(20, tvd)}
            other = kind == "UniformVariant"
            base = tmp_path / "checkpoints/e/other" if other else run / "best.ckpt"
            write(folder, "base_divergence", rows, base=str(base))
            arguments = {} if weight is None else {"lambda_": weight}
            model = {"class_path": f"attnlight.tasks.{kind}", "init_args": arguments}
            (folder / "fit.yaml").write_text(yaml.safe_dump({"model": model}))
        broken = tmp_path / "checkpoints/variants/broken/records/test/base_divergence.parquet"
        broken.parent.mkdir(parents=True)
        broken.write_bytes(b"no parquet")
        assert verdict_of(run)["uniqueness"].missing == (
            "Of the 3 adversaries trained from it, 2 predict alike (mean total variation distance at "
            "most 0.05). The furthest of these is at a JS divergence of 0.40 from its attention."
        )
        seeds = "2 other seeds predict 0.040 apart and attend at a JS divergence of 0.15"
        assert seeds in verdict_of(run)["needed"].says


@pytest.mark.parametrize(
    ("tau", "own", "answer"),
    [(0.9, 0.3, "yes"), (0.8, 0.3, "not shown"), (0.4, 0.9, "no"), (0.0, 1.0, "yes")],
)
def test_whether_states_stand_for_words(
    tmp_path: Path, tau: float, own: float, answer: str
) -> None:
    noisy = tau + 0.05 * np.random.default_rng(0).normal(size=100)
    rows = {"tau_erasure_deletion": noisy, "hidden_token_attribution": np.full(100, own)}
    write(tmp_path, "state_token_agreement", rows)
    assert verdict_of(tmp_path)["words"].answer == answer


class TestMajority:
    @staticmethod
    def labelled(better: int, texts: int = 60, tokens: int = 1, seed: int = 0) -> Rows:
        """Labels, mostly of class 1, and predictions that gain `better` of the other rows."""
        random = np.random.default_rng(seed)
        label = random.permutation(np.resize([1, 1, 1, 0, 2], texts * tokens))
        others = np.flatnonzero(label != 1)
        prediction = np.ones_like(label)
        prediction[others[:better]] = label[others[:better]]
        prediction[np.flatnonzero(label == 1)[:3]] = 0
        keys = {"index": np.repeat(np.arange(texts), tokens)}
        keys["position"] = np.tile(np.arange(tokens), texts)
        return {"label": label, "prediction": prediction, **keys}

    @pytest.mark.parametrize(("better", "tokens"), [(4, 1), (20, 1), (9, 3)])
    def test_by_a_loop(self, tmp_path: Path, better: int, tokens: int) -> None:
        """Difference of accuracy and share, paired, of resampled texts with all their tokens."""
        rows = self.labelled(better, tokens=tokens)
        write(tmp_path, "predictions", rows, classes=["bad", "good", "mixed"])
        texts, largest = 60, np.bincount(rows["label"]).argmax()
        of_text: list[list[int]] = [[] for _ in range(texts)]
        columns = (rows[name] for name in ("index", "label", "prediction"))
        for text, label, found in zip(*columns, strict=True):
            of_text[text].append(int(found == label) - int(label == largest))
        random, replicates = np.random.default_rng(0), []
        for _ in range(1_000):
            drawn = [x for text in random.integers(0, texts, texts) for x in of_text[text]]
            replicates.append(sum(drawn) / len(drawn))
        assert (np.quantile(replicates, 0.025) <= 0) == (better != 20)
        accuracy = np.mean(rows["prediction"] == rows["label"])
        share = np.mean(rows["label"] == largest)
        expected = (
            "Nothing can be read here: as far as 60 texts can tell, the model predicts no better than "
            f"its majority class (accuracy {accuracy:.2f}, that of always saying "
            f'"{["bad", "good", "mixed"][largest]}" {share:.2f}). Train it further, or check that its '
            "classes are those of the corpus."
        )
        assert (verdict_of(tmp_path).sentence == expected) == (better != 20)

    def test_texts_of_one_label_tell_nothing_of_a_model_that_is_right(self, tmp_path: Path) -> None:
        rows = {"label": np.ones(40, np.int64), "prediction": np.ones(40, np.int64)}
        write(tmp_path, "predictions", rows, classes=["bad", "good"])
        card = verdict_of(tmp_path)
        assert card.case == "majority"
        assert 'all 40 texts have the label "good"' in card.sentence
        assert "Train it further" not in card.sentence
        assert card.sentence_parts[1] == "Nothing can be read here"

    def test_few_texts_and_texts_without_labels_show_nothing(self, tmp_path: Path) -> None:
        for texts in (29, 30):
            write(tmp_path, "predictions", self.labelled(0, texts))
            assert (verdict_of(tmp_path).case == "majority") == (texts == 30)
        rows = self.labelled(0)
        for given in ({"prediction": rows["prediction"]}, rows | {"label": np.full(60, -100)}):
            write(tmp_path, "predictions", given)
            assert verdict_of(tmp_path).case == "unmeasured"


@pytest.mark.parametrize("broken", [0, 3, 200])
def test_rows_that_are_not_finite(tmp_path: Path, broken: int) -> None:
    """Where no row is finite, the lines say so and ask for nothing; others leave such rows out."""
    rows, settings = comprehensiveness()
    tests: dict[str, Rows] = {"faithfulness": rows, "leave_one_out_agreement": agreement(0.9, 0.8)}
    tests["adversarial_attention"] = TestUniqueness().rows()
    tests["attention_permutation"] = dict.fromkeys(("uniform_tvd", "median_tvd"), np.full(200, 0.3))
    words = ("tau_erasure_deletion", "hidden_token_attribution")
    tests["state_token_agreement"] = dict.fromkeys(words, np.full(200, 0.9))
    for test, columns in tests.items():
        prediction = np.where(np.arange(len(next(iter(columns.values())))) < broken, -1, 0)
        write(tmp_path, test, columns | {"prediction": prediction}, epsilon=0.01, **settings)
    card = verdict_of(tmp_path)
    answers = {line.answer for line in card.lines}
    assert "not measured" not in answers
    assert (answers == {"not finite"}) == (broken == 200)
    some = "The logits or attention of {} 200 instances are not finite{}."
    said = {0: "", 3: some.format("3 of", ": the lines leave them out")}
    assert card.caveat == said.get(broken, some.format("all", ""))
    if broken == 200:
        assert not any(line.command for line in card.lines)
        assert "adversary" not in str(card)


class TestCommands:
    def test_a_run_is_told_what_to_run(self, tmp_path: Path) -> None:
        (tmp_path / "fit.yaml").write_text("model: {class_path: attnlight.tasks.ChunkTagger}\n")
        card = verdict_of(tmp_path)
        assert card["ranks"].command == f"attnlight test {tmp_path} --tests card"
        rows, settings = comprehensiveness()
        write(tmp_path, "faithfulness", rows, **settings | {"methods": {}})
        # One short command measures what is lacking, and is named once.
        card = verdict_of(tmp_path)
        command = f"attnlight test {tmp_path} --tests card --overwrite"
        assert {line.command for line in card.lines} == {command}
        assert str(card).count("--overwrite") == 1

    def test_on_another_corpus(self, tmp_path: Path) -> None:
        (tmp_path / "fit.yaml").write_text("{}\n")
        write(tmp_path, "leave_one_out_agreement", agreement(0.9))
        card = verdict_of(tmp_path, "reviews")
        assert card["ranks"].answer == "not measured"
        command = f"attnlight test -c {tmp_path / 'test-reviews.yaml'} --tests card"
        assert card["ranks"].command == command
        assert card.heading.endswith("On reviews.")

    def test_records_of_two_checkpoints_are_refused(self, tmp_path: Path) -> None:
        write(tmp_path, "leave_one_out_agreement", agreement(0.9), checkpoint="best.ckpt")
        columns = {"uniform_tvd": np.full(60, 0.1), "median_tvd": np.full(60, 0.3)}
        other = {"checkpoint": "best.ckpt", "checkpoint_hash": "other"}
        write(tmp_path, "attention_permutation", columns, **other)
        with pytest.raises(InputError, match="different versions of best"):
            verdict_of(tmp_path)


def test_the_same_words_in_the_file_and_for_loggers(tmp_path: Path) -> None:
    card = card_of(tmp_path, agreement(0.9, 0.8))
    card.write(tmp_path / "report")
    written = json.loads((tmp_path / "report/verdict.json").read_text("utf-8"))
    assert (written["checkpoint"], written["sentence"]) == ("abc", card.sentence)
    assert [line["text"] for line in written["lines"]] == list(map(str, card.lines))
    said = card.summary()
    assert said["verdict/sentence"] == card.sentence
    assert said["verdict/ranks_value"] == card["ranks"].value
    assert "verdict/uniqueness_value" not in said
    for line in card.lines:
        assert said[f"verdict/{line.name}_text"] == str(line)
        assert said[f"verdict/{line.name}_answer"] == line.answer
        assert " ".join(str(line).split()) in " ".join(str(card).split())


def test_a_number_that_rounds_to_zero_has_no_minus() -> None:
    found = Estimate(-0.0004, np.full(9, -0.0004), 9)
    fields = {"method": "Occlusion", "attention": -0.001, "passes": "9"}
    records: Any = SimpleNamespace(unit="words", total=0)
    line = line_of(records, "alternative", "", "says", found, (-0.001, 0.0), **fields)
    assert "takes 0.00 [0.00, 0.00] from" in line.says
    assert "attention takes 0.00;" in line.says


def test_the_page_has_the_rules() -> None:
    text = " ".join((ROOT / "docs/verdict.md").read_text(encoding="utf-8").split())
    ranks, finds, smallest = (RULES[name] for name in ("ranks", "finds", "smallest_set"))
    for sentence in (
        f"at least {ranks['yes_from']:g} in the worst predicted class",
        f"at least {ranks['yes_from_alone']:g}, and at least {100 * ranks['found_from']:g} % (the",
        f"takes at least {100 * ranks['least_found']:g} % of what",
        f"reach {ranks['slack']:g} below",
        f"below {ranks['no_below']:g}",
        f"at most {100 * ranks['most_opposing']:g} % of the weight",
        f"of at least {RULES['least_texts']} texts",
        f"below {ranks['least_effect']:g}, or a tenth",
        f"less than {finds['least_effect']:g} over random",
        f"of at most {RULES['needed']['alike']:g}",
        f"from {RULES['words']['yes_from']:g} on",
        f"{smallest['slack_items']} item or {100 * smallest['slack_share']:g} %",
    ):
        assert sentence in text


def test_the_file_names_the_hash_of_its_rules() -> None:
    assert RULES["digest"] == digest()
    decided = {*RULES["decisions"], "unmeasured", "too_few", "majority", "not_established"}
    assert decided <= set(RULES["sentences"])


def test_cards_side_by_side(tmp_path: Path) -> None:
    folders = [tmp_path / name / "run" for name in ("a", "b")]
    for folder, d in zip(folders, (0.3, 0.95), strict=True):
        card_of(folder, agreement(d))
        write(folder, "predictions", TestMajority.labelled(20))
    assert write_comparison(folders, tmp_path / "out")
    text = (tmp_path / "out/tables/cards.csv").read_text(encoding="utf-8")
    head, sentences, ranks, *_ = csv.reader(io.StringIO(text))
    assert head == ["line", "a/run", "b/run"]
    cards = [verdict_of(folder) for folder in folders]
    assert sentences[1:] == [card.sentence for card in cards]
    values = [card["ranks"].value or 0.0 for card in cards]
    assert ranks[1:] == [f"no {values[0]:.2f}", f"yes {values[1]:.2f}"]
