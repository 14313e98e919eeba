"""Which sentences of `findings.md` the tables of studies support, and of MiniLM beside a BiLSTM."""

from __future__ import annotations

from results_page.findings import Cell, Places, Sentences, Tables, say
from results_page.sentences import best_adversary

CHUNKS, DISTANCES = "chunking_conll2000_models", "chunking_conll2000_adversary_distances"
ADVERSARIES = "chunking_conll2000_adversaries"
MODELS = (
    *("BiLSTM", "attention above MiniLM, frozen", "attention above MiniLM, fine-tuned"),
    "last layer of MiniLM, fine-tuned",
)


def wiegreffe_pinter_sst(t: Tables) -> Sentences:
    """SST with random vectors, with trained vectors, and with phrases."""
    yield "wiegreffe_pinter_sst_findings"
    at = "wiegreffe_pinter_sst_"
    uniform = t.cell(f"{at}table2", "F1", "uniform less trained")
    holds = uniform.open and t.answer("wiegreffe_pinter_sst") == "not shown to be needed"
    yield say("uniform", holds, uniform=uniform)
    tvd, f1 = (t.cell(f"{at}table4", x, "best less λ = 0") for x in ("TVD", "F1"))
    enough = t.cell(f"{at}table4", "seeds", "other seeds").counts[-1] >= 5
    enough &= t.cell(f"{at}lambdas", "seeds", "KL, λ = 0").counts[-1] >= 5
    yield say("adversary", tvd.open and f1.open and enough, tvd=tvd, f1=f1)
    names = ("the base's", "another seed's", "the adversary's")
    _, other_seeds, seeds = (t.cell(f"{at}table3", "seeds", name).counts[-1] for name in names)
    base, other, _ = (t.cell(f"{at}table3", "less uniform", name) for name in names)
    adversary = t.cell(f"{at}table3", "less shuffled", names[2])
    yield say("worse", adversary.below and seeds >= 5, adversary=adversary)
    holds = base.below and not other.below and other_seeds >= 5
    yield say("base", holds, base=base, other=other)
    js = t.cells(f"{at}lambdas", "JS").values()
    far = max(x.deviation for x in js if x.value > 0.6)
    most = max(x.deviation for x in js)
    yield say("spread", far <= 0.004 and most >= 0.1, far=far, most=most)
    yield "wiegreffe_pinter_sst_vectors_findings"
    at, then = "wiegreffe_pinter_sst_vectors_", "wiegreffe_pinter_sst_"
    trained, before = (t.cell(f"{x}table2", "F1", "trained attention") for x in (at, then))
    other, others = (t.cell(f"{x}table4", "TVD", "other seeds") for x in (at, then))
    holds = trained.low > before.high and other.value < others.value
    holds &= not others.low > other.high
    yield say("trained", holds, trained=trained, before=before, other=other, others=others)
    twins = t.cell(f"{at}table4", "seeds", "imitation control (λ = 0)").counts[-1]
    tvd, f1 = (t.cell(f"{at}table4", x, "best less λ = 0") for x in ("TVD", "F1"))
    yield say("few", twins < 5, tvd=tvd, f1=f1, twins=twins)
    shuffled, before, uniform, uniform_before = (
        t.cell(f"{x}table3", f"less {guide}", "the base's")
        for guide in ("shuffled", "uniform")
        for x in (at, then)
    )
    holds = shuffled.above and shuffled.low > before.high and uniform.open and uniform_before.below
    fields = {"uniform": uniform, "uniform_before": uniform_before}
    yield say("guides", holds, shuffled=shuffled, before=before, **fields)
    yield "wiegreffe_pinter_sst_phrases_findings"
    study = "wiegreffe_pinter_sst_phrases"
    seeds = int(t.cell(f"{study}_table3", "seeds", "the base's").value)
    holds = t.answer(study) == "without enough seeds to say" and seeds < 5
    guides = ("the base's", "another seed's")
    base, other = (t.cell(f"{study}_table3", "less uniform", guide) for guide in guides)
    yield say("few", holds, seeds=seeds, base=base, other=other)


