"""Records that do not belong together are refused in one sentence."""

from pathlib import Path

import numpy as np
import pytest

from attnlight.errors import InputError
from attnlight.report.command import main
from attnlight.report.run import require_one_run, require_same_instances
from tests.report.fake import rows_of, write_record, write_run


def stored(path: Path, index: int = 0, n: int = 20, **about: object) -> Path:
    rows = rows_of("attention_permutation", n=n)
    return write_record(path, rows | {"index": rows["index"] + index}, **about)


class TestOneRun:
    OF_RUN = {"corpus": "c", "classes": ["a", "b"], "checkpoint": "best.ckpt"}  # noqa: RUF012

    @pytest.mark.parametrize(
        ("other", "message"),
        [
            ({"corpus": "d"}, "come from different corpora: one is of another run"),
            ({"classes": ["a", "c"]}, "name different classes: one is of another run"),
            ({"checkpoint_hash": "2"}, "come from different versions of best.ckpt: test it again"),
        ],
    )
    def test_records_of_two_runs(
        self, tmp_path: Path, other: dict[str, object], message: str
    ) -> None:
        about = self.OF_RUN | {"checkpoint_hash": "1"}
        paths = [
            stored(tmp_path / "a.parquet", **about),
            stored(tmp_path / "b.parquet", **(about | other)),
        ]
        with pytest.raises(InputError, match=rf"a\.parquet and .*b\.parquet {message}"):
            require_one_run(paths)
        require_one_run(paths[:1])

    def test_what_may_differ_in_one_run(self, tmp_path: Path) -> None:
        abouts = [
            self.OF_RUN | {"checkpoint_hash": "1", "stage": "test"},
            self.OF_RUN | {"checkpoint_hash": "1", "stage": "val"},
            self.OF_RUN | {"checkpoint_hash": "2", "checkpoint": "last.ckpt"},
            self.OF_RUN | {"checkpoint": None, "epoch": 3},
            self.OF_RUN,  # written before hashes were
            {},
        ]
        require_one_run(
            [stored(tmp_path / f"{k}.parquet", **about) for k, about in enumerate(abouts)]
        )

    def test_versions_of_the_fingerprint(self, tmp_path: Path) -> None:
        about = self.OF_RUN | {"stage": "test"}
        old = stored(tmp_path / "old.parquet", **(about | {"corpus": "0123456789abcdef"}))
        new = about | {"corpus": "v2-fedcba9876543210"}
        same = stored(tmp_path / "same.parquet", **new)
        part = stored(tmp_path / "part.parquet", n=7, **new, partial=True)
        elsewhere = stored(tmp_path / "val.parquet", n=7, **(new | {"stage": "val"}))
        require_one_run([old, same, part, elsewhere])
        require_same_instances(old, same)
        others = [stored(tmp_path / "n.parquet", n=21, **new)]
        others += [stored(tmp_path / "index.parquet", index=1, **new)]
        for other in others:
            for paths in ([old, other], [other, part, old], [old, same, other]):
                with pytest.raises(InputError, match="come from different corpora"):
                    require_one_run(paths)
            with pytest.raises(InputError, match="hold different instances"):
                require_same_instances(old, other)

    def test_the_report_refuses(self, tmp_path: Path) -> None:
        folder = write_run(tmp_path / "a" / "b", epochs=())
        other = write_run(tmp_path / "a" / "c", epochs=(), classes=["good", "bad"])
        name = "records/test/predictions.parquet"
        (folder / name).write_bytes((other / name).read_bytes())
        with pytest.raises(InputError, match="one is of another run"):
            main([str(folder)])
        assert not (folder / "report").exists()


class TestSameInstances:
    def test_pass(self, tmp_path: Path) -> None:
        paths = [stored(tmp_path / f"{k}.parquet", stage="test", corpus="c") for k in "ab"]
        require_same_instances(*paths)

    @pytest.mark.parametrize(
        ("other", "message"),
        [
            ({"stage": "val"}, "are of different splits"),
            ({"corpus": "d"}, "come from different corpora"),
            ({"index": 3}, r"6 are in one alone, the first is index 0 \(position 0\)"),
            ({"n": 24}, r"4 are in one alone, the first is index 20 \(position 0\)"),
        ],
    )
    def test_refused(self, tmp_path: Path, other: dict[str, object], message: str) -> None:
        about = {"stage": "test", "corpus": "c"}
        first = stored(tmp_path / "a.parquet", **about)
        second = stored(tmp_path / "b.parquet", **(about | other))  # type: ignore[arg-type]
        with pytest.raises(InputError, match=message):
            require_same_instances(first, second)

    def test_positions_count(self, tmp_path: Path) -> None:
        rows = rows_of("attention_permutation", n=20)
        first = write_record(tmp_path / "a.parquet", rows)
        moved = rows | {"position": np.ones(20, dtype=np.int64)}
        with pytest.raises(InputError, match="40 are in one alone"):
            require_same_instances(first, write_record(tmp_path / "b.parquet", moved))
