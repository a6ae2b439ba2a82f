"""Losses: connectionist temporal classification, whose PyTorch body reads values while it runs (swapped in before capture); multilabel margins."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from autofix.surgery.ops_loop import loop_steps
from autofix.surgery.ops_numerics import reduced_loss


def as_lengths(lengths: Any) -> Tensor:
    """Lengths given as a tensor, or as numbers."""
    if not isinstance(lengths, Tensor):
        lengths = torch.stack([torch.scalar_tensor(n, dtype=torch.int64) for n in lengths])
    made: Tensor = lengths.to(torch.int64).reshape(-1)
    return made


def rows_of_targets(targets: Tensor, lengths: Tensor) -> Tensor:
    """Targets one after the other -> [batch, places], of which the first lengths[b] are meant."""
    last = targets.shape[0] - 1
    place = (lengths.cumsum(0) - lengths).unsqueeze(1) + torch.arange(targets.shape[0])
    return targets.index_select(0, torch.where(place < last, place, last).reshape(-1)).reshape(place.shape)


def log_sum(terms: list[Tensor]) -> Tensor:
    """log of the sum of exp(term); minus infinity of nothing but minus infinities."""
    top = terms[0]
    for term in terms[1:]:
        top = torch.maximum(top, term)
    safe = torch.where(top == -math.inf, 0.0, top)
    total = torch.exp(terms[0] - safe)
    for term in terms[1:]:
        total = total + torch.exp(term - safe)
    return torch.log(total) + safe


def ctc_step(k: Tensor, alpha: Tensor, scores: Tensor, length: Tensor, before: Tensor, jump: Tensor) -> tuple[Tensor]:
    """One step in time: alpha [batch, states]; a state is reached from itself, the one before, and, where `jump` says so, the one before that."""
    one = torch.where(before >= 0, alpha.index_select(1, torch.where(before < 0, 0, before)), -math.inf)
    two = torch.where(before >= 0, one.index_select(1, torch.where(before < 0, 0, before)), -math.inf)
    reached = log_sum([alpha, one, torch.where(jump, two, -math.inf)]) + scores.index_select(0, (k + 1).reshape(1)).squeeze(0)
    return (torch.where(k + 1 < length, reached, alpha),)


def ctc_each(log_probs: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor, blank: int) -> Tensor:
    """-log of the probability of each target (Graves et al. 2006, section 4.1, as ATen's LossCTC.cpp): log_probs [time, batch, classes]."""
    labels = rows_of_targets(targets, target_lengths) if targets.ndim == 1 else targets
    labels = torch.where(torch.arange(labels.shape[1]) < target_lengths.unsqueeze(1), labels.to(torch.int64), blank)
    blanks = torch.full_like(labels, blank)
    states = torch.stack([blanks, labels], 2).reshape(labels.shape[0], -1)
    states = torch.cat([states, torch.full_like(target_lengths, blank).unsqueeze(1)], 1)
    places = torch.arange(states.shape[1])
    earlier = states.index_select(1, torch.where(places > 1, places - 2, 0))
    jump = (places > 1) & (states != earlier)
    wide = log_probs.to(torch.float64)
    scores = wide.gather(2, states.unsqueeze(0).expand(wide.shape[0], -1, -1))
    alpha = torch.where(places < 2, scores.narrow(0, 0, 1).squeeze(0), -math.inf)
    extra = (scores, input_lengths.unsqueeze(1), places - 1, jump)
    (alpha,) = loop_steps(ctc_step, wide.shape[0] - 1, (alpha,), extra)
    last = (2 * target_lengths).unsqueeze(1)
    ends = alpha.gather(1, last), alpha.gather(1, torch.where(last > 0, last - 1, 0))
    loss = -log_sum([ends[0], torch.where(last > 0, ends[1], -math.inf)]).squeeze(1)
    nothing_heard = torch.where(target_lengths > 0, torch.full_like(loss, math.inf), torch.zeros_like(loss))
    return torch.where(input_lengths > 0, loss, nothing_heard).to(log_probs.dtype)


REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}
"""torch.nn.functional's names for ATen's numbers."""


def ctc_loss_plain(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: Any = 1,
    zero_infinity: bool = False,
) -> Tensor:
    """torch.ctc_loss (reduction a number) and torch.nn.functional.ctc_loss (a string, "mean" by default)."""
    how = REDUCTIONS[reduction] if isinstance(reduction, str) else reduction
    goals = as_lengths(target_lengths)
    alone = log_probs.ndim == 2
    batched = log_probs.unsqueeze(1) if alone else log_probs
    loss = ctc_each(batched, targets, as_lengths(input_lengths), goals, blank)
    if zero_infinity:
        loss = torch.where(loss == math.inf, 0.0, loss)
    if how == 1:
        return (loss / torch.where(goals > 0, goals, 1).to(loss.dtype)).mean()
    if how == 2:
        return loss.sum()
    return loss.squeeze(0) if alone else loss


LOSS_OVERRIDES = {torch.nn.functional.ctc_loss: ctc_loss_plain, torch.ctc_loss: ctc_loss_plain}


def multilabel_margin_with_mask(x: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    """aten.multilabel_margin_loss_forward: (loss, which classes are targets). Targets count up to the first negative one; each of them is held
    against all classes that are none: max(0, 1 - x[target] + x[class]) / classes."""
    scores, wanted = (x, target) if x.ndim == 2 else (x.reshape(1, -1), target.reshape(1, -1))
    valid = (wanted < 0).to(torch.int64).cumsum(1) == 0
    named = torch.where(valid, wanted, 0)
    classes = torch.arange(scores.shape[1])
    chosen = ((named.unsqueeze(2) == classes) & valid.unsqueeze(2)).to(torch.int64).sum(1) > 0
    margin = 1.0 - scores.gather(1, named).unsqueeze(2) + scores.unsqueeze(1)
    counts = valid.unsqueeze(2) & ~chosen.unsqueeze(1) & (margin > 0)
    each = torch.where(counts, margin, 0.0).sum((1, 2)) / scores.shape[1]
    loss = reduced_loss(each if x.ndim == 2 else each.squeeze(0), None, reduction)
    return loss, chosen.to(x.dtype).reshape(target.shape)


def multilabel_margin(x: Tensor, target: Tensor, reduction: int = 1) -> Tensor:
    """aten.multilabel_margin_loss."""
    return multilabel_margin_with_mask(x, target, reduction)[0]


LOSS_DECOMPOSITIONS = {
    "aten.multilabel_margin_loss.default": multilabel_margin,
    "aten.multilabel_margin_loss_forward.default": multilabel_margin_with_mask,
}
