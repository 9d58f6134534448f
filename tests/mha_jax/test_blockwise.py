"""`mha_jax._kernels`: sizes of blocks, which are visited, memory and what is compiled. Numbers: the contract suite."""

import functools
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mha_jax
from mha_jax import attention
from mha_jax._kernels.blocks import Axis, choose_blocks, live_keys, live_queries
from mha_jax._kernels.blockwise import Plan, blockwise_attention
from mha_jax._kernels.head import Operands, Options, tile_visible

attend = functools.partial(mha_jax.dot_product_attention, implementation="blockwise")


@pytest.mark.parametrize("size", [1, 7, 128, 160, 161, 192, 521, 1000, 4092, 8192])
@pytest.mark.parametrize("num_heads", [1, 8, 16, 32, 1000])
@pytest.mark.parametrize("backend", ["cpu", "gpu"])
def test_blocks_cover_every_position_once(size, num_heads, backend):
    for axis in choose_blocks(size, size, num_heads, 4, backend):
        owned = [np.asarray(axis.positions(i))[np.asarray(axis.own(i))] for i in range(axis.number)]
        np.testing.assert_array_equal(np.concatenate(owned), np.arange(size))
        for i in range(axis.number):
            positions = np.asarray(axis.positions(i))
            assert positions[0] == axis.start(i)
            assert positions[0] >= 0
            assert positions[-1] < size


@pytest.mark.parametrize(
    ("num_heads", "itemsize", "tile"),
    [
        (1, 4, (512, 512)),
        (4, 4, (512, 512)),
        (4, 8, (512, 256)),
        (8, 4, (512, 256)),
        (32, 4, (512, 256)),
        (32, 8, (256, 128)),
        (64, 4, (256, 128)),
        (65, 4, (128, 128)),
        (1024, 4, (128, 128)),
    ],
)
def test_tiles_stay_in_the_cache_until_they_are_as_small_as_is_useful(num_heads, itemsize, tile):
    queries, keys = choose_blocks(4096, 4096, num_heads, itemsize, "cpu")
    assert (queries.block, keys.block) == tile
    assert num_heads * tile[0] * tile[1] * itemsize <= 2**24 or tile == (128, 128)


def test_what_fits_into_little_more_than_a_block_is_one():
    assert choose_blocks(160, 7, 64, 4, "cpu") == (Axis(160, 160), Axis(7, 7))
    assert choose_blocks(160, 161, 4096, 4, "cpu") == (Axis(160, 160), Axis(161, 96))


def test_few_queries_take_long_blocks_of_keys():
    assert choose_blocks(1, 4096, 64, 4, "cpu") == (Axis(1, 1), Axis(4096, 512))


@st.composite
def _calls(draw):
    size, block = st.integers(1, 13), st.integers(1, 5)
    queries, keys = (Axis(n, min(n, draw(block))) for n in (draw(size), draw(size)))
    limit = st.none() | st.integers(-9, 9)
    length = st.none() | st.lists(st.integers(0, 15), min_size=2, max_size=2)
    offset = draw(st.none() | st.lists(st.integers(-9, 9), min_size=2, max_size=2))
    scalars = (None if x is None else jnp.array(x, jnp.int32) for x in (offset, draw(length), draw(length)))
    return queries, keys, Options(lower=draw(limit), upper=draw(limit)), *scalars


@settings(max_examples=12, deadline=None)
@given(_calls())
def test_every_pair_that_is_attended_is_visited_and_no_block_without_need(call):
    queries, keys, options, offset, query_length, key_length = call
    arrays = jnp.zeros((2, queries.size, 1)), jnp.zeros((2, keys.size, 1)), jnp.zeros((2, keys.size, 1))
    operands = Operands(*arrays, offset=offset, query_length=query_length, key_length=key_length)
    rows, columns = jnp.arange(queries.size)[None], jnp.arange(keys.size)[None]
    visible = tile_visible(operands, options, rows, columns)
    every = (2, queries.size, keys.size)
    visible = np.broadcast_to(np.ones(every, bool) if visible is None else np.asarray(visible), every)
    visible = np.asarray(visible.any(axis=0))
    for live, own, other, pairs in (
        (live_keys(operands, options, queries, keys), queries, keys, visible),
        (live_queries(operands, options, queries, keys), keys, queries, visible.T),
    ):
        for i in range(own.number):
            mine = np.asarray(own.positions(i))
            visited = []
            for begin, end, banded in live:
                blocks = range(int(begin[i]), int(end[i]))
                visited += blocks
                assert all(0 <= j < other.number for j in blocks)
                for j in blocks if not banded else ():  # only lengths may keep these apart
                    distance = np.asarray(other.positions(j))[None] - mine[:, None]
                    distance = distance if own is queries else -distance
                    low, high = options.lower, options.upper
                    assert low is None or np.all((distance >= low) | ~np.asarray(other.own(j)))
                    assert high is None or np.all((distance <= high) | ~np.asarray(other.own(j)))
            assert len(visited) == len(set(visited))
            positions = {int(p) for j in visited for p in np.asarray(other.positions(j))}
            assert set(np.flatnonzero(pairs[mine].any(0))) <= positions
    if offset is None and query_length is None and key_length is None:
        live = live_keys(operands, options, queries, keys)
        assert all(isinstance(x, np.ndarray) for begin, end, _ in live for x in (begin, end))


