import itertools
import math
from collections import Counter

import numpy as np
import pytest
from scipy.stats import chi2

from theory.graphs import (
    RelationalGraph,
    from_edges,
    hub_graph,
    log2_num_hub_graphs,
    log2_num_permutation_graphs,
    log2_num_random_graphs,
    log2_num_regular_graphs,
    permutation_graph,
    random_graph,
    read_edges,
    regular_graph,
    zipf_degrees,
)


def _regular_graphs(num_items: int, degree: int) -> list[np.ndarray]:
    """All 0/1 matrices with a zero diagonal and constant row and column sums, by brute force over rows."""
    rows = [
        [
            np.isin(np.arange(num_items), chosen)
            for chosen in itertools.combinations([j for j in range(num_items) if j != i], degree)
        ]
        for i in range(num_items)
    ]
    matrices = (np.stack(choice) for choice in itertools.product(*rows))
    return [matrix for matrix in matrices if (matrix.sum(axis=0) == degree).all()]


def _num_regular_graphs(num_items: int, degree: int) -> int:
    """Their number, row by row: ways to reach every vector of column sums."""
    ways = Counter({(0,) * num_items: 1})
    for i in range(num_items):
        others = [j for j in range(num_items) if j != i]
        after = Counter()
        for sums, number in ways.items():
            for chosen in itertools.combinations(others, degree):
                new = tuple(total + (j in chosen) for j, total in enumerate(sums))
                if max(new) <= degree:
                    after[new] += number
        ways = after
    return ways[(degree,) * num_items]


def _assert_uniform(counts: Counter, num_outcomes: int, weights: dict | None = None) -> None:
    draws = sum(counts.values())
    expected = dict.fromkeys(counts, draws / num_outcomes) if weights is None else weights
    if weights is None:
        assert len(counts) == num_outcomes
    statistic = sum((counts[key] - value) ** 2 / value for key, value in expected.items())
    assert statistic < chi2.isf(1e-4, len(expected) - 1)


class TestRelationalGraph:
    def test_edges_are_sorted_and_read_only(self):
        graph = from_edges(5, [(4, 0), (1, 3), (1, 2)])
        assert graph.edges.tolist() == [[1, 2], [1, 3], [4, 0]]
        assert graph.edges.dtype == np.int32
        assert graph.num_edges == 3
        with pytest.raises(ValueError, match="read-only"):
            graph.edges[0, 0] = 2

    def test_input_array_stays_as_it_is(self):
        edges = np.array([[2, 0], [0, 1]])
        graph = RelationalGraph(3, edges)
        edges[0, 0] = 1
        assert graph.edges.tolist() == [[0, 1], [2, 0]]

    def test_adjacency_is_source_by_target(self):
        matrix = from_edges(3, [(0, 2), (1, 0)]).adjacency()
        assert matrix.tolist() == [[False, False, True], [True, False, False], [False, False, False]]

    def test_graph_without_edges(self):
        assert from_edges(3, []).num_edges == 0

    @pytest.mark.parametrize(
        ("num_items", "edges", "message"),
        [
            (3, [(0, 3)], r"edges: expected items from 0 to 2, got the edge \(0, 3\)"),
            (3, [(-1, 2)], r"edges: expected items from 0 to 2, got the edge \(-1, 2\)"),
            (3, [(1, 2), (0, 1), (1, 2)], r"edges: expected distinct edges, got \(1, 2\) twice"),
            (3, [(0, 1), (2, 2)], r"edges: expected no self loops, got the edge \(2, 2\)"),
            (3, [(0, 1, 2)], r"edges: expected integers of shape \(num_edges, 2\)"),
            (3, np.array([[0.5, 1.0]]), r"edges: expected integers of shape \(num_edges, 2\), got float64"),
            (0, [], "num_items: expected a positive integer, got 0"),
        ],
    )
    def test_refuses(self, num_items, edges, message):
        with pytest.raises(ValueError, match=message):
            from_edges(num_items, edges)


