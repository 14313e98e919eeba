"""Which sentences of `findings.md` the tables support, and the figures in them: papers, pairs, reasons."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from results_page.findings import Cell, Places, Sentence, Tables, say
from results_page.tables import DASH

Rows = list[dict[str, str]]
Sentences = Iterator[Sentence]
OF_ITSELF = "attention with itself, across seeds"
EVIDENCE = ("evidence", "AUPRC of the model's attention")
EITHER = ("for or against the label", "all")


def grouped(rows: Rows, *columns: str) -> Iterator[Rows]:
    """The rows by the values of columns, in the order of the alphabet."""
    groups: dict[tuple[str, ...], Rows] = {}
    for row in rows:
        groups.setdefault(tuple(row[column].lower() for column in columns), []).append(row)
    return (groups[key] for key in sorted(groups))


def near(rows: Iterable[Mapping[str, str]], ours: str, theirs: str, most: float) -> int:
    """In how many rows the numbers of two columns differ by at most so much."""
    return sum(abs(Cell(row[ours]).value - Cell(row[theirs]).value) <= most for row in rows)


def answers(t: Tables) -> Sentences:
    """The six answers of the front page."""
    bilstm = ("SST", "BiLSTM", "additive")
    columns = ("tau with gradient", "tau with leave-one-out", "tau of the two importances")
    low, loo, both = (t.cell("tau", column, *bilstm) for column in columns)
    high = t.cell("tau", columns[0], "SST", "average", "additive")
    holds = both.low > max(low.high, loo.high) and high.low > low.high
    yield say("agree", holds, low=low, loo=loo, both=both, high=high)
    itself = t.figures("arms", "BiLSTM", OF_ITSELF)
    trained = t.figures("arms", "BiLSTM", "attention, gradient")[-1]
    holds = itself[0].open and itself[1].above and not trained.low > low.high
    yield say("seeds", holds, itself=itself, trained=trained)

    shuffled = t.cells("permutation", "median TVD, median")
    babi = t.cell("pairs", "median TVD", "bAbI 1", "BiLSTM", "additive", "tanh")
    texts = "SST, sentences", "IMDb, 7 to 399 words", "planted, no encoder"
    sst, imdb, planted = (shuffled[name] for name in texts)
    published = sorted(x["Jain & Wallace"] for x in t.rows("bins", texts[1]))
    published = [x for x in published if x != DASH]
    holds = sst.high < 0.05 and imdb.range[1] < 0.1 and babi.low > 0.6
    fields = {
        "sst": sst,
        "imdb": imdb,
        "planted": planted,
        "published": (published[0], published[-1]),
    }
    yield say("shuffled", holds and planted.low > imdb.range[1], babi=babi, **fields)
    shares = t.figures("adversary", "share of ceiling", "additive")
    values = sorted(100 * x.value for x in shares)
    holds = min(x.range[0] for x in shares) > 0.8
    yield say("replaced", holds, least=values[0], most=values[-1])

    imdb, sst, news = (
        t.cell(f"wiegreffe_pinter_{corpus}_table2", "F1", "uniform less trained")
        for corpus in ("imdb", "sst", "20_newsgroups_sports")
    )
    chunks = t.cell("chunking_conll2000_models", "chunk F1, less trained", "uniform attention")
    holds = imdb.below and sst.open and news.open and chunks.below and chunks.high < imdb.low
    yield say("needed", holds, chunks=chunks, imdb=imdb, sst=sst, news=news)

    at = "wiegreffe_pinter_sst_table4"
    beyond, price = t.cell(at, "JS", "best less other seeds"), t.cell(at, "TVD", "best less λ = 0")
    twin, best = t.cell(at, "TVD", "imitation control (λ = 0)"), best_adversary(t, at)
    yield say("another", beyond.above and price.open, best=best, beyond=beyond, twin=twin)
    hidden = t.rows("pruthi", "pronoun", "BiLSTM", "1")[0]
    without = t.cell("pruthi", "accuracy", "pronoun", "BiLSTM", "removed")
    right = Cell(hidden["accuracy"])
    holds = Cell(hidden["largest seed"]).value < 0.0001 and right.low > 0.99 and without.high < 0.8
    yield say("hidden", holds, right=right, without=without)

    seeds = t.cell("chunking_conll2000_distances", "tau", "other seeds of base-s0")
    holds = seeds.low > itself[0].high and not seeds.low > itself[1].high and chunks.below
    yield say("tagging", holds, less=chunks, seeds=seeds, itself=itself)
    settings = t.figures("exclusivity_conll2000_tokens_less_marked", "difference")
    yield say("exclusive", all(x.open for x in settings), settings=len(settings))

    alone, mixed = (
        t.cell(*EVIDENCE, f"planted, {name}", *EITHER) for name in ("no encoder", "BiLSTM")
    )
    right = t.cell("planted", "all", "planted, BiLSTM")
    holds = alone.value > 0.99 and mixed.high < 0.5 and right.value > 0.99
    yield say("conclude", holds, alone=alone, mixed=mixed, right=right.value)
    claim = t.starting("claims_saliency", "claim", "Integrated")
    tau, count = t.cell("saliency_right", "Kendall's tau", "all"), claim["here"].partition(" (")[0]
    yield say("faithful", claim["outcome"] == "agrees" and tau.above, count=count, tau=tau)
    yield say("card")


def best_adversary(t: Tables, name: str) -> dict[str, Cell]:
    """The row of the best adversary of a study."""
    row = t.starting(name, "model", "best adversary (KL")
    return {column: Cell(text) for column, text in row.items()}


def cards_finding(t: Tables) -> Sentences:
    """How the cards and the comparison of methods go together."""
    column, claim = (
        "does it rank by importance?",
        t.starting("claims_saliency", "claim", "Integrated"),
    )
    yes = sum(row[column].startswith("yes") for row in t.rows("cards"))
    card, words = t.cell("cards", column, "IMDb, BiLSTM"), ("IMDb", "integrated gradients")
    less = t.cell("saliency_faithfulness", "less attention's", *words)
    holds = claim["outcome"] == "agrees" and card.low > 1 and less.above
    fields = {"count": claim["here"].partition(" (")[0], "all": len(t.rows("cards"))}
    yield say("cards", holds, yes=yes, card=card, less=less, **fields)


def epochs_finding(t: Tables) -> Sentences:
    """The last epoch against the one chosen."""
    lower = {"last 2": "AUROC, chosen", "maximum attention, chosen": "last 3"}
    lower["median TVD, chosen"] = "last 4"
    rows = [row for row in t.rows("epochs") if row["corpus"] != "SST, with phrases"]
    yield say(
        "matters", all(float(row[x]) < float(row[y]) for row in rows for x, y in lower.items())
    )
    yield say("means")


def arms_finding(t: Tables) -> Sentences:
    """Tau by encoder and by vectors."""
    rows = [row for row in t.rows("arms") if row["tau between"].startswith("attention, ")]
    yield say("more", all(Cell(row["difference"]).above for row in rows))
    itself = t.figures("arms", "BiLSTM", OF_ITSELF)
    random, trained = t.figures("arms", "BiLSTM", "attention, gradient")
    holds = itself[0].open and itself[1].above and not trained.low > random.high
    yield say("seeds", holds, itself=itself, random=random, trained=trained)


def scaled_dot_finding(t: Tables) -> Sentences:
    """Why scaled dot attention differs from what is published."""
    model, row = "average, scaled dot", t.rows("tau", "SST", "average", "scaled dot")[0]
    tau, published = Cell(row["tau with gradient"]), row["published"]
    holds = tau.range[1] < 0 < float(published)
    yield say("sign", holds, tau=tau, published=published)
    narrow, wide = (
        [Cell(text).value for text in [*row.values()][3:] if text]
        for row in t.rows("tau_epochs", model, "input gradient")
    )
    small, large = (t.rows("scale", model, x)[0] for x in ("0.1", "0.3"))
    holds = narrow[0] < 0 < narrow[-1] and narrow == sorted(narrow)
    holds &= small["epochs chosen"] == "1 / 1"
    yield say("epoch", holds, first=narrow[0], last=narrow[-1], count=len(narrow))
    tau, chosen = Cell(large["tau, attention, gradient"]), large["epochs chosen"]
    holds = tau.above and all(a < b for a, b in zip(narrow, wide, strict=False))
    yield say("scale", holds, chosen=chosen, tau=tau, first=wide[0], last=wide[-1])


def serrano_finding(t: Tables) -> Sentences:
    """The claims of Serrano & Smith."""
    ratio, half, product, first, par, out = (
        t.starting("serrano_claims", "claim", start)
        for start in (
            *("with an encoder the gradient flips", "with an encoder the gradient finds"),
            *("first items of gradient ×", "first items of gradient flip"),  # noqa: RUF001
            *("without an encoder", "the attention removed by gradient is"),
        )
    )
    yield say("ratio", int(ratio["holds"]) >= int(ratio["cases"]) - 1, **ratio)
    for key, row in {"half": half, "product": product, "first": first}.items():
        holds, cases, stated, of = Cell(
            f"{row['holds']} {row['cases']} {row['in the paper']}"
        ).counts
        supported = holds == cases if key == "product" else holds * of < stated * cases
        yield say(key, supported, **row)
    bare = [row for row in t.rows("serrano_sooner") if row["model"].endswith("noenc")]
    holds = par["holds"] == par["cases"] and min(Cell(row["ratio"]).low for row in bare) > 1
    yield say("par", holds)
    others = [row for row in t.rows("serrano_lighter") if row["corpus"] != "Yelp"]
    (one,) = t.rows("serrano_claims", out["claim"], "as 1")
    holds = not any("holds" in row["claim"] + row["claim 2"] for row in others)
    yield say("lighter", holds, out=out, one=one)


def planted_finding(t: Tables) -> Sentences:
    """Attention against planted evidence."""
    first, second = (
        t.cell(*EVIDENCE, f"planted, {name}", *EITHER) for name in ("no encoder", "BiLSTM")
    )
    right = t.cell("planted", "all", "planted, BiLSTM").value
    holds = first.value > 0.99 and first.low > second.high and right > 0.99
    yield say("first", holds, first=first, second=second, right=right)
    words = "planted with negation, BiLSTM", "negated"
    right = t.cell("planted", "negated", words[0]).value
    found = t.figures(*EVIDENCE, *words)
    uniform = [x.value for x in t.figures("evidence", "AUPRC of uniform attention", *words)]
    holds = all(x.value <= y + 0.005 for x, y in zip(found, uniform, strict=True))
    yield say("negation", holds and right > 0.95, right=right, auprc=found[0], uniform=uniform[0])


def reasons(t: Tables) -> Sentences:
    """What was tested of the differences from the papers' claims."""
    words = ("SST", "BiLSTM", "additive")
    itself = t.cell("reliability", "attention with itself", *words)
    holds = itself.low < t.cell("tau", "tau with gradient", *words).low
    yield say("other_seeds", holds, itself=itself)
    yield say(
        "scale", tau=t.cell("scale", "tau, attention, gradient", "average, scaled dot", "0.3")
    )
    published = [x["Jain & Wallace"] for x in t.rows("bins", "IMDb, 7 to 399 words")]
    medians = [float(x) for x in published if x != DASH]
    yield say("medians", above=sum(x > 0.1 for x in medians), count=len(medians))
    yield say("search", less=t.cell("adversary", "exact less search", *words, "all"))
    rows = t.rows("serrano_sooner")
    same = sorted(Cell(r["as soon"]).value for r in rows if r["claim: over half"] != DASH)
    yield say("ties", least=same[0], most=same[-1])
    bare = [Cell(row["ratio"]) for row in rows if row["model"].endswith("noenc")]
    yield say("wide", sooner=sum(x.low > 1 for x in bare), count=len(bare))
    yelp = [row["claim"] for row in t.rows("serrano_lighter", "Yelp", "left out")]
    yield say("corpus", holds=yelp.count("holds"), count=len(yelp))
    trained = t.cell("wiegreffe_pinter_sst_vectors_table2", "F1", "uniform less trained")
    yield say("not_vectors", trained.open, trained=trained)
    table = "wiegreffe_pinter_20_newsgroups_sports_table4"
    uniform = t.cell(table, "JS", "uniform attention")
    yield say("almost_uniform", uniform.value < 0.005, uniform=uniform)
    other = t.cell("wiegreffe_pinter_sst_table3", "less uniform", "another seed's")
    trained = t.cell("wiegreffe_pinter_sst_vectors_table3", "less uniform", "the base's")
    yield say("which_base", other=other, trained=trained)
    table = "wiegreffe_pinter_sst_table4"
    beyond = t.cell(table, "JS", "best less other seeds")
    yield say("not_seeds", beyond.above, beyond=beyond)
    twin = t.cell(table, "TVD", "imitation control (λ = 0)")
    yield say("imitation", twin=twin, price=t.cell(table, "TVD", "best less λ = 0"))
    bend = t.rows("chunking_conll2000_segments", "all terms", "the base's labels")[0]
    yield say("kink", js=bend["at JS"])
    probe = "probe with the base's encoder: attention of the base, shuffled within each sentence"
    yield say("probes", shuffled=t.cell("chunking_conll2000_models", "chunk F1", probe))
    product = t.figures("saliency_faithfulness", "less attention's", "gradient × input")  # noqa: RUF001
    yield say("factor", min(x.range[0] for x in product) > 0)
    yield say("seed", mass=t.rows("pruthi", "pronoun", "BiLSTM", "0")[0]["largest seed"])


PLACES: Places = (
    *(answers, cards_finding, epochs_finding, arms_finding, scaled_dot_finding),
    *(serrano_finding, planted_finding),
)
