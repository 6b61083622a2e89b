"""Files: tables as the library reads them, and a clear message for every other file."""

import json

import numpy as np
import pytest

from mixnmatch._engine import door
from mixnmatch.io import read_table
from tests.conftest import make_problem, softmax

READ = """(text, logits) => {
  const { table, warnings } = playground.readTable(text, logits);
  return { p: Array.from(table.probabilities), labels: Array.from(table.labels), names: table.names, warnings };
}"""
REFUSE = """(text, logits) => {
  try {
    playground.readTable(text, logits);
    return null;
  } catch (error) {
    return { known: error instanceof playground.InputError, message: error.message };
  }
}"""

P, Y = softmax(make_problem(12, 3)[0]), [0, 1, 2] * 4
TWO = softmax(make_problem(12, 2)[0])


def rows_of(header, p, labels, separator=",", number=repr):
    lines = [separator.join([*(number(float(x)) for x in np.atleast_1d(row)), str(label)])
             for row, label in zip(p, labels, strict=True)]  # fmt: skip
    return "\n".join([header, *lines]) + "\n"


def comma(x):
    return repr(x).replace(".", ",")


GOOD = {
    "positions": rows_of("cat,dog,frog,label", P, Y),
    "names": rows_of("cat,dog,frog,label", P, [["cat", "dog", "frog"][k] for k in Y]),
    "shared start": rows_of("prob_cat,prob_dog,prob_frog,labels", P, [["cat", "dog", "frog"][k] for k in Y]),
    "labels with the start": rows_of("class_0,class_1,class_2,label", P, [f"class_{k}" for k in Y]),
    "numbered": rows_of("p0,p1,p2,label", P, Y),
    "other numbers": rows_of("p10,p2,p30,label", P, [[10, 2, 30][k] for k in Y]),
    "whole numbers with a point": rows_of("a,b,c,label", P, [f"{k}.0" for k in Y]),
    "semicolons and decimal commas": rows_of("cat;dog;frog;label", P, Y, ";", comma),
    "tabs": rows_of("cat\tdog\tfrog\tlabel", P, Y, "\t"),
    "quotes": rows_of('"a, ""b""",dog,frog,label', P, Y),
    "line ends and blank lines": rows_of("cat,dog,frog,label", P, Y).replace("\n", "\r\n") + "\r\n",
    "byte order mark": "\ufeff" + rows_of("cat,dog,frog,label", P, Y),
    "three decimals": rows_of("cat,dog,frog,label", np.round(P, 3), Y),
    "one column": rows_of("p,label", TWO[:, 1], [0, 1] * 6),
    "minus one and one": rows_of("p,label", TWO[:, 1], [-1, 1] * 6),
    "one column called like a class": rows_of("spam,label", TWO[:, 1], ["ham", "spam"] * 6),
    "two columns": rows_of("ham,spam,label", TWO, ["ham", "spam"] * 6),
    "an absent class": rows_of("cat,dog,frog,label", P, [0, 1] * 6),
    "other alphabets": rows_of("кот,犬,🐸,label", P, [["кот", "犬", "🐸"][k] for k in Y]),
}


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_text_is_read_as_the_library_reads_it(engine, name, tmp_path):
    path = tmp_path / "scores.csv"
    path.write_bytes(GOOD[name].encode())
    table = read_table(path)
    rows = door.rows(table.scores, table.labels, classes=table.classes)
    # A browser drops the mark when it decodes a file.
    found = engine.call_page(READ, GOOD[name].removeprefix("\ufeff"), False)
    np.testing.assert_allclose(found["p"], rows.block(0, 12).probabilities().ravel(), atol=1e-15)
    assert found["labels"] == rows.labels.tolist()
    assert found["names"] == rows.classes.tolist()
    assert len(found["warnings"]) == (name == "three decimals")


JSON_FILES = {
    "names from the labels": ({"probs": P.tolist(), "labels": [["b", "c", "a"][k] for k in Y]}, ["a", "b", "c"]),
    "names given": ({"probs": P.tolist(), "labels": Y, "classes": ["x", "y", "z"]}, ["x", "y", "z"]),
    "a vector": ({"probs": TWO[:, 1].tolist(), "labels": [True, False] * 6}, [0, 1]),
    "rows as objects": (
        [{"cat": a, "dog": b, "frog": c, "label": "dog"} for a, b, c in P.tolist()],
        ["cat", "dog", "frog"],
    ),
}


