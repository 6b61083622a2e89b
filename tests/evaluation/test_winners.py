"""Whether predicted classes stay: columns of data frames are matched by name."""

import numpy as np
import pandas as pd
import pytest

from mixnmatch import accuracy_preserved


def test_columns_of_data_frames_are_matched_by_name():
    p = np.random.default_rng(0).dirichlet([1, 1, 1], 50)
    before = pd.DataFrame(p, columns=["ant", "bee", "cat"])
    after = before[["cat", "ant", "bee"]]
    assert accuracy_preserved(before, after)
    assert accuracy_preserved(before, after.add_prefix("prob_"))
    assert accuracy_preserved(before.add_prefix("prob_"), after)
    assert not accuracy_preserved(before, after.set_axis(["ant", "bee", "cat"], axis=1))
    assert not accuracy_preserved(before, after.to_numpy())


def test_indexes_that_differ_are_refused():
    before = pd.DataFrame({"a": [0.2, 0.6], "b": [0.8, 0.4]})
    with pytest.raises(ValueError, match="before and after have different indexes"):
        accuracy_preserved(before, before[::-1])
