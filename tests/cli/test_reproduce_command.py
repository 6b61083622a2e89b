"""``mixnmatch reproduce``."""

import json

import pytest

from tests.cli.conftest import parsed

SMALL = ("--only", "table1,table2", "--methods", "ts,irm", "--splits", "2", "--jobs", "1")


def test_a_folder_gives_a_page(files, run):
    result = run("reproduce", ".", "-o", "out", *SMALL)
    assert result.exit_code == 0, result.stderr
    assert "Ran 2 units. Wrote out/index.html" in result.stdout
    assert result.stderr == "", "quiet when it is not on a terminal"
    page = (files / "out" / "index.md").read_text()
    assert "mixnmatch reproduce . -o out" in page
    again = run("reproduce", ".", "-o", "out", *SMALL)
    assert "Ran 0 units" in again.stdout


def test_json(files, run):
    found = parsed(run("reproduce", ".", "-o", "out", "--json", *SMALL))
    assert found["units"] == 2
    assert found["failed"] == []
    assert "out/table1.csv" in found["files"]


def test_a_manifest_can_be_written(files, run):
    result = run("reproduce", ".", "-o", "out", "--write-manifest", "rows.toml")
    assert result.exit_code == 0, result.stderr
    assert "[[row]]" in (files / "rows.toml").read_text()
    assert run("reproduce", "rows.toml", "-o", "out", *SMALL).exit_code == 0
    assert "exists already" in run("reproduce", ".", "-o", "out", "--write-manifest", "rows.toml").stderr


def test_tables_without_running(files, run):
    result = run("reproduce", ".", "-o", "out", "--no-run", *SMALL)
    assert result.exit_code == 0, result.stderr
    assert "Ran 0 units" in result.stdout


@pytest.mark.parametrize(
    "options, code, message",
    [
        (("--only", "table9"), 2, "no part called 'table9'; parts are table1"),
        (("--methods", "tss"), 2, "no method called 'tss'"),
        (("--rows", "nothing"), 2, "no row is called 'nothing'; rows are"),
        (("--splits", "0"), 2, "--splits"),
    ],
)
def test_misuse(files, run, options, code, message):
    result = run("reproduce", ".", "-o", "out", *options)
    assert result.exit_code == code
    assert message in " ".join(result.stderr.split())


def test_other_files_are_not_mixed_with(files, run):
    (files / "out").mkdir()
    (files / "out" / "precious.txt").write_text("mine")
    result = run("reproduce", ".", "-o", "out", *SMALL)
    assert result.exit_code == 1
    assert "holds other files; pass --force" in result.stderr
    assert run("reproduce", ".", "-o", "out", "--force", *SMALL).exit_code == 0
    assert (files / "out" / "precious.txt").read_text() == "mine"


def test_no_such_manifest(folder, run):
    result = run("reproduce", "rows.toml", "-o", "out")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: rows.toml: no such file")
    assert len(result.stderr.splitlines()) == 1


def test_results_are_plain_json(files, run):
    run("reproduce", ".", "-o", "out", *SMALL)
    stored = list((files / "out" / "cache").rglob("*.json"))
    assert len(stored) == 2
    for path in stored:
        assert set(json.loads(path.read_text())["results"])