def wiegreffe_pinter(t: Tables) -> Sentences:
    """20 Newsgroups and IMDb."""
    yield "wiegreffe_pinter_20_newsgroups_sports_findings"
    at = "wiegreffe_pinter_20_newsgroups_sports_"
    uniform = t.cell(f"{at}table4", "JS", "uniform attention")
    yield say("uniform", uniform.value < 0.005, uniform=uniform)
    learned, less = (
        t.cell(f"{at}table3", f"less {guide}", "learned by the MLP itself")
        for guide in ("uniform", "shuffled")
    )
    yield say("learned", learned.above and less.above, learned=learned)
    lambdas = t.cells(f"{at}lambdas", "JS").items()
    name, widest = max(lambdas, key=lambda item: item[1].deviation)
    yield say("spread", widest.deviation >= 0.2, name=name, js=widest)
    yield "wiegreffe_pinter_imdb_findings"
    at = "wiegreffe_pinter_imdb_"
    uniform = t.cell(f"{at}table2", "F1", "uniform less trained")
    holds = uniform.below and t.answer("wiegreffe_pinter_imdb") == "shown to be needed"
    yield say("needed", holds, uniform=uniform, needed=t.needed())
    js, f1 = t.cells(f"{at}lambdas", "JS"), t.cells(f"{at}lambdas", "F1")
    largest = t.cell(f"{at}seeds", "largest JS", "base-s0")
    weak, control, strong = (js[f"KL, λ = {x}"] for x in ("0.002", "0", "0.01"))
    holds = largest.value > 0.6 and not any(0.35 < x.value < 0.6 for x in js.values())
    yield say("gap", holds, weak=weak, control=control, strong=strong, largest=largest)
    weak, strong, control = (f1[f"KL, λ = {x}"] for x in ("0.01", "0.05", "0"))
    holds = weak.value < min(strong.value, control.value)
    yield say("falls", holds, weak=weak, strong=strong, control=control)
    base, shuffled, seeds = (
        t.cell(f"{at}table3", x, "the base's") for x in ("less uniform", "less shuffled", "seeds")
    )
    holds = base.above and shuffled.above and seeds.value >= 5
    yield say("guides", holds, base=base, shuffled=shuffled)


def chunking(t: Tables) -> Sentences:
    """The tagger, its adversaries and probes; every token's tag against one marked token's."""
    yield "chunking_conll2000_findings"
    less = t.cell(CHUNKS, "chunk F1, less trained", "uniform attention")
    holds = less.below and t.answer("chunking_conll2000") == "shown to be needed"
    yield say("needed", holds, less=less, needed=t.needed())
    rows = [row for row in t.rows(ADVERSARIES) if not row["term"].endswith("(Yang 2020)")]
    best = next(row for row in rows if "chosen" in row["term"])
    term, twin = best["term"].partition(";")[0], "KL, λ = 0"
    js, f1 = t.cells(DISTANCES, "JS"), t.cells(ADVERSARIES, "chunk F1")
    fields = {"term": term, "f1": f1[term], "f1_control": f1[twin]}
    holds = Cell(best["seeds"]).counts[-1] < 5
    yield say("best", holds, js=js[term], control=js[twin], **fields)
    first, *rest = (
        Cell(row["NLL, gold"]).value
        for row in rows
        if row["term"].startswith("KL (released scale)")
    )
    holds = all(row["collapsed"].startswith("0 of") for row in rows)
    holds &= first < 0.3 and min(rest) > 0.45
    yield say("collapse", holds, first=first, least=min(rest), most=max(rest))
    f1, guides = t.cells(CHUNKS, "chunk F1"), {"base": "of the base", "uniform": "uniform"}
    guides["adversary"] = "of the adversary"
    guides["shuffled"] = "of the base, shuffled within each sentence"
    probe, alone = (
        {key: f1[f"probe {model}: attention {guide}"] for key, guide in guides.items()}
        for model in ("with the base's encoder", "that reads each token alone")
    )
    holds = all(x["base"].low > x["shuffled"].high for x in (probe, alone))
    yield say("probes", holds, probe=probe, alone=alone)
    seeds = t.cell("chunking_conll2000_distances", "tau", "other seeds of base-s0")
    tau = t.cell(DISTANCES, "tau", term)
    yield say("tau", seeds.low > tau.high, tau=tau, seeds=seeds)
    yield "exclusivity_conll2000_findings"
    settings = t.figures("exclusivity_conll2000_tokens_less_marked", "difference")
    yield say("open", all(x.open for x in settings))
    share, tvd, accuracy = (
        [
            t.cell("exclusivity_conll2000_exclusivity", column, f"{target}-residual-pos")
            for target in ("tokens", "marked")
        ]
        for column in ("share at λ = 0", "TVD at λ = 0", "accuracy of the base")
    )
    holds = share[1].low > share[0].high and tvd[1].low > tvd[0].high
    holds &= accuracy[0].low > accuracy[1].high
    yield say("obstacle", holds, share=share, tvd=tvd, accuracy=accuracy)


def beside(a: Cell, b: Cell, high: str = "above", low: str = "below") -> str:
    """How the interval of a figure lies beside that of another."""
    return high if a.low > b.high else low if a.high < b.low else "not told apart from"


def by_model(t: Tables, column: str, table: str = "jain_wallace") -> list[Cell]:
    """The figures of a column of MiniLM's tables, in the order of `MODELS`."""
    found = t.cells(f"minilm_{table}", column)
    return [found[model] for model in MODELS]


