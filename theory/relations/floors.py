r"""What fewer heads than relations cannot do: three theorems (ours), and where each of them ends.

Setting. Every item u has targets ``t_1(u), ..., t_R(u)``; item j carries a value ``v_j`` in ``R^a``, drawn
independently of everything else with mean 0 and covariance I, independently between items. Head i reads ``c_i = sum_j
p_i(u, j) v_j`` with a softmax row ``p_i(u, .)`` (or any weights at all, of any sign). Slot r is to hold
``v_{t_r(u)}``. Error is the mean squared error over slots and entries; without reading anything it is 1.

1. *Mixtures*. If the R targets differ, the weights do not depend on the values, and the read-out is linear,
   ``y_r = sum_i B_ri c_i`` with any matrices ``B_ri`` (value and output projections are part of them, heads may be as
   wide as they like), then the error is at least ``(R - h) / R``. *Proof.* Stack the values of all n items to v. Given
   the weights the answer is ``B (P (x) I) v`` with P of shape (h, n), what is wanted is ``(E (x) I) v`` with E the R
   rows of the identity that belong to the targets; the values are isotropic, so the expected squared error is
   ``|E (x) I - B (P (x) I)|_F^2``. The second matrix has rank at most ``h a``; the first has R a singular values,
   all 1. By Eckart and Young the squared distance is at least ``R a - h a``. Divide by R a; average over u and over
   whatever the weights are drawn from.

   Reached by any h heads that read h targets, and as well by mixtures of the targets: a head that spreads 1/2 and 1/2
   over two targets, read out with 1 and 1, is exactly as good as one that reads the first alone.
2. *Narrow heads*. If the read-out is linear and head outputs are of width b, the error is at least ``1 - h b / (R a)``
   (`readout_floor`), whatever the weights depend on and whatever heads and values are: the answer lies in the column
   space of the read-out, of dimension at most h b, the target is isotropic in R a dimensions.
3. *Gaussian values*. If values are Gaussian (and the targets differ, the weights do not depend on the values), *no*
   read-out of the h mixtures has an error below ``(R - h) / R``, linear or not: targets and mixtures are jointly
   Gaussian, so that the best read-out of all, the conditional mean, is linear, and 1 holds. It may depend on u.

What each condition is for; the tests compute all of these.

- *The targets differ.* Where two relations have the same target, one head serves both: with E of k different rows the
  floor is that of Eckart and Young again, the sum of the smallest ``k - h`` squared singular values of E over R.
- *The weights do not depend on the values* (keys are made of the items alone). Else 1 and 3 fail. R = 2, h = 1, a = 1:
  let items carry a mark ``s_j`` in {-1, 1}, the targets of the first relation 1, those of the second -1, let the logits
  of an item's two targets be ``L + eps v_j`` and the head read ``(v_j, s_j)``. It returns ``(v_1 + v_2) / 2`` and
  ``tanh(eps (v_1 - v_2) / 2)``, hence both values up to O(eps^2), by a linear read-out of one head. Only 2 is left, and
  says 0, because the head is of width 2.
- *Linear, or Gaussian.* With values of +1 and -1 one head with weights 2/3 and 1/3 returns a number from which both
  values can be told, so a read-out that is not linear has no floor, although values are as isotropic.

So it is not superposition as such that a head lacks, but knowledge of the values where it mixes.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int


def error_floor(num_relations: int, num_heads: int) -> float:
    """Least mean squared error, over the targets' variance, of ``num_heads`` heads: ``max(0, 1 - h / R)``.

    A theorem (ours) for weights that do not depend on the values, with a linear read-out or Gaussian values; see the
    module for the proof and for what each condition is for.

    Args:
        num_relations: R, relations with different targets.
        num_heads: h.

    Raises:
        ValueError: unless both are positive.
    """
    for name, value in (("num_relations", num_relations), ("num_heads", num_heads)):
        if value < 1:
            raise ValueError(f"{name}: expected a positive integer, got {value}")
    return max(0.0, 1 - num_heads / num_relations)


def readout_floor(num_relations: int, num_heads: int, value_dim: int, head_width: int) -> float:
    """The floor of a linear read-out of heads of ``head_width``, whatever they do: ``max(0, 1 - h b / (R a))``.

    A theorem (ours), the second of the module.

    Args:
        num_relations: R.
        num_heads: h.
        value_dim: entries a of a value.
        head_width: numbers b that a head returns.

    Raises:
        ValueError: unless all are positive.
    """
    if value_dim < 1 or head_width < 1:
        raise ValueError(
            f"value_dim, head_width: expected positive integers, got {value_dim} and {head_width}"
        )
    error_floor(num_relations, num_heads)
    return max(0.0, 1 - num_heads * head_width / (num_relations * value_dim))


def exact_error(
    weights: Float[np.ndarray, "h m n"],
    readout: Float[np.ndarray, "R a h a"],
    targets: Int[np.ndarray, "R m"],
) -> float:
    """Expected mean squared error of a linear read-out over isotropic values, exactly, in float64.

    ``|E (x) I - B (P (x) I)|_F^2 / (R a)``, averaged over items.

    Args:
        weights: ``p_i(u, j)``, independent of the values.
        readout: ``readout[r, :, i]`` is the matrix ``B_ri`` that takes head i's mixture to slot r.
        targets: ``targets[r, u]`` is the target of item u under relation r.
    """
    p, b = weights.astype(np.float64), readout.astype(np.float64)
    num_relations, value_dim = b.shape[:2]
    items = np.arange(p.shape[1])
    overlaps = np.einsum("iuj,kuj->uik", p, p)
    squares = np.einsum("uik,raib,rakb->u", overlaps, b, b)
    traces = np.einsum("raia->ri", b)
    hits = np.einsum("ri,iru->u", traces, p[:, items, targets])
    return float(np.mean(squares - 2 * hits) / (num_relations * value_dim) + 1)
