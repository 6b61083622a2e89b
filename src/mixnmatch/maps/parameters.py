"""Parameters of maps, as scikit-learn's estimators have them, without importing scikit-learn.

A saved map must load and predict with NumPy alone, and importing ``sklearn.base`` takes more than ten times as long as
importing NumPy. What only scikit-learn can do (tags, the diagram in notebooks) is looked up there when it is asked for.
"""

from __future__ import annotations

from copy import deepcopy
from inspect import Parameter, signature
from typing import Any, Self
from weakref import WeakKeyDictionary

# Parameters of the classes seen so far, with their defaults.
_known: WeakKeyDictionary[type, dict[str, Any]] = WeakKeyDictionary()
# Items of a long parameter, such as the names of 1000 classes, that a repr shows.
MOST_ITEMS = 8


class Parameters:
    """An object whose parameters are the arguments of its ``__init__``, stored under the same names."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name.

        Parameters
        ----------
        deep : bool
            Whether to include the parameters of maps inside, as ``part__parameter``.
        """
        params = {name: getattr(self, name) for name in sorted(_defaults(type(self)))}
        if deep:
            for name, value in list(params.items()):
                if hasattr(value, "get_params") and not isinstance(value, type):
                    params |= {f"{name}__{key}": inner for key, inner in value.get_params().items()}
        return params

    def set_params(self, **params: Any) -> Self:
        """Set parameters, also of maps inside (``part__parameter``)."""
        inside: dict[str, dict[str, Any]] = {}
        for name, value in params.items():
            own, _, rest = name.partition("__")
            if own not in _defaults(type(self)):
                known = ", ".join(sorted(_defaults(type(self))))
                msg = f"{type(self).__name__} has no parameter {own!r}; its parameters: {known}"
                raise ValueError(msg)
            if rest:
                inside.setdefault(own, {})[rest] = value
            else:
                setattr(self, own, value)
        for own, values in inside.items():
            getattr(self, own).set_params(**values)
        return self

    def __repr__(self) -> str:
        changed = [
            f"{name}={_shortened(value)}"
            for name, value in self.get_params(deep=False).items()
            if not _is_default(value, _defaults(type(self))[name])
        ]
        return f"{type(self).__name__}({', '.join(changed)})"

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, Tags, TargetTags

        return Tags(estimator_type=None, target_tags=TargetTags(required=True), input_tags=InputTags())

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        """Draw the diagram of scikit-learn's estimators in notebooks, where its users have not turned it off."""
        from sklearn import get_config
        from sklearn.utils import estimator_html_repr

        shown = {"text/plain": repr(self)}
        if get_config()["display"] == "diagram":
            shown["text/html"] = estimator_html_repr(self)
        return shown


def clone(candidate: Any) -> Any:
    """Return an unfitted copy of a map with the same parameters, as ``sklearn.base.clone`` does.

    Parameters
    ----------
    candidate : map, estimator or any other object
        Maps and estimators inside are copied unfitted, everything else as it is.
    """
    if isinstance(candidate, Parameters):
        values = candidate.get_params(deep=False)
        return type(candidate)(**{name: clone(value) for name, value in values.items()})
    if hasattr(candidate, "get_params") and not isinstance(candidate, type):
        from sklearn.base import clone as sklearn_clone

        return sklearn_clone(candidate, safe=False)
    if isinstance(candidate, list | tuple):
        return type(candidate)(clone(value) for value in candidate)
    return deepcopy(candidate)


def check_is_fitted(candidate: Any) -> None:
    """Raise scikit-learn's ``NotFittedError`` unless a map is fitted."""
    if not hasattr(candidate, "n_classes_"):
        from sklearn.exceptions import NotFittedError

        msg = f"this {type(candidate).__name__} is not fitted yet: call fit first"
        raise NotFittedError(msg)


def check_fitted_map(candidate: Any) -> None:
    """Raise an error unless an object is a fitted map; of a fitted classifier, say where its map is."""
    if all(hasattr(candidate, name) for name in ("predict_proba", "classes_", "n_classes_")):
        return
    hint = "fit it, or load one with mixnmatch.load"
    if hasattr(candidate, "pairs_"):
        hint = (
            "it is a classifier: take estimator, fitted = model.pairs_[0], and pass the map, fitted, with the scores "
            "of the estimator"
        )
    msg = f"{candidate!r:.80} is not a fitted map; {hint}"
    raise ValueError(msg)


def _defaults(kind: type) -> dict[str, Any]:
    """Defaults of the arguments of a constructor; ``Parameter.empty`` where there is none."""
    if kind not in _known:
        start: Any = vars(kind).get("__init__") or kind.__init__  # type: ignore[misc]
        given = [] if start is object.__init__ else list(signature(start).parameters.values())[1:]  # without self
        variadic = Parameter.VAR_KEYWORD, Parameter.VAR_POSITIONAL
        _known[kind] = {each.name: each.default for each in given if each.kind not in variadic}
    return _known[kind]


def _is_default(value: Any, default: Any) -> bool:
    if value is default:
        return True
    if isinstance(default, Parameters) or type(value) is not type(default):
        return repr(value) == repr(default)
    try:
        return bool(value == default)
    except (TypeError, ValueError):  # arrays have no single truth value
        return False


def _shortened(value: Any) -> str:
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple) and len(value) > MOST_ITEMS:
        shown = ", ".join(repr(item) for item in value[:MOST_ITEMS])
        return f"[{shown}, ... {len(value)} in all]"
    return repr(value)