@pytest.mark.parametrize("name", JSON_FILES)
def test_json_is_read(engine, name):
    content, names = JSON_FILES[name]
    found = engine.call_page(READ, json.dumps(content), False)
    assert found["names"] == names
    vector = len(names) == 2
    np.testing.assert_allclose(np.reshape(found["p"], (12, -1))[:, -1], TWO[:, 1] if vector else P[:, -1])


def test_logits_that_look_like_probabilities_give_a_warning(engine):
    found = engine.call_page(READ, json.dumps({"logits": P.tolist(), "labels": Y}), False)
    assert "probably probabilities" in found["warnings"][0]


def changed(line, text):
    lines = GOOD["positions"].splitlines()
    lines[line] = text
    return "\n".join(lines)


BAD = {
    "empty lines": ("\n\n", "first line is empty"),
    "no rows": ("a,b,label\n", "no rows"),
    "one column": ("scores\n1\n2\n", "one column"),
    "no label": (GOOD["positions"].replace("label", "truth"), 'no column "label"'),
    "two label columns": ("a,labels,label\n1,0,0\n", '"label" and "labels"'),
    "no scores": ("label,x\n0,1\n".replace(",x", "").replace(",1", ""), "one column"),
    "a weight": (GOOD["positions"].replace("cat", "weight"), "does not use weights"),
    "a row number": ("id," + GOOD["positions"].replace("\n", "\n7,").removesuffix("7,"), "row number"),
    "the same name twice": (GOOD["positions"].replace("dog", "cat"), 'more than one column called "cat"'),
    "calibrated beside others": (GOOD["positions"].replace("dog", "calibrated_dog"), "calibrated probabilities"),
    "too few values": (changed(3, "0.5,0.5"), "line 4 (row 2) has 2 values, the header has 4"),
    "text in a cell": (changed(3, "0.5,zwei,0.5,1"), 'line 4 (row 2), column "dog": "zwei" is not a number'),
    "hexadecimal": (changed(3, "0x1,0,0,1"), "is not a number"),
    "an empty cell": (changed(3, "0.5,,0.5,1"), "the cell is empty"),
    "no label in a row": (changed(3, "0.5,0.2,0.3,"), "there is no label"),
    "an endless label": (changed(3, "0.5,0.2,0.3," + "x" * 2000), "a label of 2000 characters"),
    "NaN": (changed(3, "nan,0.5,0.5,1"), "row 2 of the scores holds NaN"),
    "an infinity": (changed(3, "inf,0.5,0.5,1"), "holds an infinity"),
    "too large": (changed(3, "1e999,0.5,0.5,1"), "holds an infinity"),
    "a sum that is not 1": (
        changed(3, "0.9,0.9,0.5,1"),
        "row 2 of the scores sums to 2.3, not to 1; if these are logits",
    ),
    "a negative number": (changed(3, "-0.5,0.9,0.6,1"), "negative entry (-0.5); if these are logits"),
    "above 1": (GOOD["one column"].replace(repr(float(TWO[0, 1])), "1.5"), "is 1.5, not a probability"),
    "a label that is no position": (
        changed(3, "0.5,0.2,0.3,3"),
        "label 3 in row 2 is not the position of a column (0 to 2)",
    ),
    "a negative label": (changed(3, "0.5,0.2,0.3,-1"), "label -1 in row 2"),
    "a label out of range": (
        GOOD["one column"].replace(",1\n", ",2\n"),
        'label "2" in row 1 is not one of the classes',
    ),
    "an unknown name": (GOOD["names"].replace(",frog\n", ",toad\n"), 'label "toad" in row 2 is not one of the classes'),
    "text labels of numbered classes": (GOOD["numbered"].replace(",0\n", ",zero\n"), "the classes are"),
    "a column not called like a class": (
        GOOD["one column called like a class"].replace("spam,l", "p,l"),
        "called like the positive class",
    ),
    "a quote that never ends": ('a,b,label\n"0.5,0.5,1\n', "a quote is never closed"),
    "text after a quote": ('a,b,label\n"0.5"x,0.5,1\n', "text after a closing quote"),
    "nine samples": ("\n".join(GOOD["positions"].splitlines()[:10]), "there are 9 samples; at least 10"),
    "not JSON": ('{"probs": [', "not valid JSON"),
    "NaN in JSON": ('{"probs": [NaN]}', "NaN and Infinity are not JSON"),
    "no labels in JSON": (json.dumps({"probs": P.tolist()}), '"probs" or "logits", and "labels"'),
    "two kinds of scores": (json.dumps({"probs": [1], "logits": [1], "labels": [1]}), '"probs" or "logits"'),
    "weights in JSON": (json.dumps({"probs": [0.5], "labels": [1], "weights": [1]}), "does not use them"),
    "fewer labels": (json.dumps({"probs": P.tolist(), "labels": [0, 1]}), "2 labels for 12 rows"),
    "labels that are no list": (json.dumps({"probs": P.tolist(), "labels": None}), "no labels for 12 rows"),
    "rows of different lengths": (json.dumps({"probs": [[0.5, 0.5], [1.0]], "labels": [0, 1]}), "row 1 of the scores"),
    "a row of one": (json.dumps({"probs": [[0.5]] * 12, "labels": [0] * 12}), "one column"),
    "null among scores": (json.dumps({"probs": [[0.5, None]] * 12, "labels": [0] * 12}), "null is not a number"),
    "half a label": (json.dumps({"probs": TWO.tolist(), "labels": [0.5] * 12}), "label 0.5 in row 0 is not a class"),
    "mixed labels": (json.dumps({"probs": TWO.tolist(), "labels": ["a", 1] * 6}), "all text or all whole numbers"),
    "names for other classes": (
        json.dumps({"probs": TWO.tolist(), "labels": [0] * 12, "classes": ["a"]}),
        "1 names of classes",
    ),
    "names that are numbers and text": (
        json.dumps({"probs": TWO.tolist(), "labels": [0] * 12, "classes": ["a", 1]}),
        '"classes" should be',
    ),
    "too few names": (
        json.dumps({"probs": P.tolist(), "labels": ["a", "b"] * 6}),
        "name 2 classes but the scores have 3",
    ),
    "a list of numbers": ("[1, 2, 3]", "an object for each sample"),
    "an object that lacks a score": (
        json.dumps([{"a": 0.5, "b": 0.5, "label": 0}, {"a": 1, "label": 0}]),
        "nothing is not a number",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_other_files_are_refused_with_a_reason(engine, name):
    text, reason = BAD[name]
    found = engine.call_page(REFUSE, text, False)
    assert found is not None
    assert found["known"], found["message"]
    assert reason in found["message"]


def test_a_million_scores_are_too_many(engine):
    # Made in the page: so much text does not go through the pipe.
    made = "'p,label\\n' + '0.5,1\\n0.25,0\\n'.repeat(500001)"
    found = engine.call_page(f"() => ({REFUSE})({made}, false)")
    assert "1000002 scores; this page takes up to 1000000" in found["message"]


def test_damaged_files_give_a_table_or_a_reason(engine):
    rng = np.random.default_rng(0)
    alphabet = list(",;\t\n\r\"'{}[]:.0123456789eE+-ianftl \\\x00日\ud83d\udc38")
    texts = []
    for text in [*GOOD.values(), *(json.dumps(content) for content, _ in JSON_FILES.values())]:
        for _ in range(25):
            letters = list(text)
            for place in rng.integers(0, len(letters), rng.integers(1, 6)):
                letters[place] = alphabet[rng.integers(len(alphabet))]
            cut = rng.integers(1, len(letters)) if rng.random() < 0.3 else len(letters)
            texts.append("".join(letters[:cut]))
    found = engine.call_page(f"(texts) => texts.map((text) => ({REFUSE})(text, text.length % 2 === 0))", texts)
    unexpected = [(text, one) for text, one in zip(texts, found, strict=True) if one is not None and not one["known"]]
    assert not unexpected, unexpected[0]
    assert sum(one is not None for one in found) > 100


def test_very_many_classes_are_read(engine):
    # Made in the page: more columns than a function can have arguments.
    made = "JSON.stringify({ probs: Array(10).fill(Array(100000).fill(1e-5)), labels: Array(10).fill(99999) })"
    found = engine.call_page(
        f"() => {{ const r = playground.readTable({made}, false); return [r.table.n, r.table.width]; }}"
    )
    assert found == [10, 100_000]
