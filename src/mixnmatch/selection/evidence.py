"""How well a stack does on held-out samples: its losses, the evidence for using it, and the floor of probabilities."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.rows import Rows
from mixnmatch.selection.crossfit import HeldOut, kept_losses
from mixnmatch.selection.stacking import Array, Difference, cross_fitted_weights, mixed, stack

# Evidence in nats from which on a stack replaces the scores (odds of 20 to 1).
ENOUGH = 3.0
# Members that are shrunk to the identity may raise the log loss by this part of it.
TOLERATED = 0.01
# Shares of the stack that are tried beside the scores as they are.
SHARES = np.linspace(1.0, 0.1, 10)
# No probability is so small that raising all others to it would cost more than this part of the loss.
FLOOR_COST = 0.003


@dataclass(frozen=True)
class CrossFittedStack:
    """A stack and its losses for held-out samples.

    ``each`` holds weights for each sample, chosen without its fold. ``log_losses`` are what evidence is measured in,
    whatever the weights were chosen by.
    """

    weights: Array
    each: Array
    losses: Array
    log_losses: Array

    @classmethod
    def of(cls, held_out: HeldOut, fold: NDArray[np.intp], members: NDArray[np.intp] | None = None) -> CrossFittedStack:
        """The stack of some members, or of all; ``fold`` is that of each sample."""
        size = held_out.objective.n_members
        some = np.arange(size) if members is None else members
        objective, place = held_out.objective.some(some), np.eye(size)[some]
        each = cross_fitted_weights(objective, fold) @ place
        losses, log_losses = held_out.objective.rows(each), -np.log(mixed(held_out.at_label, each))
        return cls(stack(objective) @ place, each, losses, log_losses)

    def keeping_winners(self, given: Rows, outputs: list[Rows], scoring: str) -> CrossFittedStack:
        """The same with the predicted classes kept."""
        log_losses = kept_losses(given, outputs, self.each, "nll")
        losses = log_losses if scoring == "nll" else kept_losses(given, outputs, self.each, scoring)
        return CrossFittedStack(self.weights, self.each, losses, log_losses)

    def evidence(self, held_out: HeldOut, caution: float, share: float = 1.0) -> float:
        """What is gained in log loss over doing nothing, in all, less some standard errors of it.

        With a share below 1 this is the gain of a mixture of the stack and the scores as they are.
        """
        given, weight = held_out.at_label[:, 0], held_out.weight
        mixture = share * np.exp(-self.log_losses) + (1 - share) * given
        gain = Difference.of(-np.log(given), -np.log(mixture), weight)
        return float(weight.sum()) * (gain.mean - caution * gain.standard_error)

    def share(self, held_out: HeldOut, caution: float, *, shrunken: bool) -> float:
        """What the stack weighs beside the scores as they are.

        It grows with the evidence. If members are shrunk to the identity already (``shrunken``), it is the
        largest share at which the log loss hardly rises, beyond what chance may explain.
        """
        if not shrunken:
            return min(max(self.evidence(held_out, caution), 0.0) / ENOUGH, 1.0)
        allowed = -TOLERATED * float(held_out.weight @ -np.log(held_out.at_label[:, 0]))
        return next((s for s in SHARES.tolist() if self.evidence(held_out, caution, s) >= allowed), 0.0)


def probability_floor(held_out: HeldOut, weights: Array, n_classes: int) -> float:
    """The floor of probabilities: it costs a small part of the loss at most, and no more than one error in all."""
    weight = held_out.weight
    total = float(weight.sum())
    losses = -np.log(held_out.at_label @ weights)
    return min(FLOOR_COST * float(weight @ losses) / total / (n_classes - 1), 1 / ((total + 1) * n_classes))