class TestPermutationGraph:
    @pytest.mark.parametrize("num_items", [2, 3, 97])
    def test_is_a_derangement(self, num_items):
        graph = permutation_graph(num_items, np.random.default_rng(0))
        matrix = graph.adjacency()
        assert graph.num_edges == num_items
        assert (matrix.sum(axis=0) == 1).all()
        assert (matrix.sum(axis=1) == 1).all()
        assert not matrix.diagonal().any()

    def test_is_uniform(self):
        rng = np.random.default_rng(1)
        counts = Counter(permutation_graph(4, rng).edges.tobytes() for _ in range(1800))
        _assert_uniform(counts, 9)

    def test_refuses_one_item(self):
        with pytest.raises(ValueError, match="num_items: expected at least 2 for a derangement, got 1"):
            permutation_graph(1, np.random.default_rng(0))


class TestRegularGraph:
    @pytest.mark.parametrize(
        ("num_items", "degree"),
        [(2, 1), (3, 2), (4, 2), (5, 2), (7, 3), (7, 4), (11, 5), (11, 10), (53, 3), (53, 29)],
    )
    def test_degrees(self, num_items, degree):
        graph = regular_graph(num_items, degree, np.random.default_rng(num_items))
        matrix = graph.adjacency()
        assert graph.num_edges == num_items * degree
        assert (matrix.sum(axis=0) == degree).all()
        assert (matrix.sum(axis=1) == degree).all()
        assert not matrix.diagonal().any()

    def test_is_uniform_over_classes(self):
        # Labels are drawn uniformly, so that only the frequencies of classes under relabelling can be off.
        # Classes are told apart by the number of edges with their reverse present and of closed 3-step walks.
        def shape(matrix: np.ndarray) -> tuple[int, int]:
            square = matrix.astype(int) @ matrix
            return int(np.trace(square)), int(np.trace(square @ matrix))

        draws = 500
        every = _regular_graphs(5, 2)
        assert len(every) == _num_regular_graphs(5, 2) == 216
        weights = {key: draws * n / len(every) for key, n in Counter(map(shape, every)).items()}
        assert len(weights) >= 4
        rng = np.random.default_rng(2)
        counts = Counter(shape(regular_graph(5, 2, rng).adjacency()) for _ in range(draws))
        assert set(counts) == set(weights)
        _assert_uniform(counts, len(weights), weights)

    @pytest.mark.slow
    def test_is_uniform(self):
        rng = np.random.default_rng(3)
        counts = Counter(regular_graph(5, 2, rng).edges.tobytes() for _ in range(216 * 8))
        _assert_uniform(counts, 216)

    def test_dense_is_complement_of_sparse(self):
        rng = np.random.default_rng(4)
        counts = Counter(regular_graph(4, 2, rng).edges.tobytes() for _ in range(1800))
        _assert_uniform(counts, 9)

    @pytest.mark.parametrize("degree", [0, 5])
    def test_refuses_degree(self, degree):
        with pytest.raises(ValueError, match=rf"degree: expected an integer from 1 to .* = 4, got {degree}"):
            regular_graph(5, degree, np.random.default_rng(0))


class TestRandomGraph:
    @pytest.mark.parametrize("num_edges", [1, 7, 41, 42])
    def test_number_of_edges(self, num_edges):
        matrix = random_graph(7, num_edges, np.random.default_rng(0)).adjacency()
        assert matrix.sum() == num_edges
        assert not matrix.diagonal().any()

    def test_is_uniform(self):
        rng = np.random.default_rng(5)
        counts = Counter(random_graph(3, 2, rng).edges.tobytes() for _ in range(1500))
        _assert_uniform(counts, math.comb(6, 2))

    @pytest.mark.parametrize("num_edges", [0, 13])
    def test_refuses_number_of_edges(self, num_edges):
        with pytest.raises(
            ValueError, match=rf"num_edges: expected an integer from 1 .* 12, got {num_edges}"
        ):
            random_graph(4, num_edges, np.random.default_rng(0))