def minilm_findings(t: Tables) -> Sentences:
    """SST by MiniLM beside a BiLSTM."""
    yield "minilm_findings"
    bilstm, frozen, tuned, last = by_model(t, "accuracy", "accuracy")
    holds = min(tuned.low, last.low) > max(frozen.high, bilstm.high)
    fields = {"bilstm": bilstm, "frozen": frozen, "tuned": tuned, "last": last}
    compared = beside(frozen, bilstm, "better than", "worse than")
    yield say("accuracy", holds, compared=compared, **fields)
    for words in ("gradient", "leave-one-out"):
        tau = by_model(t, f"tau with {words}")
        holds = max(x.high for x in tau[1:]) < 0.5 and tau[0].value < 0.5
        compared_each = [beside(x, tau[0]) for x in tau]
        words = "the gradient" if words == "gradient" else words
        yield say("agreement", holds, words=words, tau=tau, compared=compared_each)
    tvd, flips = by_model(t, "median TVD"), by_model(t, "decisions flipped")
    names = ("attention above the frozen MiniLM", "attention above the fine-tuned MiniLM")
    for model, moved, flipped in zip(
        (*names, "the fine-tuned model's last layer"), tvd[1:], flips[1:], strict=True
    ):
        fields = {"tvd": moved, "flips": flipped, "bilstm": tvd[0], "bilstm_flips": flips[0]}
        compared = beside(moved, tvd[0], "more than", "less than")
        yield say("shuffled", model=model, compared=compared, **fields)
    share = by_model(t, "of what is possible")
    compared = beside(share[1], share[0], "more than", "less than")
    yield say("another", min(x.low for x in share) > 0.5, share=share, compared=compared)
    columns = ("removed, attention", "removed, gradient", "removed, attention less gradient")
    removed = [by_model(t, column, "serrano_smith") for column in columns]
    clear = sum(x.above for x in removed[2])
    each = "; ".join(
        f"{a.number} of the items against {b.number}, a difference of {more} ({name})"
        for name, a, b, more in zip(MODELS, *removed, strict=True)
    )
    words = "every model" if clear == len(MODELS) else f"{clear} of {len(MODELS)} models"
    yield say("erasure", min(x.value for x in removed[2]) > 0, clear=words, each=each)
    bilstm, uniform = (
        t.cell(f"{x}_table2", "F1", "uniform less trained")
        for x in ("wiegreffe_pinter_sst", "minilm_pooled")
    )
    seeds = t.cell("minilm_pooled_table2", "seeds", "uniform attention").counts[-1]
    yield say("uniform", seeds >= 5 and uniform.open, uniform=uniform, bilstm=bilstm)
    tables = ("minilm_pooled_table4", "wiegreffe_pinter_sst_table4")
    best, then = (best_adversary(t, table) for table in tables)
    price, paid = (t.cell(table, "TVD", "best less λ = 0") for table in tables)
    holds, twin = price.low > paid.high and paid.open, "imitation control (λ = 0)"
    imitation = {"price": price, "paid": paid, "twin": t.cell(tables[0], "TVD", twin)}
    yield say("price", holds, best=best, then=then, **imitation)
    own, theirs = (t.cell(table, "JS", "other seeds") for table in tables)
    yield say("seeds", own.high < theirs.low, own=own, theirs=theirs)
    pushed, alone = (
        {column: Cell(text) for column, text in t.rows("minilm_last_lambdas", x)[0].items()}
        for x in ("KL, λ = 0.01", "KL, λ = 0")
    )
    holds = pushed["JS"].low > alone["JS"].high and pushed["seeds"].number == "1"
    farther = beside(pushed["TVD"], alone["TVD"], "more than", "less than")
    lost = beside(pushed["F1 of positive"], alone["F1 of positive"])
    yield say("pushed", holds, pushed=pushed, twin=alone, farther=farther, lost=lost)


def minilm_layers(t: Tables) -> Sentences:
    """One layer without its attention, and all of them; what pre-training changes."""
    yield "minilm_control_findings"
    uniform, shuffled, off = (
        {column: Cell(text) for column, text in row.items()} for row in t.rows("minilm_control")
    )
    for becomes, row in {"uniform": uniform, "shuffled": shuffled}.items():
        flips = (row[f"decisions flipped, {part}"] for part in ("all layers", "last layer"))
        holds = row["TVD, all less last"].above and next(flips).low > next(flips).high
        yield say("made", holds, becomes=becomes, **row)
    last, head = off["TVD, last layer"], off["TVD, one head, mean"]
    holds = last.low > max(uniform["TVD, last layer"].high, head.high)
    yield say("off", holds, last=last, head=head)
    yield "minilm_answer"
    columns = ("tau with gradient", "of what is possible", "median TVD")
    tau, share, tvd = (by_model(t, column) for column in columns)
    holds = max(x.high for x in tau[1:]) < 0.5 and tau[0].value < 0.5
    yield say("agree", holds and min(x.low for x in share) > 0.5, tau=tau)
    bilstm, frozen, tuned, last = tvd
    holds = frozen.low > max(bilstm.high, tuned.high, last.high) and not tuned.low > bilstm.high
    yield say("trained", holds, tvd=tvd)


PLACES: Places = (
    wiegreffe_pinter_sst,
    wiegreffe_pinter,
    chunking,
    minilm_findings,
    minilm_layers,
)