def _counts(live):
    """Number of blocks visited, in all and without testing the band, for every block."""
    counts = [(r.end - r.begin, (r.end - r.begin) * (not r.banded)) for r in live]
    return [np.sum(x, axis=0).tolist() for x in zip(*counts, strict=True)]


def test_causality_visits_half_of_the_blocks_and_a_window_a_band():
    axis = Axis(64, 8)
    operands = Operands(*[jnp.zeros((1, 64, 1))] * 3)
    rising = list(range(8))
    causal = Options(upper=0)
    assert _counts(live_keys(operands, causal, axis, axis)) == [[n + 1 for n in rising], rising]
    assert _counts(live_queries(operands, causal, axis, axis)) == [
        [n + 1 for n in rising[::-1]],
        rising[::-1],
    ]
    window = Options(lower=-17, upper=0)
    assert _counts(live_keys(operands, window, axis, axis)) == [[1, 2, 3, 4, 4, 4, 4, 4], [0, *[1] * 7]]
    assert live_keys(operands, Options(lower=99), axis, axis) == []


def _compiled(function, size, *, num_heads=4, width=16, gradient=False):
    def loss(*arrays):
        return jnp.sum(function(*arrays))

    array = jax.ShapeDtypeStruct((1, size, num_heads, width), jnp.float32)
    program = jax.grad(loss, argnums=(0, 1, 2)) if gradient else function
    return jax.jit(program).lower(array, array, array).compile()


@pytest.mark.parametrize("gradient", [False, True])
def test_temporary_memory_is_linear_in_the_length(gradient):
    def small_blocks(num_queries, num_keys, *_):
        return Axis(num_queries, 64), Axis(num_keys, 64)

    def temporary(size):
        analysis: Any = _compiled(attend, size, gradient=gradient).memory_analysis()
        return analysis.temp_size_in_bytes

    with mock.patch.object(attention, "choose_blocks", small_blocks):
        short, long = temporary(512), temporary(2048)
    inputs = 3 * 4 * 2048 * 16 * 4
    assert long < 4.5 * short
    assert long < 10 * inputs  # all weights would be 43 times the inputs
    assert 40 * inputs < 4 * 2048 * 2048 * 4


def test_arrays_that_fit_into_one_block_need_no_loop_and_no_copy_of_the_keys():
    text = str(_compiled(attend, 128).as_text())
    assert " while(" not in text
    assert "dynamic-slice" not in text


def test_no_array_of_all_weights_and_no_transposed_tile_is_compiled():
    def small_blocks(num_queries, num_keys, *_):
        return Axis(num_queries, 64), Axis(num_keys, 32)

    with mock.patch.object(attention, "choose_blocks", small_blocks):
        program = _compiled(attend, 256, gradient=True)
    text = str(program.as_text())
    assert "256,256]" not in text
    for line in text.splitlines():
        if " transpose(" in line:  # of arrays with the width of a head, never of a tile
            assert "64,32]" not in line, line
            assert "32,64]" not in line, line


def test_blocks_that_nobody_attends_are_not_read():
    """Had they been visited, a NaN in them would be in the sums: 0 * NaN is NaN."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((1, 1, 1, 16, 2)).astype(np.float32) for _ in range(3))
    k[..., 8:, :] = np.nan
    v[..., 8:, :] = np.nan
    operands = Operands(*map(jnp.asarray, (q[..., :8, :], k, v)))
    plan = Plan(Options(upper=0), (1, 1, 1), Axis(8, 4), Axis(16, 4))
    output, lse = blockwise_attention(operands, plan)
    assert np.isfinite(output).all()
    assert np.isfinite(lse).all()
    grads = jax.grad(lambda o: blockwise_attention(o, plan)[0].sum())(operands)
    assert all(np.isfinite(x).all() for x in (grads.query, grads.key, grads.value))
    assert not np.asarray(grads.key)[..., 8:, :].any()
    lengths = operands._replace(key_length=jnp.full((1, 1, 1), 8, jnp.int32))
    output, _ = blockwise_attention(lengths, plan._replace(options=Options()))
    assert np.isfinite(output).all()
