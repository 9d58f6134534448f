import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from theory.embeddings import minilm_available, minilm_vectors, minilm_word_rows
from theory.graphs import (
    log2_num_hub_graphs,
    log2_num_permutation_graphs,
    log2_num_random_graphs,
    log2_num_regular_graphs,
    zipf_degrees,
)
from theory.problems import (
    EMBEDDINGS,
    Problem,
    check_problem,
    log2_family_size,
    make_problem,
    num_edges_of,
    seeded_rng,
    short_name,
)
from theory.relations import load_word_relations

needs_minilm = pytest.mark.skipif(
    not minilm_available(), reason="MiniLM's wheel is not installed; `make models` does"
)
DRAWN = ("permutation", "regular", "random", "hubs")
WORDS = ("words", "words-shuffled")


def _problem(**changes) -> Problem:
    arguments = {"num_items": 22, "d_model": 23, "embedding": "gaussian", "graph": "permutation", "seed": 0}
    arguments |= changes
    arguments.setdefault("num_edges", num_edges_of(arguments["graph"], arguments["num_items"]))
    return make_problem(**arguments)


def _pairs(problem: Problem) -> set[tuple[str, str]]:
    labels = problem.labels
    assert labels is not None
    return {(labels[source], labels[target]) for source, target in problem.graph.edges}


class TestSeeds:
    @pytest.mark.parametrize("graph", [*DRAWN, *WORDS])
    def test_graph_does_not_depend_on_the_embedding(self, graph):
        available = EMBEDDINGS if minilm_available() else ("gaussian", "orthonormal")
        problems = [
            _problem(graph=graph, embedding=name, d_model=384 if name == "minilm" else 23)
            for name in available
        ]
        for problem in problems:
            np.testing.assert_array_equal(problem.graph.edges, problems[0].graph.edges)
            assert problem.embeddings.shape[0] == 22

    @pytest.mark.parametrize("embedding", ["gaussian", "orthonormal"])
    def test_embedding_does_not_depend_on_the_graph(self, embedding):
        reference = _problem(embedding=embedding).embeddings
        for graph in (*DRAWN, *WORDS):
            np.testing.assert_array_equal(_problem(embedding=embedding, graph=graph).embeddings, reference)

    @pytest.mark.parametrize("graph", [*DRAWN, *WORDS])
    def test_two_seeds_differ_and_one_repeats(self, graph):
        first, again, other = (_problem(graph=graph, seed=seed) for seed in (3, 3, 4))
        np.testing.assert_array_equal(first.embeddings, again.embeddings)
        np.testing.assert_array_equal(first.graph.edges, again.graph.edges)
        assert first.labels == again.labels
        assert not np.array_equal(first.embeddings, other.embeddings)
        if graph == "words":
            assert first.labels != other.labels
        else:
            assert not np.array_equal(first.graph.edges, other.graph.edges)

    def test_purposes_are_independent(self):
        draws = np.stack([seeded_rng(0, purpose).standard_normal(4099) for purpose in ("a", "b", "ab")])
        # Correlations of 4,099 independent pairs, within 5 standard errors.
        np.testing.assert_allclose(np.corrcoef(draws), np.eye(3), atol=5 / np.sqrt(4099))

    def test_another_process_draws_the_same(self):
        script = (
            "import hashlib; from theory.problems import make_problem; digest = hashlib.sha256()\n"
            "for graph in ('permutation', 'words-shuffled'):\n"
            "    p = make_problem(num_items=22, num_edges=22 if graph == 'permutation' else 11, d_model=23,\n"
            "                     embedding='gaussian', graph=graph, seed=5)\n"
            "    digest.update(p.embeddings.tobytes() + p.graph.edges.tobytes() + repr(p.labels).encode())\n"
            "print(digest.hexdigest())"
        )
        digest = hashlib.sha256()
        for graph in ("permutation", "words-shuffled"):
            problem = _problem(graph=graph, seed=5)
            digest.update(problem.embeddings.tobytes() + problem.graph.edges.tobytes())
            digest.update(repr(problem.labels).encode())
        result = subprocess.run(
            [sys.executable, "-c", script],
            cwd=Path(__file__).parents[2],
            env={**os.environ, "PYTHONHASHSEED": "12345"},
            capture_output=True,
            text=True,
            check=True,
        )
        assert result.stdout.strip() == digest.hexdigest()


