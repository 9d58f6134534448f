"""Attention and its gradients in float64 NumPy, written from the contract and in formulas alone: no JAX.

For head ``n`` of ``N``, which reads key/value head ``n // (N / K)``, query ``t`` and key ``s``::

    score  = scale * <q[t], k[s]>           scale = 1 / sqrt(D) unless given
    logit  = cap * tanh(score / cap) + bias[t, s]          (cap only where one is given)
    weight = softmax of logit over the keys that t may attend; zero in a row that may attend none
    output = head_mask[t] * sum_s dropped(weight)[s] v[s]
    lse    = log sum_s exp(logit) over the keys that t may attend; -inf in a row that may attend none

A key may be attended where every condition given holds: mask is true, bias is not -inf, ``s`` and ``t`` are below
the lengths, ``s <= t + offset`` (causal), ``-left <= s - (t + offset) <= right`` (window).
"""

import numpy as np


def allowed_keys(
    batch,
    num_heads,
    num_queries,
    num_keys,
    *,
    bias=None,
    mask=None,
    is_causal=False,
    query_seq_lengths=None,
    key_value_seq_lengths=None,
    local_window_size=None,
    query_offset=0,
) -> np.ndarray:
    """Which keys a query may attend, (..., N, T, S), condition by condition."""

    def per_example(x):
        return np.broadcast_to(np.asarray(x, np.int64), batch)[..., None, None, None]

    query = np.arange(num_queries)[:, None]
    key = np.arange(num_keys)[None, :]
    distance = key - (query + per_example(query_offset))
    allowed = np.ones((*batch, num_heads, num_queries, num_keys), bool)
    if mask is not None:
        allowed = allowed & np.asarray(mask)
    if bias is not None:
        allowed = allowed & (np.asarray(bias, np.float64) != -np.inf)
    if is_causal:
        allowed = allowed & (distance <= 0)
    if local_window_size is not None:
        left, right = (local_window_size,) * 2 if isinstance(local_window_size, int) else local_window_size
        allowed = allowed & (distance >= -left) & (distance <= right)
    if query_seq_lengths is not None:
        allowed = allowed & (query < per_example(query_seq_lengths))
    if key_value_seq_lengths is not None:
        allowed = allowed & (key < per_example(key_value_seq_lengths))
    return allowed


class Attention:
    """The forward pass at these inputs; `gradients` is its transpose.

    Attributes:
        output: (..., T, N, E).
        lse: (..., T, N).
        weights: (..., N, T, S), before dropout.
        allowed: (..., N, T, S), which keys may be attended.
    """

    def __init__(
        self,
        query,
        key,
        value,
        bias=None,
        mask=None,
        *,
        scale=None,
        logits_soft_cap=None,
        head_mask=None,
        kept=None,
        dropout_rate=0.0,
        **masking,
    ):
        """As `mha_jax.dot_product_attention`; ``kept`` (..., N, T, S) says which weights dropout kept."""
        q, k, v = (np.asarray(x, np.float64) for x in (query, key, value))
        *batch, num_queries, num_heads, head_dim = q.shape
        num_keys, num_kv_heads = k.shape[-3:-1]
        self.group = num_heads // num_kv_heads
        self.allowed: np.ndarray = allowed_keys(
            tuple(batch), num_heads, num_queries, num_keys, bias=bias, mask=mask, **masking
        )
        # What nobody reads may hold anything.
        keys_read = np.any(self.allowed, (-3, -2))[..., :, None, None]
        queries_read = np.any(self.allowed, (-3, -1))[..., :, None, None]
        # (..., heads, positions, width); each key/value head once for each query head of its group
        self.q = np.where(queries_read, q, 0).swapaxes(-3, -2)
        self.k = np.repeat(np.where(keys_read, k, 0).swapaxes(-3, -2), self.group, axis=-3)
        self.v = np.repeat(np.where(keys_read, v, 0).swapaxes(-3, -2), self.group, axis=-3)
        self.scale = head_dim**-0.5 if scale is None else float(scale)
        self.bias = None if bias is None else np.asarray(bias, np.float64)
        self.head_mask = None if head_mask is None else np.asarray(head_mask, np.float64)

        score = self.scale * np.einsum("...td,...sd->...ts", self.q, self.k)
        self.slope = np.ones_like(score)
        if logits_soft_cap is not None:
            self.slope = 1 - np.tanh(score / logits_soft_cap) ** 2
            score = logits_soft_cap * np.tanh(score / logits_soft_cap)
        if self.bias is not None:
            score = score + np.where(np.isneginf(self.bias), 0, self.bias)
        top = np.where(self.allowed, score, -np.inf).max(-1, keepdims=True, initial=-np.inf)
        top = np.where(np.isneginf(top), 0, top)
        exponentials = np.where(self.allowed, np.exp(np.where(self.allowed, score - top, 0)), 0)
        total = exponentials.sum(-1, keepdims=True)
        self.weights = exponentials / np.where(total == 0, 1, total)
        with np.errstate(divide="ignore"):
            self.lse = (np.log(total) + top)[..., 0].swapaxes(-1, -2)

        self.keep_scale = np.ones_like(score)
        if kept is not None:
            self.keep_scale = np.asarray(kept, np.float64) / (1 - dropout_rate)
        self.dropped = self.weights * self.keep_scale
        self.unmasked_output = np.einsum("...ts,...se->...te", self.dropped, self.v).swapaxes(-3, -2)
        self.output = self.unmasked_output * self._per_head(self.head_mask)

    @staticmethod
    def _per_head(head_mask):
        return np.ones((1, 1, 1)) if head_mask is None else head_mask[..., None]

    def gradients(self, d_output, d_lse=None):
        """Gradients of ``sum(output * d_output) + sum(lse * d_lse)``, rows without a key left out of the lse.

        Returns:
            Arrays in the shapes of the inputs: query, key, value, and bias and head_mask where they were given.
        """
        g = np.asarray(d_output, np.float64)
        found = {}
        if self.head_mask is not None:
            found["head_mask"] = _sum_to((g * self.unmasked_output).sum(-1), self.head_mask.shape)
        g = (g * self._per_head(self.head_mask)).swapaxes(-3, -2)
        d_weights = np.einsum("...te,...se->...ts", g, self.v) * self.keep_scale
        d_logits = self.weights * (d_weights - (self.weights * d_weights).sum(-1, keepdims=True))
        if d_lse is not None:
            d_logits = d_logits + self.weights * np.asarray(d_lse, np.float64).swapaxes(-1, -2)[..., None]
        if self.bias is not None:
            found["bias"] = _sum_to(d_logits, self.bias.shape)
        d_scores = d_logits * self.slope * self.scale
        found["query"] = np.einsum("...ts,...sd->...td", d_scores, self.k).swapaxes(-3, -2)
        found["key"] = self._sum_groups(np.einsum("...ts,...td->...sd", d_scores, self.q))
        found["value"] = self._sum_groups(np.einsum("...ts,...te->...se", self.dropped, g))
        return found

    def _sum_groups(self, x):
        *batch, num_heads, size, width = x.shape
        grouped = x.reshape(*batch, num_heads // self.group, self.group, size, width)
        return grouped.sum(-3).swapaxes(-3, -2)


def _sum_to(x, shape):
    """Transpose of broadcasting ``shape`` to the shape of ``x``."""
    x = x.sum(tuple(range(x.ndim - len(shape))))
    return x.sum(tuple(i for i, n in enumerate(shape) if n == 1 and x.shape[i] != 1), keepdims=True)