class TestReadEdges:
    @pytest.mark.parametrize("text", ["source,target\n3,1\n0, 2\n", "3,1\r\n\r\n0,2\r\n", "\ufeff3,1\n0,2"])
    def test_reads(self, tmp_path, text):
        path = tmp_path / "edges.csv"
        path.write_text(text, encoding="utf-8", newline="")
        graph = read_edges(path)
        assert graph.num_items == 4
        assert graph.edges.tolist() == [[0, 2], [3, 1]]
        assert read_edges(path, num_items=7).num_items == 7

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("0,1\nsource,target\n", "line 2 .*got 'source,target'"),
            ("0,1\n1,2,3\n", "line 2 .*got '1,2,3'"),
            ("0,1.5\n", "line 1 .*got '0,1.5'"),
            ("0,a\n1,2\n", "line 1 .*got '0,a'"),
            ("source,target\n", "expected at least one edge"),
            ("", "expected at least one edge"),
            ("0,1\n1,1\n", r"no self loops, got the edge \(1, 1\)"),
            ("0,1\n0,1\n", r"distinct edges, got \(0, 1\) twice"),
            ("0,-1\n", r"expected items from 0"),
        ],
    )
    def test_refuses(self, tmp_path, text, message):
        path = tmp_path / "edges.csv"
        path.write_text(text)
        with pytest.raises(ValueError, match=message):
            read_edges(path)

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ("0,1\n".encode("utf-16"), "UTF-8"),
            ("é,ü\n0,1\n".encode("latin-1"), "UTF-8"),
            (b"0," + 200_000 * b"1", "comma-separated values in line 1"),
            (b"0,1\n1,\x002\n", "two integers, source and target, in line 2"),
        ],
    )
    def test_names_the_file_that_is_no_such_text(self, tmp_path, content, message):
        path = tmp_path / "edges.csv"
        path.write_bytes(content)
        with pytest.raises(ValueError, match=rf"path: expected {message} .*edges\.csv'"):
            read_edges(path)

    def test_refuses_item_out_of_range(self, tmp_path):
        path = tmp_path / "edges.csv"
        path.write_text("0,7\n")
        with pytest.raises(ValueError, match=r"from 0 to 4, got the edge \(0, 7\) \(in .*edges.csv"):
            read_edges(path, num_items=5)

    def test_missing_file(self, tmp_path):
        with pytest.raises(FileNotFoundError, match=r"path: expected a CSV file of edges, got .*none\.csv"):
            read_edges(tmp_path / "none.csv")