class TestGraphs:
    def test_kinds(self):
        permutation = _problem(graph="permutation").graph.adjacency()
        assert (permutation.sum(axis=1) == 1).all()
        regular = _problem(graph="regular", num_edges=66).graph.adjacency()
        assert (regular.sum(axis=0) == 3).all()
        assert (regular.sum(axis=1) == 3).all()
        random = _problem(graph="random", num_edges=67).graph.adjacency()
        assert random.sum() == 67
        assert len(set(random.sum(axis=1).tolist())) > 1
        hubs = _problem(graph="hubs", num_edges=67).graph.adjacency()
        np.testing.assert_array_equal(np.sort(hubs.sum(axis=1))[::-1], zipf_degrees(22, 67))

    def test_words_are_related(self):
        relations = load_word_relations()
        table = set(zip(relations.sources, relations.targets, strict=True))
        problem = _problem(graph="words")
        assert _pairs(problem) <= table
        assert len(_pairs(problem)) == 11
        assert problem.labels is not None
        assert len(set(problem.labels)) == 22

    def test_shuffled_words_keep_no_pair(self):
        for seed in range(5):
            words, shuffled = (_problem(graph=graph, seed=seed) for graph in WORDS)
            assert shuffled.labels == words.labels
            np.testing.assert_array_equal(shuffled.embeddings, words.embeddings)
            assert not _pairs(shuffled) & _pairs(words)
            for end in (0, 1):
                assert {pair[end] for pair in _pairs(shuffled)} == {pair[end] for pair in _pairs(words)}

    def test_whole_table_of_words(self):
        size = len(load_word_relations())
        assert len(_pairs(_problem(graph="words", num_items=2 * size))) == size

    def test_file(self, tmp_path):
        path = tmp_path / "edges.csv"
        path.write_text("source,target\n4,0\n1,2\n")
        first, other = (_problem(graph=str(path), num_edges=2, seed=seed) for seed in (0, 1))
        assert first.graph.num_items == 22
        assert first.graph.edges.tolist() == other.graph.edges.tolist() == [[1, 2], [4, 0]]
        assert not np.array_equal(first.embeddings, other.embeddings)
        path.write_text("4,1\n")
        os.utime(path, ns=(0, 0))
        assert _problem(graph=str(path), num_edges=1).graph.edges.tolist() == [[4, 1]]


