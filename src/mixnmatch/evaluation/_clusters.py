"""Clusters: samples that depend on each other, such as the frames of a video or the visits of a patient."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.rows import Rows

# Standard errors and tests over fewer clusters than this are rough.
FEW_CLUSTERS = 20


def read_clusters(source: Rows, clusters: Any, groups: Any = None) -> Any:
    """Number the clusters of the samples 0, 1, ...: those given, or those of the rows; ``groups`` is a former name.

    For public functions, which warnings point to the callers of. Clusters of a Dask table come back as they are: what
    needs them refuses such tables.
    """
    if groups is not None:
        if clusters is not None:
            msg = "clusters and groups are the same: pass clusters only"
            raise ValueError(msg)
        warnings.warn("groups= is now called clusters=, and will be removed", FutureWarning, stacklevel=3)
        clusters = groups
    if clusters is None:
        clusters = source.clusters
    if clusters is None or source.on_dask:
        return clusters
    names = np.asarray(clusters)
    if names.shape != (source.n_rows,):
        msg = f"clusters must have shape ({source.n_rows},), one for each sample, got {names.shape}"
        raise ValueError(msg)
    codes: NDArray[np.intp] = np.unique(names, return_inverse=True)[1].reshape(-1).astype(np.intp)
    counted = len(np.unique(codes if source.weight is None else codes[source.weight > 0]))
    if counted == 1:
        msg = "clusters: all samples are in one cluster, which does not show how clusters vary; leave clusters out"
        raise ValueError(msg)
    if counted < FEW_CLUSTERS:
        msg = (
            f"there are {counted} clusters: with fewer than {FEW_CLUSTERS}, intervals and p-values are rough "
            "and mostly too optimistic"
        )
        warnings.warn(msg, UserWarning, stacklevel=3)
    return codes
