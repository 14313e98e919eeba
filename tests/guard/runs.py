"""Every command line of the guard; where classes, options or files are renamed, edit this file.

All commands run in one folder, which holds the runs below `runs/` and the corpus of `chunks/`.
"""

from __future__ import annotations

from pathlib import Path

from attnlight.report.study.conditions import write_exclusivity
from tests.commands import CONFIGS, CPU, QUIET
from tests.kept import archived

STUDIES = archived() / "studies"
ALL = ["-c", f"{CONFIGS}/tests/all.yaml"]
DIVERGENCE = ["-c", f"{CONFIGS}/tests/base_divergence.yaml"]
FIT = [
    "fit",
    "-c",
    f"{CONFIGS}/trainer.yaml",
    "--root=runs",
    "--trainer.max_epochs=2",
    *CPU,
    *QUIET,
]

_PLANTED = [
    *("--data.train_size=60", "--data.validation_size=20", "--data.test_size=24"),
    *("--data.min_tokens=7", "--data.max_tokens=13", "--data.vocabulary=40"),
    *("--data.batch_size=8", "--data.eval_batch_size=7"),
]
_CHUNKS = [
    *("--data=ChunkingDataModule", "--data.path=chunks", "--data.word_column=0"),
    *("--data.pos_column=1", "--data.label_column=-1", "--data.train=train.txt"),
    *("--data.test=test.txt", "--data.case=true", "--data.pos=true", "--data.suffixes=[2]"),
    *("--data.characters=8", "--data.batch_size=8", "--data.eval_batch_size=5"),
]
_SMALL = [
    "--model.net.embedding_size=8",
    "--model.net.hidden_size=4",
    "--model.optimizer.learning_rate=0.02",
]
_TAGGER = [
    *("--model.net.embedding_size=8", "--model.net.hidden_size=8", "--model.net.heads=2"),
    *(
        "--model.net.filter_size=8",
        "--model.net.feature_size=4",
        "--model.optimizer.learning_rate=0.02",
    ),
    "--model.optimizer.warmup_steps=null",
]
DATA = {
    "text": [f"--data={CONFIGS}/data/planted.yaml", *_PLANTED],
    "sentences": [
        f"--data={CONFIGS}/data/planted_sentences.yaml",
        *_PLANTED,
        "--data.sentence_length=3",
    ],
    "tagging": _CHUNKS,
    "tagging_study": _CHUNKS,
}
BASES = {
    "text": [f"--model={CONFIGS}/models/bilstm_additive.yaml", *_SMALL],
    "sentences": [
        *(f"--model={CONFIGS}/models/han_rnn.yaml", "--model.vectors.path=null", *_SMALL),
        *("--model.net.attention_size=6", "--model.net.embedding_scale=1.0"),
        # Decisions differ, and flip, after so few steps.
        *("--model.optimizer.learning_rate=0.08", "--model.net.embedding_dropout=0"),
        *("--model.net.sentence_dropout=0", "--model.net.dropout=0"),
    ],
    "tagging": [f"--model={CONFIGS}/models/tagger_residual.yaml", *_TAGGER],
    "tagging_study": [f"--model={CONFIGS}/models/tagger_study.yaml", *_TAGGER],
}
_ADVERSARY = [f"--model={CONFIGS}/models/adversarial.yaml"]
_TAGGING_ADVERSARY = [f"--model={CONFIGS}/models/tagger_adversarial.yaml"]
_CLASSIFIERS = {
    "uniform": [f"--model={CONFIGS}/models/uniform.yaml"],
    "seed": [f"--model={CONFIGS}/models/seed.yaml", "--seed_everything=1"],
    "guided": [f"--model={CONFIGS}/models/guided_mlp.yaml"],
    "adversarial": [*_ADVERSARY, "--model.lambda_=0.1"],
    "learned": [f"--model={CONFIGS}/models/guided_mlp.yaml", "--model.guide=learned"],
    "released": [*_ADVERSARY, "--model.lambda_=0.1", "--model.released=true"],
}
_TAGGERS = {
    "uniform": [f"--model={CONFIGS}/models/tagger_uniform.yaml"],
    "seed": [f"--model={CONFIGS}/models/tagger_seed.yaml", "--seed_everything=1"],
    "guided": [f"--model={CONFIGS}/models/tagger_guided.yaml"],
    "adversarial": [*_TAGGING_ADVERSARY, "--model.lambda_=0.1"],
    "head": [f"--model={CONFIGS}/models/tagger_uniform.yaml", "--model.head=1"],
    "tokens": [f"--model={CONFIGS}/models/tagger_guided.yaml", "--model.context=tokens"],
    "learned": [f"--model={CONFIGS}/models/tagger_guided.yaml", "--model.guide=learned"],
    "released": [*_TAGGING_ADVERSARY, "--model.lambda_=1", "--model.released=true"],
}
VARIANTS = {
    "text": _CLASSIFIERS,
    "sentences": _CLASSIFIERS,
    "tagging": _TAGGERS,
    "tagging_study": {name: _TAGGERS[name] for name in ("guided", "adversarial")},
}
TESTED = ("uniform", "seed", "guided", "adversarial")  # the others are fitted alone


def fit_base(corpus: str) -> list[str]:
    return [*FIT, *ALL, f"--experiment={corpus}", "--run=base", *BASES[corpus], *DATA[corpus]]


def fit_variant(corpus: str, name: str, base: Path) -> list[str]:
    named = [f"--experiment={corpus}", f"--run={name}", f"--model.base={base}"]
    return [*FIT, *DIVERGENCE, *VARIANTS[corpus][name], *DATA[corpus], *named]


def test(folder: Path, tests: list[str]) -> list[str]:
    """Test the best checkpoint of a run's folder."""
    files = ["-c", f"{folder}/fit.yaml", *tests, f"--ckpt_path={folder}/best.ckpt"]
    return ["test", *files, *CPU, *QUIET]


def report(folder: Path, output: Path) -> list[str]:
    """The page and tables of a run or of a study."""
    return ["report", str(folder), f"--output={output}"]


def report_conditions(output: Path) -> None:
    """The comparison of the kept studies that are conditions of one; no verb does this alone."""
    stem = "exclusivity_conll2000-"
    folders = sorted(STUDIES.glob(f"{stem}*"))
    write_exclusivity({folder.name.removeprefix(stem): folder for folder in folders}, output)
