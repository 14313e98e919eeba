"""`attnlight reliability`: how well runs of several seeds agree on the importance of items."""

from pathlib import Path

from attnlight.cli.arguments import VerbParser
from attnlight.errors import InputError
from attnlight.storage.files import replacing

COMPARABLE = ("importance_correlation", "saliency_agreement")
DESCRIPTION = """\
For each text, Kendall's tau-b between two runs of the same corpus: of their attention, of their
gradients and of their leave-one-out scores over the words, or of each attribution method.
`shuffled attention` is one run's attention against the other's in random order, which is 0 on
average. Agreement between seeds is the scale on which to judge how well two scores of one run agree:
the second table has the agreement of each pair beside its ceiling, the smaller agreement of the two
between seeds; of attribution methods by Spearman's correlation and by overlap of the top tenth too.
The input is RUN/records/test/TEST.parquet of `ImportanceCorrelation` or `SaliencyAgreement`, written
with keep_scores: true."""


def main(argv: list[str]) -> int:
    """Print the agreement of the runs."""
    parser = VerbParser("reliability", description=DESCRIPTION)
    add = parser.add_argument
    add("runs", metavar="RUN", nargs="+", type=Path, help="checkpoints/<experiment>/<run>")
    add("--output", metavar="FILE", type=Path, help="write tau of each text and pair (parquet)")
    add("--seed", type=int, default=0, help="seed of the random orders and of the intervals")
    first = f"{' or '.join(COMPARABLE)}, whose record to read (default: what the first run has)"
    add("--test", metavar="TEST", choices=COMPARABLE, help=first)
    options = parser.parse_args(argv)
    if len(options.runs) < 2 or len({run.resolve() for run in options.runs}) < len(options.runs):
        raise InputError("attnlight reliability compares two or more different runs.")
    import pyarrow as pa

    from attnlight.records.parquet import open_writer
    from attnlight.report import agreement as of

    tests = [options.test] if options.test else COMPARABLE
    there = [test for test in tests if (options.runs[0] / of.RECORD.format(test)).is_file()]
    test = next(iter(there or tests))
    kinds = of.KINDS if test == "saliency_agreement" else ["tau"]
    taus = of.agreement(of.read_scores(options.runs, test), options.seed, kinds)
    if options.output is not None:
        with replacing(options.output) as temporary:
            columns = pa.Table.from_pandas(taus).replace_schema_metadata()
            with open_writer(temporary, columns.schema) as writer:
                writer.write_table(columns)
    print(of.table(taus, len(options.runs), options.seed).to_markdown(), end="")
    pairs = of.pair_table(options.runs, taus, test, options.seed)
    if pairs.rows:
        print(f"\n{pairs.to_markdown()}", end="")
    if options.output is not None:
        print(options.output)
    return 0
