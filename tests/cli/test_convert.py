"""`hpuprof convert` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpuprof.cli.main import main


def test_it_says_what_it_wrote_and_how_to_show_it(
    samples: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["convert", str(samples / "hpu_g1_lazy"), "-o", str(tmp_path / "tab")]) == 0
    out = capsys.readouterr().out
    assert out.startswith("fit-training_step: 1 file")
    assert "100.0 % of device work linked to its launch, steps drawn" in out
    assert out.endswith(f"show them with: tensorboard --logdir {tmp_path / 'tab'}\n")


def test_it_says_where_the_tab_reckons_steps_in_another_way(
    samples: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = "4 of 7 steps look longer or shorter in the tab, which ends a step with the device work that it launched"
    assert main(["convert", str(samples / "hpu_g1_lazy_graph_replay"), "-o", str(tmp_path / "a")]) == 0
    assert f"{said}: step 1 of 977.1 µs shows as 1.28 ms\n" in capsys.readouterr().out
    assert main(["convert", str(samples / "hpu_g3_compile"), "-o", str(tmp_path / "b")]) == 0
    assert "in the tab" not in capsys.readouterr().out


def test_json_is_one_document(samples: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", str(samples / "cpu_2_ranks_ddp"), "-o", str(tmp_path), "--json", "--no-compress"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert done["runs"] == ["cpu_2_ranks_ddp"]
    assert [f["rank"] for f in done["files"]] == [0, 1]
    assert all(
        Path(f["path"]).suffix == ".json" and f["bytes"] == Path(f["path"]).stat().st_size for f in done["files"]
    )


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["cpu_1_rank"], 2, "Missing option"),
        (["nothing_here", "-o", "{tmp}"], 3, "no such file"),
        (["cpu_1_rank", "-o", "{samples}/cpu_1_rank/tab"], 2, "among the traces"),
        (["cpu_1_rank", "-o", "{tmp}", "--for", "xprof"], 2, "xprof"),
    ],
)
def test_mistakes_have_exit_codes(
    arguments: list[str], code: int, words: str, samples: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, *rest = arguments
    given = [str(samples / first), *(a.format(tmp=tmp_path, samples=samples) for a in rest)]
    assert main(["convert", *given]) == code
    assert words in capsys.readouterr().err
    assert not (samples / "cpu_1_rank" / "tab").exists()


def test_force_replaces(samples: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call = ["convert", str(samples / "cpu_1_rank"), "-o", str(tmp_path)]
    assert [main(call), main(call), main([*call, "--force"])] == [0, 2, 0]
    assert "exists" in capsys.readouterr().err