class TestFamilySizes:
    @pytest.mark.parametrize("num_items", range(2, 9))
    def test_derangements_by_enumeration(self, num_items):
        permutations = np.array(list(itertools.permutations(range(num_items))))
        count = (permutations != np.arange(num_items)).all(axis=1).sum()
        assert 2 ** log2_num_permutation_graphs(num_items) == pytest.approx(count, rel=1e-13)

    @pytest.mark.parametrize("num_items", [19, 20, 21, 96, 401])
    def test_derangements_by_their_series(self, num_items):
        count = sum(
            (-1) ** k * (math.factorial(num_items) // math.factorial(k)) for k in range(num_items + 1)
        )
        assert log2_num_permutation_graphs(num_items) == pytest.approx(math.log2(count), rel=1e-14)

    @pytest.mark.parametrize("num_edges", range(1, 7))
    def test_random_graphs_by_enumeration(self, num_edges):
        count = sum(1 for _ in itertools.combinations(range(6), num_edges))
        assert 2 ** log2_num_random_graphs(3, num_edges) == pytest.approx(count, rel=1e-12)

    @pytest.mark.parametrize(("num_items", "num_edges"), [(96, 96), (2048, 2048), (30011, 10), (101, 5050)])
    def test_random_graphs_by_integers(self, num_items, num_edges):
        exact = math.log2(math.comb(num_items * (num_items - 1), num_edges))
        assert log2_num_random_graphs(num_items, num_edges) == pytest.approx(exact, rel=1e-12)

    @pytest.mark.parametrize(("num_items", "degree"), [(m, r) for m in (4, 5, 6, 7) for r in range(1, m)])
    def test_regular_is_a_lower_bound(self, num_items, degree):
        exact = math.log2(_num_regular_graphs(num_items, degree))
        bound = log2_num_regular_graphs(num_items, degree)
        assert bound <= exact + 1e-12
        # The bound is not vacuous: at these sizes it finds more than half of the bits.
        assert bound >= 0.5 * exact
        if degree in (1, num_items - 2, num_items - 1):
            assert bound == pytest.approx(exact, abs=1e-12)

    def test_regular_lies_between_permutations_and_graphs_with_free_targets(self):
        sizes = [log2_num_regular_graphs(97, degree) for degree in range(1, 9)]
        assert sizes == sorted(sizes)
        assert sizes[0] == log2_num_permutation_graphs(97)
        for degree, size in enumerate(sizes, start=1):
            free = 97 * math.log2(math.comb(96, degree))  # `degree` edges out of every item, into any
            assert 0.6 * free < size < free

    def test_refuses(self):
        with pytest.raises(ValueError, match="num_items: expected at least 2"):
            log2_num_permutation_graphs(1)
        with pytest.raises(ValueError, match=r"num_edges: expected an integer from 1 to .* = 12, got 13"):
            log2_num_random_graphs(4, 13)
        with pytest.raises(ValueError, match=r"degree: expected an integer from 1 to .* = 3, got 4"):
            log2_num_regular_graphs(4, 4)
        with pytest.raises(ValueError, match=r"degree: expected an integer from 1 to .* = 3, got 0"):
            log2_num_regular_graphs(4, 0)


class TestHubs:
    @pytest.mark.parametrize(
        ("num_items", "num_edges"), [(64, 64), (64, 512), (9, 17), (5, 10), (3, 1), (2, 2)]
    )
    def test_degrees_are_exact_and_edges_simple(self, num_items, num_edges):
        degrees = zipf_degrees(num_items, num_edges)
        assert degrees.sum() == num_edges
        assert degrees.max() <= num_items // 2
        assert (np.diff(degrees) <= 0).all()
        for seed in range(3):
            graph = hub_graph(num_items, num_edges, np.random.default_rng(seed))
            adjacency = graph.adjacency()
            assert adjacency.sum() == graph.num_edges == num_edges
            assert not adjacency.diagonal().any()
            np.testing.assert_array_equal(np.sort(adjacency.sum(axis=1))[::-1], degrees)

    def test_degrees_fall_as_one_over_the_rank(self):
        degrees = zipf_degrees(400, 1200)
        np.testing.assert_allclose(degrees[:20] * np.arange(1, 21), degrees[0], rtol=0, atol=20)
        assert degrees[0] > 10 * degrees[19]

    def test_uniform_among_graphs_of_these_degrees(self):
        # Degrees 2, 1, 1, 0: 12 orders, 3^3 sets of targets.
        np.testing.assert_array_equal(zipf_degrees(4, 4), [2, 1, 1, 0])
        rng = np.random.default_rng(0)
        counts = Counter(hub_graph(4, 4, rng).edges.tobytes() for _ in range(3240))
        _assert_uniform(counts, 324)
        assert log2_num_hub_graphs(4, 4) == pytest.approx(math.log2(324), rel=1e-12)

    @pytest.mark.parametrize(("num_items", "num_edges"), [(1, 1), (4, 0), (4, 9)])
    def test_impossible_numbers_are_named(self, num_items, num_edges):
        with pytest.raises(ValueError, match=r"num_(edges|items): expected"):
            zipf_degrees(num_items, num_edges)
