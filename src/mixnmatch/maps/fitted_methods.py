"""Methods of fitted maps that other layers carry out: saving, exporting, adapting, inverting."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mixnmatch.maps.composition import Composition


class FittedMethods:
    """What a fitted map hands on to the layers above it. These are the only imports that go upwards."""

    def adapt(
        self: Any,
        *,
        priors: Any = None,
        sampling: Any = None,
        unlabelled: Any = None,
        sample_weight: Any = None,
        calibration: Any = None,
    ) -> Composition:
        """The fitted map for data in which the classes have other frequencies: this map, then a :class:`PriorShift`.

        Pass exactly one of ``priors``, ``sampling`` and ``unlabelled``. It assumes label shift: each class looks as it
        did in the calibration set, only the frequencies of the classes differ.

        Parameters
        ----------
        priors : dict from class to frequency, pandas Series, or array of length L, optional
            Frequencies of the classes in the new data. The index of a Series names the classes. Classes that a dict or
            a Series leaves out share what remains, in the proportions they had.
        sampling : dict from class to rate, pandas Series, or array of length L, optional
            The calibration set was sampled by class from data like the new ones: the share of each class that was
            kept, such as ``{"neg": 0.1}``. Classes that a dict or a Series leaves out were kept.
        unlabelled : array of shape (n, L) or (n,), optional
            Scores of new samples, from which :func:`mixnmatch.selection.estimate_priors` estimates the frequencies.
            Call it yourself for intervals and tests. Doubts about the estimate are given as warnings.
        sample_weight : array of shape (n,), optional
            Weights of the unlabelled samples.
        calibration : tuple (scores, y) or (scores, y, sample_weight), optional
            The calibration set, for a map that does not remember it, such as one from a file of an older version.

        Examples
        --------
        >>> from mixnmatch import calibrator
        >>> fitted = calibrator("identity").fit([[0.8, 0.2], [0.2, 0.8]], [0, 1])
        >>> fitted.adapt(priors=[0.8, 0.2]).predict_proba([[0.5, 0.5]])
        array([[0.8, 0.2]])
        """
        from mixnmatch.selection.adaptation import adapted

        given = {"priors": priors, "sampling": sampling, "unlabelled": unlabelled}
        return adapted(self, **given, sample_weight=sample_weight, calibration=calibration)

    def save(self: Any, path: str | PathLike[str], *, metadata: Mapping[str, Any] | None = None) -> None:
        """Write the fitted map to one JSON file, atomically; :func:`mixnmatch.load` reads it.

        Parameters
        ----------
        path : path
            File to write.
        metadata : mapping, optional
            What else the file should say, such as the hash of a model: plain values, which ``load`` gives back as
            ``metadata_``.
        """
        from mixnmatch.persistence import save

        save(self, path, metadata=metadata)

    def to_onnx(
        self: Any,
        path: str | PathLike[str],
        *,
        classifier: Any = None,
        output: str | None = None,
        precision: str = "double",
        vector: bool = False,
    ) -> None:
        """Write the fitted map to an ONNX file, atomically (extra ``onnx``).

        The model takes ``scores``, float32 of shape (n, L), and gives ``probabilities`` of the same shape and type:
        what :meth:`predict_proba` gives for float32 scores. It does not check its input. All operators are standard.

        Parameters
        ----------
        path : path
            Where to write; an existing file is replaced.
        classifier : path or ModelProto, optional
            A classifier in ONNX to append the map to: the file then goes from the classifier's inputs to ``label`` and
            calibrated ``probabilities``, all other outputs are dropped. Labels are the map's ``classes_``.
        output : str, optional
            The tensor of the classifier that holds the scores: one of its outputs, or any tensor inside. If not given
            it is the only output that can be.
        precision : {"double", "single"}
            Precision inside. Single is for accelerators: then a score that is next to a step of a map with steps may
            end up on the other side of it.
        vector : bool
            For maps of two classes: ``scores`` has shape (n,) and holds the positive class.
        """
        from mixnmatch.export.onnx_file import write_onnx

        write_onnx(self, path, classifier=classifier, output=output, precision=precision, vector=vector)

    def to_torch(self: Any, *, precision: str = "double", dim: int = -1) -> Any:
        """The fitted map as a PyTorch module, :class:`mixnmatch.export.CalibrationModule` (extra ``torch``).

        Parameters
        ----------
        precision : {"double", "single"}
            Precision inside, as for :meth:`to_onnx`; the output has the type of the input.
        dim : int
            Dimension of the classes in the scores that the module will get, the last one by default.
        """
        from mixnmatch.export.torch_module import CalibrationModule

        return CalibrationModule(self, precision=precision, dim=dim)

    def inverse(self: Any, p: Any) -> Any:
        """The raw score at which the calibrated probability of the positive class is p, for maps of two classes.

        Acting where the raw score is at least ``inverse(p)`` is acting where the calibrated probability is at least p.
        Where the map jumps over p, that is the score at the jump.

        Parameters
        ----------
        p : float or array
            Calibrated probabilities from 0 to 1.

        Returns
        -------
        float or array
            Scores of the positive class as the map takes them: probabilities, or logits for a map that was made with
            ``logits=True`` (for two columns of logits, the second minus the first). Where even the highest score has
            a calibrated probability below p it is infinity, where even the lowest has one above p it is -infinity.

        Raises
        ------
        ValueError
            If the map was fitted with more than two classes, or does not increase strictly.

        Notes
        -----
        Platt scaling has a closed form; other maps are inverted by bisection down to neighbouring numbers. Maps that
        do not promise to increase strictly are checked on a grid of 2001 scores first.

        Examples
        --------
        >>> from mixnmatch.maps import PlattScaling
        >>> fitted = PlattScaling().fit([0.1, 0.4, 0.6, 0.9, 0.7, 0.2], [0, 0, 1, 1, 0, 1])
        >>> score = fitted.inverse(0.6)
        >>> fitted.predict_proba([score])[0, 1].round(6)
        np.float64(0.6)
        """
        from mixnmatch.maps.inverse import inverse

        return inverse(self, p)