class TestEmbeddings:
    @pytest.mark.parametrize("embedding", EMBEDDINGS)
    def test_unit_norm_float64_read_only(self, embedding):
        if embedding.startswith("minilm") and not minilm_available():
            pytest.skip("MiniLM's wheel is not installed; `make models` does")
        problem = _problem(embedding=embedding, d_model=384 if embedding == "minilm" else 23)
        assert problem.embeddings.dtype == np.float64
        assert not problem.embeddings.flags.writeable
        np.testing.assert_allclose(np.linalg.norm(problem.embeddings, axis=1), 1, rtol=1e-14)
        assert (problem.labels is not None) == embedding.startswith("minilm")

    @needs_minilm
    @pytest.mark.parametrize("graph", ["random", *WORDS])
    def test_minilm_vectors_belong_to_the_labels(self, graph):
        rows = minilm_word_rows()
        problems = [_problem(graph=graph, embedding=name) for name in ("minilm-pca", "minilm-pca-whitened")]
        for name, problem in zip(("minilm-pca", "minilm-pca-whitened"), problems, strict=True):
            assert problem.labels is not None
            assert len(set(problem.labels)) == 22
            assert problem.labels == problems[0].labels
            expected = minilm_vectors(name, 23)[[rows[label] for label in problem.labels]]
            np.testing.assert_array_equal(problem.embeddings, expected)

    def test_words_with_drawn_embeddings_keep_their_labels(self):
        assert _problem(graph="words").labels is not None

    def test_file(self, tmp_path):
        table = np.random.default_rng(0).standard_normal((22, 5))
        np.save(tmp_path / "items.npy", table)
        problem = _problem(embedding=str(tmp_path / "items.npy"), d_model=5)
        np.testing.assert_allclose(
            problem.embeddings, table / np.linalg.norm(table, axis=1)[:, None], rtol=1e-14
        )
        assert problem.labels is None
        save_file({"a": table, "b": table[:, ::-1].copy()}, tmp_path / "items.safetensors")
        named = _problem(embedding=f"{tmp_path / 'items.safetensors'}::b", d_model=5)
        np.testing.assert_allclose(named.embeddings, problem.embeddings[:, ::-1], rtol=1e-14)

    def test_large_file_is_sampled(self, tmp_path):
        table = np.eye(29)
        np.save(tmp_path / "items.npy", table)
        first, again, other = (
            _problem(embedding=str(tmp_path / "items.npy"), d_model=29, seed=seed).embeddings
            for seed in (0, 0, 1)
        )
        np.testing.assert_array_equal(first, again)
        assert not np.array_equal(first, other)
        assert len(set(first.argmax(axis=1).tolist())) == 22


class TestRefusals:
    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"num_items": 0, "num_edges": 0}, "num_items: expected a positive integer, got 0"),
            ({"num_edges": -1}, "num_edges: expected a positive integer, got -1"),
            ({"d_model": 0}, "d_model: expected a positive integer, got 0"),
            ({"seed": -1}, "seed: expected a non-negative integer, got -1"),
            ({"num_edges": 21}, "num_edges: expected num_items = 22 for graph 'permutation', got 21"),
            ({"num_items": 1, "num_edges": 1}, "num_items: expected at least 2 for graph 'permutation'"),
            ({"graph": "regular", "num_edges": 23}, "num_edges: expected a multiple of num_items = 22 .*23"),
            ({"graph": "regular", "num_edges": 484}, "num_edges: .* up to 462 for graph 'regular', got 484"),
            ({"graph": "random", "num_edges": 463}, "num_edges: expected at most .* = 462, got 463"),
            ({"graph": "words", "num_edges": 10}, "num_items: expected 2 .* 20 for graph 'words', got 22"),
            ({"graph": "words", "num_items": 1066}, "num_edges: expected 1 to 532 .*'words', got 533"),
            ({"graph": "words-shuffled", "num_items": 2}, "num_edges: expected 2 to 532 .*, got 1"),
            ({"graph": "star", "num_edges": 5}, "graph: expected one of permutation, .*, got 'star'"),
            ({"embedding": "gausian"}, "embedding: expected one of gaussian, .*, got 'gausian'"),
            (
                {"embedding": "orthonormal", "d_model": 21},
                "num_items: expected at most d_model = 21 .*, got 22",
            ),
        ],
    )
    def test_value_error(self, changes, message):
        with pytest.raises(ValueError, match=message):
            _problem(**changes)

    @needs_minilm
    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"embedding": "minilm"}, "d_model: expected 384 for embedding 'minilm', got 23"),
            ({"embedding": "minilm-pca", "d_model": 385}, "d_model: expected an integer from 1 to 384"),
            ({"embedding": "minilm-pca", "num_items": 30011}, "num_items: expected at most the .* words"),
        ],
    )
    def test_minilm(self, changes, message):
        with pytest.raises(ValueError, match=message):
            _problem(**changes)

    def test_embedding_file(self, tmp_path):
        path = tmp_path / "items.npy"
        np.save(path, np.ones((23, 5)))
        with pytest.raises(ValueError, match=r"d_model: expected the width 5 of .*items\.npy', got 4"):
            _problem(embedding=str(path), d_model=4)
        with pytest.raises(ValueError, match=r"num_items: expected at most the 23 rows of .*, got 24"):
            _problem(embedding=str(path), d_model=5, num_items=24)
        with pytest.raises(ValueError, match=r"embedding: .*whose rows are not those words"):
            _problem(embedding=str(path), d_model=5, graph="words")
        (tmp_path / "edges.csv").write_text("0,1\n")
        with pytest.raises(
            ValueError, match=r"num_items: expected the 23 rows .*edges\.csv' counts them, got 22"
        ):
            _problem(embedding=str(path), d_model=5, graph=str(tmp_path / "edges.csv"))
        np.save(path, np.zeros((22, 5)))
        os.utime(path, ns=(0, 0))
        with pytest.raises(ValueError, match=r"embedding: .*rows of positive norm"):
            _problem(embedding=str(path), d_model=5)

    def test_graph_file(self, tmp_path):
        path = tmp_path / "edges.csv"
        path.write_text("0,22\n1,2\n")
        with pytest.raises(ValueError, match=r"num_items: expected at least 23 for the items of .*, got 22"):
            _problem(graph=str(path), num_edges=2)
        with pytest.raises(ValueError, match=r"num_edges: expected the 2 edges of .*, got 3"):
            _problem(graph=str(path), num_items=23, num_edges=3)

    def test_missing_files(self):
        with pytest.raises(FileNotFoundError, match=r"embedding: expected a file, got 'none\.npy'"):
            _problem(embedding="none.npy")
        with pytest.raises(FileNotFoundError, match=r"graph: expected a file of edges, got 'none\.csv'"):
            _problem(graph="none.csv")

    def test_check_draws_nothing_but_says_the_same(self):
        with pytest.raises(ValueError, match="num_edges: expected num_items"):
            check_problem(num_items=22, num_edges=3, d_model=5, embedding="gaussian", graph="permutation")
        check_problem(num_items=22, num_edges=22, d_model=5, embedding="gaussian", graph="permutation")


