"""Every row of the two lists of mistakes, faults and hostile input has a test that shows its answer.

The rows are what users, machines and strangers' files did wrong when attnlight was tried, and what
three newcomers did. A row names tests as pytest does, without `tests/`. In brackets stands what tells
the case of a test from others: the id of a command in test_mistakes.py, elsewhere words of the file.
"""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from tests.commands import ROOT
from tests.test_mistakes import MISTAKES

COMMAND = "test_mistakes.py::test_mistake"
NEAREST = "cli/test_composition.py::TestMistakes::test_are_answered_with_the_nearest"
CORPUS = "cli/test_corpus.py::test_a_corpus_that_cannot_be_used_stops_fit_before_all_else"
CORES = "test_ranks_end.py::TestCores"
HERE = "huggingface/test_elsewhere.py"
FOLDER = "huggingface/test_folder.py::test_one_sentence"
TABLES = "cli/test_tables.py"
ONE = "test_mistakes.py::TestOneProcessAtATime"
DISK = "test_mistakes.py::TestDisk"
HOSTILE = "test_mistakes.py::test_hostile_texts_names_and_paths_go_through"
DATA = "reference/test_rows.py::test_other_data_are_refused"
NOTHING = "reference/test_rows.py::test_options_of_nothing_are_refused"
RESUMED = "cli/test_resuming.py"
TABLE = "attribution/test_external.py::test_a_wrong_table_is_refused"

