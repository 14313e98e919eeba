"""Every code block of the README and of the pages of the documentation runs as it stands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from attnlight.__main__ import main
from attnlight.records import read_record
from tests.commands import ROOT
from tests.reader import README, Block, Reader, blocks, commands
from tests.test_configs import interpretability_tests

# Pages that are followed one after the other: later ones use the runs and files of the first.
GUIDE = ["first_hour", "corpora", "verdict", "models", "hugging_face", "your_own"]
GUIDE += sorted(f"tests/{path.stem}" for path in (ROOT / "docs/tests").glob("*.md"))
GUIDE += ["attributions", "studies"]
FILES = {
    "README.md": ["README.md"],
    "guide": [f"docs/{name}.md" for name in GUIDE],
    "configuration": ["docs/configuration.md"],
}
PAGES = {
    name: "\n".join((ROOT / file).read_text(encoding="utf-8") for file in files)
    for name, files in FILES.items()
}

# Without the texts of docs/results_page, whose links are those of the pages made from them.
LINKED = sorted(
    {
        "README.md",
        "configs/README.md",
        *(str(p.relative_to(ROOT)) for p in ROOT.glob("docs/**/*.md")),
    }
)
LINKED = [name for name in LINKED if "results_page" not in name]


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_every_block_runs(name: str, tmp_path: Path) -> None:
    reader = Reader(tmp_path, PAGES[name])
    for block in blocks(PAGES[name]):
        try:
            reader.follow(block)
        except AssertionError as error:
            pytest.fail(f"{name}, line {block.line}, {block.text[:99]!r}: {error}")
    LEFT_BEHIND[name](reader)


def test_a_block_of_the_readme_runs(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    (block,) = (block for block in blocks(README) if "bag.Bag" in block.text)
    reader.follow(block)
    assert (tmp_path / "checkpoints/bag/first/best.ckpt").is_file()


def test_explain_prints_what_the_readme_shows(capsys: pytest.CaptureFixture[str]) -> None:
    first, shown = (block for block in blocks(README) if block.line < 40)
    (line,) = (line for line in first.text.splitlines() if " explain " in line)
    assert main(shlex.split(line, comments=True)[1:]) == 0
    end = shown.text.split()
    assert capsys.readouterr().out.split()[-len(end) :] == end


def left_by_readme(reader: Reader) -> None:
    """What the README says that its commands write."""
    checkpoints = reader.folder / "checkpoints"
    run = checkpoints / "sst_bilstm/seed0"
    page = (run / "report/index.html").read_text(encoding="utf-8")
    assert "attention_permutation" in page
    assert (run / "figures/test/decision_flip.svg").is_file()
    for name in ("sst_bilstm/seed0", "reviews/first", "demo/planted"):
        card = (checkpoints / name / "report/verdict.json").read_text(encoding="utf-8")
        assert "not measured" not in card, name
    own = read_record(checkpoints / "reviews/first/records/test/uniform_attention.parquet")
    assert own.metadata["measures"] == ["tvd"]
    assert own.metadata["classes"] == ["negative", "positive"]
    assert ((own.columns["tvd"] >= 0) & (own.columns["tvd"] <= 1)).all()
    assert (checkpoints / "bag/first/best.ckpt").is_file()
    card = (checkpoints / "finetuned/first/report/verdict.json").read_text(encoding="utf-8")
    assert "not measured" not in card
    assert "May the attention of this model be read as an explanation?" in reader.printed
    assert (checkpoints / "demo/planted/report/index.html").is_file()
    assert (checkpoints / "study/report/index.html").is_file()


def left_by_guide(reader: Reader) -> None:
    run = reader.folder / "checkpoints/sst_bilstm/seed0"
    assert (run / "records/test/uniform_attention.parquet").is_file()
    other = read_record(run / "records/test-reviews/attention_permutation.parquet")
    assert other.metadata["corpus_name"] == "reviews"
    assert 0 <= other.metadata["unknown_words"] < 1
    loop = reader.folder / "checkpoints/own_loop/first"
    outside = read_record(loop / "records/test/attention_permutation.parquet")
    assert outside.metadata["partial"] is False
    for line in ("torchrun --nnodes 2 --node-rank 0", "srun --nodes 2 --ntasks 8"):
        assert line in reader.printed
    assert (reader.folder / "vectors/imdb_sst_300.vec").is_file()
    assert (reader.folder / "checkpoints/planted/report/index.html").is_file()


def left_by_configurations(reader: Reader) -> None:
    assert (reader.folder / "checkpoints/sst_bilstm/seed1/best.ckpt").is_file()


LEFT_BEHIND = dict(zip(PAGES, (left_by_readme, left_by_guide, left_by_configurations), strict=True))


def test_blocks_are_found_with_their_lines() -> None:
    found = list(blocks("one\n```bash\nA=1 \\\n  run -x  # why\n```\n\n```\nplain\n```\n"))
    assert found == [Block(3, "bash", "A=1 \\\n  run -x  # why\n"), Block(8, "", "plain\n")]
    assert list(commands(found[0].text)) == ["run"]
    assert Block(1, "yaml", "# a.yaml\nb: 1\n").file == "a.yaml"
    assert found[0].file is None
    for page in PAGES.values():
        assert page.count("```") == 2 * len(list(blocks(page)))
        unfenced = re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL)
        assert not re.findall(r"(?<=\n\n)(?: {4}|\t).*", unfenced), "a block without a fence"


@pytest.mark.parametrize(
    ("block", "said"),
    [
        (Block(1, "rust", ""), "nothing here runs"),
        (Block(1, "", "attnlight report x\n"), "nothing here runs"),
        (Block(1, "bash", "X=1 rm file\n"), "without a stand-in"),
        (Block(1, "yaml", "a: 1\n"), "no command can name"),
        (Block(1, "yaml", "# unused.yaml\na: 1\n"), "no command names"),
        (Block(1, "text", "configs/\n└── missing.yaml  what\n"), "missing.yaml"),
        (Block(1, "bash", "attnlight report nowhere\n"), "nowhere"),
        (Block(1, "python", "raise ValueError('wrong')\n"), "wrong"),
    ],
)
def test_a_block_that_does_not_run_is_told(tmp_path: Path, block: Block, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        Reader(tmp_path).follow(block)


def test_no_page_has_blocks_that_nobody_runs() -> None:
    followed = {file for files in FILES.values() for file in files}
    for name in set(LINKED) - followed:
        text = (ROOT / name).read_text(encoding="utf-8")
        assert not re.findall(r"^```(?:bash|python|yaml)$", text, re.MULTILINE), name


@pytest.mark.parametrize("name", LINKED)
def test_links_lead_somewhere(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    for target, anchor in re.findall(r"\]\(([^)#]*)(?:#([^)]+))?\)", text):
        if "://" in target:
            continue
        file = (ROOT / name).parent / target if target else ROOT / name
        assert file.exists(), target
        if anchor:
            titles = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            anchors = [re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles]
            assert anchor in anchors, f"{target}#{anchor}"


def test_readme_is_short_and_names_every_test() -> None:
    assert len(README.splitlines()) <= 200
    assert (
        set(re.findall(r"\| \[`(\w+)`\]\(docs/tests/\w+\.md\) \|", README))
        == interpretability_tests()
    )


def test_versions_of_python_are_those_of_the_launcher() -> None:
    lowest, above = re.findall(r"\(3, (\d+)\)", (ROOT / "launch.sh").read_text(encoding="utf-8"))
    assert f"Python 3.{lowest} to 3.{int(above) - 1}" in README
