"""Every verb checks each table that it reads once."""

import pytest

from mixnmatch._engine import scores as scores_module
from tests.cli.conftest import Run

VERBS = {
    "evaluate": (("evaluate", "test.npz"), [600]),
    "evaluate --map": (("evaluate", "test.npz", "--map", "cal.json"), [600]),
    "fit": (("fit", "val.npz", "-m", "ets", "-o", "new.json"), [400]),
    "fit auto": (("fit", "val.npz", "-m", "auto", "-o", "new.json"), [400]),
    "compare": (("compare", "val.npz", "--methods", "ts,vector,auto"), [400]),
    "compare on another file": (("compare", "val.npz", "--evaluation", "test.npz", "--methods", "ts"), [400, 600]),
    "learning curve": (("compare", "val.npz", "--learning-curve", "--methods", "ts"), [400]),
    "recommend": (("recommend", "val.npz", "--methods", "ts,ets"), [400]),
    "report": (("report", "val.npz", "--methods", "ts,ets", "-o", "page.html"), [400]),
    "report on another file": (
        ("report", "val.npz", "--evaluation", "test.npz", "--methods", "ts", "-o", "page.html"),
        [400, 600],
    ),
    "decide": (("decide", "test.npz", "--costs", "costs.csv", "--map", "cal.json"), [600]),
    "adapt": (("adapt", "cal.json", "--unlabelled", "test.npz", "-o", "new.json"), [600]),
}  # fmt: skip


@pytest.mark.parametrize("verb", VERBS)
def test_each_table_is_checked_once(files, run: Run, monkeypatch, verb):
    assert run("fit", "val.npz", "-m", "vector", "-o", "cal.json").exit_code == 0
    (files / "costs.csv").write_text("class,a,b,c\n0,0,1,1\n1,1,0,1\n2,1,1,0\n")
    seen = []
    check = scores_module._checked

    def counting(table, *args, **settings):
        if table.n_rows > 10:  # a map tries itself on a few rows when it is loaded
            seen.append(table.n_rows)
        return check(table, *args, **settings)

    monkeypatch.setattr(scores_module, "_checked", counting)
    arguments, expected = VERBS[verb]
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    assert seen == expected