class TestSizes:
    def test_num_edges_of(self, tmp_path):
        (tmp_path / "edges.csv").write_text("0,1\n1,2\n")
        assert num_edges_of("permutation", 22) == 22
        assert num_edges_of("regular", 22, 3) == num_edges_of("random", 22, 3) == 66
        assert num_edges_of("regular", 22) == 22
        assert num_edges_of("words", 22) == num_edges_of("words-shuffled", 22) == 11
        assert num_edges_of(str(tmp_path / "edges.csv"), 22) == 2

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("words", 21), "num_items: expected an even number for graph 'words', got 21"),
            (("permutation", 22, 2), "degree: expected none for graph 'permutation', got 2"),
            (("regular", 22, 0), "degree: expected a positive integer, got 0"),
            (("permutation", 0), "num_items: expected a positive integer, got 0"),
            (("star", 22), "graph: expected one of permutation"),
        ],
    )
    def test_num_edges_of_refuses(self, arguments, message):
        with pytest.raises(ValueError, match=message):
            num_edges_of(*arguments)

    def test_log2_family_size(self):
        assert log2_family_size("permutation", 22, 22) == log2_num_permutation_graphs(22)
        assert log2_family_size("regular", 22, 66) == log2_num_regular_graphs(22, 3)
        assert log2_family_size("random", 22, 66) == log2_num_random_graphs(22, 66)
        assert log2_family_size("hubs", 22, 66) == log2_num_hub_graphs(22, 66)
        for graph in (*WORDS, "edges.csv"):
            assert log2_family_size(graph, 22, 11) is None
        with pytest.raises(ValueError, match="num_edges: expected num_items = 22"):
            log2_family_size("permutation", 22, 23)

    def test_short_name(self):
        assert short_name("minilm-pca") == "minilm-pca"
        assert short_name("some/where/items.safetensors::table") == "items"
        assert short_name("some/where/edges.csv") == "edges"