FAULTS = {
    "option, class or prefix misspelt": [
        f"{NEAREST}[--model.attnetion]",
        f"{NEAREST}[AttentionClasifier]",
        f"{COMMAND}[--trainer.max_epoch=1]",
    ],
    "literal out of its set": [f"{COMMAND}[--trainer.precision=17]"],
    "broken YAML": [f"{COMMAND}[broken-yaml]"],
    "configuration missing": [f"{COMMAND}[missing-config]"],
    "unknown verb": [f"{COMMAND}[verb]"],
    "unknown key of a study": [f"{COMMAND}[study-key]"],
    "corpus folder missing": [f"{COMMAND}[corpus-folder]"],
    "column missing": [f'{CORPUS}["text": "sentence"]', f'{CORPUS}["label": "lable"]'],
    "split missing": [f'{CORPUS}["test": "tset"]'],
    "class label missing": [f"{COMMAND}[class-label]"],
    "labels NaN": [f"{COMMAND}[labels-nan]"],
    "test split empty": [f"{COMMAND}[empty-test-split]"],
    "fraction above 1": [f'{CORPUS}["test_fraction": 1.5]'],
    "batch size 0": [f"{COMMAND}[batch-size]"],
    "hub offline": [f"{COMMAND}[hub-offline]"],
    "validation split not named": [
        "datamodules/test_bring.py::test_csv_files_without_a_test_split"
    ],
    "one split only": [
        f"{TABLES}::test_what_fit_finds_is_written_down_and_is_what_its_options_say"
    ],
    "mapping of classes printed twice": [f"{CORPUS}[Given value]"],
    "another corpus after RUN/fit.yaml": [
        "cli/test_composition.py::TestData::test_is_replaced_whole"
    ],
    "tests before a trainer, no trainer, bare fit": [
        "cli/test_composition.py::TestTrainer::test_tests_before_a_trainer_of_ones_own_stay",
        "cli/test_composition.py::TestTrainer::test_naming_the_default_changes_nothing",
        "cli/test_lightning_cli.py::test_bare_verb_prints_its_usage",
    ],
    "checkpoint missing": [f"{COMMAND}[checkpoint-nowhere.ckpt]"],
    "checkpoint truncated": [f"{COMMAND}[checkpoint-half.ckpt]"],
    "checkpoint a text file": [f"{COMMAND}[checkpoint-text.ckpt]"],
    "checkpoint of another corpus, attention or program": [
        f"{COMMAND}[checkpoint-of-other-classes]",
        f"{COMMAND}[checkpoint-of-another-attention]",
        f"{COMMAND}[checkpoint-foreign.ckpt]",
    ],
    "base missing or wrong": [
        f"{COMMAND}[variant-without-base]",
        f"{COMMAND}[variant-of-nothing]",
        f"{COMMAND}[variant-of-a-text]",
        f"{COMMAND}[divergence-without-base]",
    ],
    "bytes flipped in checkpoint, record or corpus": [
        "test_damage.py::TestCheckpoint::test_every_byte",
        "test_damage.py::TestRecord::test_every_byte",
        "datamodules/test_damage.py::test_a_damaged_corpus_is_prepared_again",
    ],
    "prepared corpus truncated, empty or flipped": [
        "datamodules/test_damage.py::test_a_damaged_corpus_is_prepared_again"
    ],
    "run exists": [f"{COMMAND}[run-exists]"],
    "report on empty, missing, file, run without records": [
        f"{COMMAND}[report-nowhere]",
        f"{COMMAND}[report-a-file]",
        f"{COMMAND}[report-no-records]",
    ],
    "reliability of one run": [f"{COMMAND}[reliability-of-one]"],
    "seed -1": [f"{COMMAND}[--seed_everything=-1]"],
    "epochs -5": [f"{COMMAND}[--trainer.max_epochs=-5]"],
    "accelerator that is not there": [f"{COMMAND}[--trainer.accelerator=tpu]"],
    "root with NUL": [f"{COMMAND}[--root=a\0b]"],
    "99 devices on 2 cores": [
        f"{CORES}::test_more_processes_than_cores_are_refused_before_anything_is_made"
    ],
    "run that leaves the root": [
        f"{COMMAND}[fit-run-'../../esc']",
        f"{COMMAND}[fit-run-'']",
        f"{COMMAND}[test-run-'/tmp/esc']",
        "test_mistakes.py::test_nothing_is_deleted_outside_the_root",
        "storage/test_run_folder.py::test_a_name_is_that_of_one_folder",
    ],
    "two commands on one run at once": [f"{ONE}::test_a_second_is_refused"],
    "kill -9 at any moment": [
        "test_resume.py::test_killed_run_resumes_to_the_same_checkpoints",
        "studies/test_whole.py::test_killed_study_ends_with_the_same_table",
        "storage/test_locking.py::test_leftovers_of_killed_processes_go_and_nothing_else",
    ],
    "rank 0 killed while another joins": [
        "test_ranks_end.py::test_a_rank_that_joins_ends_with_rank_zero"
    ],
    "disk full during records, figures, predict, cache, report": [
        f"{DISK}::test_that_is_full",
        f"{DISK}::test_that_is_full_while_a_corpus_is_prepared",
    ],
    "disk full during a checkpoint": [f"{DISK}::test_that_fills_up_while_a_checkpoint_is_written"],
    "folder read-only": [f"{DISK}::test_that_is_read_only"],
    "fit.yaml or status.json no UTF-8": [
        f"{COMMAND}[no-utf-8-in-fit.yaml]",
        f"{COMMAND}[report-latin]",
        f"{COMMAND}[status-latin]",
    ],
    "wandb_id empty": [f"{COMMAND}[empty-wandb-id]"],
    "YAML nested 3,000 deep": [f"{COMMAND}[deep-yaml]"],
    "malicious pickle": [
        f"{COMMAND}[checkpoint-raw.ckpt]",
        f"{COMMAND}[checkpoint-hyper_parameters.ckpt]",
        f"{COMMAND}[checkpoint-state_dict.ckpt]",
        "test_mistakes.py::test_nothing_that_a_file_holds_was_run",
    ],
    "python tags and an alias bomb": [f"{COMMAND}[python-tag]", f"{COMMAND}[alias-bomb]"],
    "texts with script tags, NUL, bidi, a word of 1 MB, none": [f'{HOSTILE}["w" * 1_000_000]'],
    "class name with a bidi override": [f"{HOSTILE}[202eevil]"],
    "emoji, right-to-left, paths with spaces": [f"{HOSTILE}[a corpus ü]"],
    "text of 20,000 words": [
        "callbacks/test_importance_correlation.py::test_what_takes_long_is_said_once"
    ],
}
MISTAKEN = {
    "CSV as first argument of fit": [f"{COMMAND}[table-as-configuration]"],
    "CoNLL file as --data": [f"{COMMAND}[--data=tags.txt]", f"{COMMAND}[tags-as-configuration]"],
    "--data FOLDER": ["cli/test_composition.py::TestData::test_may_be_a_folder"],
    "one table under test": [
        f"{TABLES}::test_one_table_is_tested_whole_unless_the_model_was_trained_on_it",
        f"{TABLES}::test_one_table_tests_a_model_from_elsewhere",
    ],
    "five options for one CSV": [
        "data/test_find_columns.py::test_what_is_left_open_is_one_sentence",
        f"{COMMAND}[--data=open.csv]",
    ],
    "tags that are not BIO": [f"{TABLES}::test_a_file_of_tags_trains_a_tagger"],
    "export of a run without human marks": [
        "cli/test_export.py::test_all_scores_of_a_text_are_a_line",
        f"{COMMAND}[export-without-scores]",
    ],
    "explain, load and test of a Hugging Face folder": [
        f"{HERE}::TestPython::test_folders_and_runs",
        f"{HERE}::TestCommands::test_short_forms",
    ],
    "explain sst --html 'text'": ["api/test_explain.py::test_texts_stand_before_and_after_options"],
    "Hugging Face test without --data": [f"{HERE}::TestCommands::test_a_corpus_must_be_named"],
    "LABEL_0, LABEL_1": [f"{HERE}::TestCommands::test_classes_without_names"],
    "regression, multi-label, token or pair model in Python": [
        "huggingface/test_folder.py::test_models_in_memory"
    ],
    "model folder missing, empty, of a Trainer": [f"{HERE}::test_what_is_no_model"],
    "weights truncated, a git-lfs pointer, of wrong sizes": [
        f'{FOLDER}["truncated"]',
        f'{FOLDER}["pointer"]',
        f'{FOLDER}["sizes"]',
    ],
    "vocab.txt without tokenizer.json": [
        f'{FOLDER}["slow-tokenizer"]',
        "huggingface/test_folder.py::TestWhatIsRead::test_a_vocabulary_of_word_pieces_is_what_transformers_makes_of_it",
    ],
    "--run NAME with a Hugging Face model": [
        f"{HERE}::TestCommands::test_a_run_that_was_trained_here"
    ],
    "guide's next commands, explain and card after a Hugging Face test": [
        f"{HERE}::TestCommands::test_a_run_stands_for_its_model_from_anywhere",
        f"{HERE}::TestCommands::test_the_commands_of_the_card_fill_it",
    ],
    "--trainer.epochs 3": [f"{COMMAND}[--trainer.epochs=3]"],
    "--test card": [f"{COMMAND}[--test=card]"],
    "--model bilstm": [f"{COMMAND}[--model=bilstm]"],
    "report EXPERIMENT": [f"{COMMAND}[report-an-experiment]"],
    "run(model, 'a film')": [
        "reference/test_rows.py::test_a_string_is_one_text_to_explain_and_no_data_to_test_on"
    ],
    "run(model, DataFrame), run(model, {'text': [...]})": [
        'reference/test_rows.py::test_tables_are_read_by_rows["frame"]',
        'reference/test_rows.py::test_tables_are_read_by_rows["columns"]',
    ],
    "run(model, DatasetDict)": [f"{DATA}[SPLITS, f]"],
    "labels 1 to 3 of classes '1', '2', '3'": [
        "reference/test_rows.py::test_a_label_is_a_class_or_refused[(NAMED, 2]"
    ],
    "tests=''": [f'{NOTHING}[("tests", tests]'],
    "batch_size=0, -1": [f"{NOTHING}[for n in (0, -1)]"],
    "lone surrogate": [
        f"{DATA}[has a lone surrogate]",
        "reference/test_rows.py::test_what_is_no_list_of_texts_is_not_encoded[udce9]",
    ],
    "resume with another learning rate": [
        f"{RESUMED}::test_another_training_is_refused[learning_rate=0.01]"
    ],
    "resume with changed labels": [f"{RESUMED}::test_another_corpus_is_refused"],
    "study grown after its corpus changed": [
        "studies/test_scheduling.py::test_a_study_that_grows_after_its_corpus_changed_is_refused"
    ],
    "--tests card and then --tests cheap": [f"{COMMAND}[card-beside-other-settings]"],
    "scores of other texts of the same length": [
        f"{TABLE}[it is of other texts or of a]",
        f"{TABLE}[but the text has]",
    ],
    "infinite scores": [f'{TABLE}["score": np.inf]'],
    "model below its majority class": [
        "report/test_verdict.py::TestMajority::test_by_a_loop",
    ],
    "SIGTERM during sanity": ['test_signals.py::test_status["sanity"]'],
}


@cache
def source(file: str) -> tuple[str, frozenset[str]]:
    """The text of a test file and its tests, each with the class that it is in."""
    text = (ROOT / "tests" / file).read_text(encoding="utf-8")
    found = set()
    for node in ast.parse(text).body:
        inner = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}::" if isinstance(node, ast.ClassDef) else ""
        found |= {f"{prefix}{one.name}" for one in inner if isinstance(one, ast.FunctionDef)}
    return text, frozenset(found)


@pytest.mark.parametrize("row", [*FAULTS, *MISTAKEN])
def test_has_a_test(row: str) -> None:
    commands = {mistake.id for mistake in MISTAKES}
    for named in (FAULTS | MISTAKEN)[row]:
        file, test, case = re.fullmatch(r"(.*?)::(.*?)(?:\[(.*)\])?", named, re.DOTALL).groups()  # type: ignore[union-attr]
        text, tests = source(file)
        assert test in tests, named
        if named.startswith(COMMAND):
            assert case in commands, named
        else:
            assert (case or "") in text, named
