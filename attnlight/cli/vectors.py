"""`attnlight vectors`: word vectors trained on the text of one or several corpora."""

from pathlib import Path
from typing import Any

from attnlight.cli.arguments import VerbParser
from attnlight.errors import InputError
from attnlight.storage.shipped import find_config

DESCRIPTION = """\
Train word vectors with word2vec (continuous bag of words) on the training and validation texts of
one or several corpora together, and write them as a word2vec text file for the option `vectors` of
a model. Training uses one worker, so that the same command writes the same file."""
EPILOG = """\
attnlight vectors -c imdb_all -c sst --output vectors/imdb_sst_300.vec writes the vectors of
configs/models/bilstm_additive_vectors.yaml."""


def parser() -> VerbParser:
    """The arguments of the command; the defaults are those of `Word2VecSettings`."""
    arguments = VerbParser("vectors", description=DESCRIPTION, epilog=EPILOG)
    add = arguments.add_argument
    corpora = "corpus file, or the name of a shipped one; repeat to add corpora"
    named: dict[str, Any] = {"metavar": "DATA", "action": "append", "dest": "configs"}
    add("-c", "--config", required=True, help=corpora, **named)
    add("--output", metavar="FILE", type=Path, required=True, help="file to write")
    for name, default, meaning in (
        ("size", 300, "size of each vector"),
        ("epochs", 30, "passes over the texts"),
        ("window", 5, "maximum distance of words that predict a word"),
        ("min_count", 5, "minimum number of occurrences for a word to get a vector"),
        ("seed", 0, "random seed"),
    ):
        add(f"--{name}", metavar="N", type=int, default=default, help=f"{meaning} ({default})")
    return arguments


def main(argv: list[str]) -> int:
    """Train the vectors, write the file and print its size and its path."""
    options = vars(parser().parse_args(argv))
    files, output = options.pop("configs"), options.pop("output")
    from attnlight.data.word2vec import CorpusText, Word2VecSettings, train_word2vec
    from attnlight.datamodules import CorpusDataModule
    from attnlight.storage.files import replacing
    from attnlight.storage.parsing import OneSentenceParser

    settings, texts = Word2VecSettings(**options), []
    reader = OneSentenceParser()
    reader.add_subclass_arguments(CorpusDataModule, "data")
    for name in files:
        file = Path(find_config(name, "data"))
        if not file.is_file():
            raise InputError(f"there is no file {file}; -c names a corpus, as in configs/data.")
        try:
            parsed = reader.parse_args(["--data", str(file)])
        except InputError as error:
            raise InputError(f"{file} does not describe a corpus: {error}") from error
        texts.append(reader.instantiate(parsed).data.training_text)
    text = CorpusText(texts)
    with replacing(output) as temporary:  # opened first, to refuse an invalid path before training
        vectors = train_word2vec(text, settings)
        vectors.save_word2vec_format(temporary)
    print(f"{len(vectors):,} words, size {settings.size}", output, sep="\n")
    return 0
