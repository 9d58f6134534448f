"""`mha_jax.cache`: bytes a token, sizes of caches, and what appending refuses."""

import inspect
from typing import get_args

import jax.numpy as jnp
import pytest

from mha_jax.cache import Kind, append, bytes_per_token, capacity, init_cache, init_latent_cache


def test_bytes_are_the_papers_formulas():
    sizes = {
        "num_heads": 128,
        "num_kv_heads": 8,
        "head_dim": 128,
        "latent_dim": 512,
        "rope_dim": 64,
        "num_layers": 60,
    }
    elements = {
        kind: bytes_per_token(kind, **sizes, dtype=jnp.bfloat16) // 2 for kind in ("mha", "gqa", "mqa", "mla")
    }
    # DeepSeek-V2, table 9: 34.6 thousand elements a token with MLA.
    assert elements == {
        "mha": 2 * 128 * 128 * 60,
        "gqa": 2 * 8 * 128 * 60,
        "mqa": 2 * 128 * 60,
        "mla": 34_560,
    }
    # Table 1: equal to GQA with 2.25 groups.
    assert elements["mla"] == 2 * 2.25 * 128 * 60


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32])
def test_bytes_are_those_of_the_arrays(dtype):
    sizes = {
        "num_heads": 6,
        "num_kv_heads": 3,
        "head_dim": 5,
        "value_head_dim": 11,
        "latent_dim": 13,
        "rope_dim": 2,
    }
    widths = {"value_head_dim": 11, "batch_shape": (2, 3), "dtype": dtype}
    caches = {
        "mha": init_cache(17, 6, 5, **widths),
        "gqa": init_cache(17, 3, 5, **widths),
        "mqa": init_cache(17, 1, 5, **widths),
        "mla": init_latent_cache(17, 13, 2, batch_shape=(2, 3), dtype=dtype),
    }
    for kind in get_args(Kind):
        cache = caches[kind]
        assert capacity(cache) == 17
        assert not any(x.any() for x in cache)
        measured = sum(x.nbytes for x in cache[:2]) / (17 * 2 * 3)
        assert measured == bytes_per_token(kind, **sizes, dtype=dtype)
        assert 7 * measured == bytes_per_token(kind, **sizes, num_layers=7, dtype=dtype)


@pytest.mark.parametrize(
    ("kind", "sizes", "message"),
    [
        ("mha", {"head_dim": 5}, "num_heads: expected a positive integer, got None"),
        ("gqa", {"head_dim": 5, "num_heads": 2}, "num_kv_heads: expected a positive integer, got None"),
        ("mqa", {}, "head_dim: expected a positive integer, got None"),
        ("mqa", {"head_dim": 5, "value_head_dim": 0}, "value_head_dim: expected a positive integer, got 0"),
        ("mla", {"latent_dim": 5}, "rope_dim: expected a positive integer, got None"),
        ("mqa", {"head_dim": 5, "num_layers": 0}, "num_layers: expected a positive integer, got 0"),
        ("mqa", {"head_dim": 5, "dtype": jnp.int8}, "dtype: expected a floating-point dtype"),
        ("mtp", {}, "kind: expected one of .*, got 'mtp'"),
    ],
)
def test_sizes_of_a_token_are_checked(kind, sizes, message):
    with pytest.raises(ValueError, match=message):
        inspect.unwrap(bytes_per_token)(kind, **sizes)


@pytest.mark.parametrize(
    ("init", "args", "options", "message"),
    [
        (init_cache, (0, 2, 3), {}, "capacity: expected a positive integer, got 0"),
        (init_cache, (5, 0, 3), {}, "num_kv_heads: expected a positive integer, got 0"),
        (init_cache, (5, 2, 0), {}, "head_dim: expected a positive integer, got 0"),
        (
            init_cache,
            (5, 2, 3),
            {"value_head_dim": -1},
            "value_head_dim: expected a positive integer, got -1",
        ),
        (init_cache, (5, 2, 3), {"batch_shape": (0,)}, "batch_shape: expected a positive integer, got 0"),
        (init_cache, (5, 2, 3), {"dtype": jnp.int8}, "dtype: expected a floating-point dtype"),
        (init_latent_cache, (0, 2, 3), {}, "capacity: expected a positive integer, got 0"),
        (init_latent_cache, (5, 0, 3), {}, "latent_dim: expected a positive integer, got 0"),
        (init_latent_cache, (5, 2, 0), {}, "rope_dim: expected a positive integer, got 0"),
    ],
)
def test_sizes_of_a_cache_are_checked(init, args, options, message):
    with pytest.raises(ValueError, match=message):
        inspect.unwrap(init)(*args, **options)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c, k, v: (tuple(c), k, v), "cache: expected a KVCache or a LatentCache, got tuple"),
        (
            lambda c, k, v: (c._replace(length=jnp.zeros(2, int)), k, v),
            r"cache: expected one length .*got shape \(2,\)",
        ),
        (lambda c, k, v: (c, k[:1], v), r"key: expected shape \(2, T, 3, 4\), got \(1, 3, 3, 4\)"),
        (lambda c, k, v: (c, k, v[:, :2]), r"value: expected shape \(2, T, 3, 5\), got \(2, 2, 3, 5\)"),
        (
            lambda c, k, v: (c, k.reshape(2, 3, 4, 3), v),
            r"key: expected shape \(2, T, 3, 4\), got \(2, 3, 4, 3\)",
        ),
        (lambda c, k, v: (c, v, k), r"key: expected shape \(2, T, 3, 4\), got \(2, 3, 3, 5\)"),
        (lambda c, k, v: (c, k[0, 0], v), r"key: expected shape \(2, T, 3, 4\), got \(3, 4\)"),
        (lambda c, k, v: (c, k.astype(int), v), "key: expected a floating-point array, got int"),
    ],
)
def test_entries_are_checked(change, message):
    cache = init_cache(7, 3, 4, value_head_dim=5, batch_shape=(2,))
    with pytest.raises(ValueError, match=message):
        inspect.unwrap(append)(*change(cache, jnp.zeros((2, 3, 3, 4)), jnp.zeros((2, 3, 3, 5))))
