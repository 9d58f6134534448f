import importlib.util

import numpy as np
import pytest
from safetensors.numpy import save_file

from theory import embeddings
from theory.embeddings import (
    gaussian_unit_norm,
    load_embeddings,
    minilm_available,
    minilm_tokens,
    minilm_vectors,
    minilm_word_rows,
    orthonormal,
    principal_components,
    project,
    unit_norm,
)

needs_minilm = pytest.mark.skipif(
    not minilm_available(), reason="MiniLM's wheel is not installed; `make models` does"
)


def _mean_absolute_cosine(vectors: np.ndarray, size: int = 1009) -> float:
    rows = np.random.default_rng(0).choice(len(vectors), size=size, replace=False)
    cosines = np.abs(vectors[rows] @ vectors[rows].T)
    return float((cosines.sum() - size) / (size * (size - 1)))


class TestRandomEmbeddings:
    def test_gaussian_rows_are_isotropic_directions(self):
        vectors = gaussian_unit_norm(20011, 7, np.random.default_rng(0))
        assert vectors.shape == (20011, 7)
        assert vectors.dtype == np.float64
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-14)
        # A coordinate has variance 1/7; 49 + 7 averages of 20,011 draws stay within 5 standard errors.
        error = 5 / np.sqrt(20011)
        np.testing.assert_allclose(vectors.T @ vectors / 20011, np.eye(7) / 7, atol=error / 7 * np.sqrt(2))
        np.testing.assert_allclose(vectors.mean(axis=0), 0, atol=error / np.sqrt(7))

    def test_gaussian_is_drawn_from_the_generator(self):
        first, second, other = (gaussian_unit_norm(5, 3, np.random.default_rng(seed)) for seed in (1, 1, 2))
        np.testing.assert_array_equal(first, second)
        assert not np.array_equal(first, other)

    @pytest.mark.parametrize(("num_items", "d_model"), [(1, 1), (5, 7), (7, 7)])
    def test_orthonormal(self, num_items, d_model):
        vectors = orthonormal(num_items, d_model, np.random.default_rng(0))
        assert vectors.shape == (num_items, d_model)
        np.testing.assert_allclose(vectors @ vectors.T, np.eye(num_items), atol=1e-14)

    def test_orthonormal_signs_are_uniform(self):
        # Without fixing QR's signs the first coordinate of the first row would always be negative.
        rng = np.random.default_rng(0)
        positive = sum(orthonormal(2, 3, rng)[0, 0] > 0 for _ in range(400))
        assert abs(positive - 200) < 5 * 10

    def test_refuses(self):
        rng = np.random.default_rng(0)
        with pytest.raises(ValueError, match=r"num_items: expected at most d_model = 5 .*, got 6"):
            orthonormal(6, 5, rng)
        with pytest.raises(ValueError, match="d_model: expected a positive integer, got 0"):
            gaussian_unit_norm(3, 0, rng)
        with pytest.raises(ValueError, match="num_items: expected a positive integer, got 0"):
            orthonormal(0, 3, rng)

    def test_unit_norm_refuses_zero_row(self):
        with pytest.raises(ValueError, match="rows of positive norm, got zero in row 1"):
            unit_norm(np.array([[1.0, 2.0], [0.0, 0.0]]))


class TestProjection:
    def _table(self) -> np.ndarray:
        rng = np.random.default_rng(0)
        return rng.standard_normal((211, 11)) @ rng.standard_normal((11, 11)) + 3.0

    def test_components_are_uncorrelated_and_ordered(self):
        table = self._table()
        coordinates = principal_components(table, 5, whiten=False)
        covariance = coordinates.T @ coordinates / 211
        variances = np.diagonal(covariance)
        assert (np.diff(variances) < 0).all()
        np.testing.assert_allclose(covariance, np.diag(variances), atol=1e-12 * variances[0])
        np.testing.assert_allclose(
            variances, np.sort(np.linalg.eigvalsh(np.cov(table.T, bias=True)))[::-1][:5], rtol=1e-10
        )

    def test_all_components_keep_distances(self):
        table = self._table()
        coordinates = principal_components(table, 11, whiten=False)
        distances = [np.linalg.norm(x[:, None] - x, axis=-1) for x in (table[:17], coordinates[:17])]
        np.testing.assert_allclose(*distances, atol=1e-12)

    def test_whitened_covariance_is_the_identity(self):
        coordinates = principal_components(self._table(), 7, whiten=True)
        np.testing.assert_allclose(coordinates.T @ coordinates / 211, np.eye(7), atol=1e-11)

    def test_sign_is_fixed_by_the_direction(self):
        # One strong direction, (3, -4)/5 up to sign: its entry of largest size is made positive.
        table = np.outer([1.0, -1.0, 2.0, -2.0], [3.0, -4.0])
        np.testing.assert_allclose(principal_components(table, 1, whiten=False)[:, 0], [-5, 5, -10, 10])

    def test_projection_has_unit_norm(self):
        table = self._table()
        for whiten in (False, True):
            vectors = project(table, 3, whiten=whiten)
            np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-14)
            np.testing.assert_allclose(
                vectors, unit_norm(principal_components(table, 3, whiten=whiten)), rtol=1e-14
            )

    def test_refuses(self):
        table = self._table()
        for d_model in (0, 12):
            with pytest.raises(
                ValueError, match=rf"d_model: expected an integer from 1 to .* 11, got {d_model}"
            ):
                project(table, d_model, whiten=False)
        flat = np.concatenate([table, np.ones((211, 1))], axis=1)
        with pytest.raises(ValueError, match=r"d_model: expected at most the rank .*, got 12"):
            project(flat, 12, whiten=True)


@needs_minilm
class TestMiniLM:
    def test_table_has_whole_words(self):
        table = minilm_tokens()
        assert table.vectors.shape == (len(table.words), 384)
        assert len(set(table.words)) == len(table.words) > 20_000
        assert all(word.isascii() and word.isalpha() and word.islower() for word in table.words)
        assert {"paris", "the", "mice"} <= set(table.words)
        assert not {"[CLS]", "##ing", "1990", "a", "café"} & set(table.words)
        assert not table.vectors.flags.writeable

    def test_vectors_belong_to_their_words(self):
        rows, vectors = minilm_word_rows(), minilm_vectors("minilm", 384)
        words = ["france", "germany", "walked", "jumped"]
        cosines = np.array([[vectors[rows[a]] @ vectors[rows[b]] for a in words] for b in words])
        nearest_other = (cosines - 2 * np.eye(4)).argmax(axis=1)
        assert nearest_other.tolist() == [1, 0, 3, 2]

    def test_raw_vectors_are_scaled_only(self):
        table, vectors = minilm_tokens().vectors, minilm_vectors("minilm", 384)
        norms = np.linalg.norm(table, axis=1)
        assert norms.max() / norms.min() > 2
        np.testing.assert_allclose((vectors * norms[:, None])[::97], table[::97], rtol=1e-12)

    def test_whitening_removes_most_of_the_anisotropy(self):
        gaussian = np.sqrt(2 / (np.pi * 23))
        projected, whitened = (
            _mean_absolute_cosine(minilm_vectors(name, 23)) for name in ("minilm-pca", "minilm-pca-whitened")
        )
        # Half of the projection's departure from Gaussian directions, at the very least, goes by whitening.
        assert projected > 1.04 * gaussian
        assert abs(whitened - gaussian) < 0.5 * (projected - gaussian)
        assert _mean_absolute_cosine(minilm_vectors("minilm", 384)) > 1.2 * np.sqrt(2 / (np.pi * 384))

    def test_whitened_table_has_identity_covariance(self):
        table = minilm_tokens().vectors
        coordinates = principal_components(table, 23, whiten=True)
        np.testing.assert_allclose(coordinates.T @ coordinates / len(table), np.eye(23), atol=1e-10)

    def test_vectors_are_cached_and_read_only(self):
        vectors = minilm_vectors("minilm-pca", 23)
        assert minilm_vectors("minilm-pca", 23) is vectors
        assert not vectors.flags.writeable

    def test_refuses(self):
        with pytest.raises(ValueError, match="d_model: expected 384 for embedding 'minilm', got 24"):
            minilm_vectors("minilm", 24)
        with pytest.raises(ValueError, match=r"d_model: expected an integer from 1 to 384 .*, got 385"):
            minilm_vectors("minilm-pca", 385)
        with pytest.raises(ValueError, match=r"embedding: expected one of minilm, .*, got 'bert'"):
            minilm_vectors("bert", 24)


class TestMiniLMWheel:
    def test_missing(self, monkeypatch):
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
        assert not minilm_available()
        with pytest.raises(FileNotFoundError, match=r"MiniLM's wheel .* run `make models`"):
            minilm_tokens.__wrapped__()

    def test_altered(self, monkeypatch, tmp_path):
        (tmp_path / "vocab.txt").write_text("the\n")
        (tmp_path / "model.safetensors").write_bytes(b"altered")
        monkeypatch.setattr(embeddings, "_minilm_folder", lambda: tmp_path)
        assert minilm_available()
        with pytest.raises(ValueError, match=r"with sha256 53aa5117.*, got .*run `make models`"):
            minilm_tokens.__wrapped__()


class TestLoadEmbeddings:
    MATRIX = np.arange(15, dtype=np.float32).reshape(5, 3)

    def test_npy(self, tmp_path):
        np.save(tmp_path / "items.npy", self.MATRIX)
        vectors = load_embeddings(tmp_path / "items.npy")
        assert vectors.dtype == np.float64
        np.testing.assert_array_equal(vectors, self.MATRIX)

    def test_safetensors(self, tmp_path):
        path = tmp_path / "items.safetensors"
        save_file({"table": self.MATRIX, "bias": np.ones(3, np.float32)}, path)
        np.testing.assert_array_equal(load_embeddings(path), self.MATRIX)
        np.testing.assert_array_equal(load_embeddings(f"{path}::table"), self.MATRIX)

    def test_safetensors_needs_a_name(self, tmp_path):
        path = tmp_path / "items.safetensors"
        save_file({"one": self.MATRIX, "two": 2 * self.MATRIX}, path)
        np.testing.assert_array_equal(load_embeddings(f"{path}::two"), 2 * self.MATRIX)
        with pytest.raises(ValueError, match=r"expected one 2-D tensor .*, got 2; name one as items"):
            load_embeddings(path)
        with pytest.raises(ValueError, match="got 'three'"):
            load_embeddings(f"{path}::three")

    @pytest.mark.parametrize(
        ("array", "message"),
        [
            (np.ones(3), r"array of shape \(m, d\) in .*, got float64, \(3,\)"),
            (np.ones((0, 3)), r"non-empty"),
            (np.ones((2, 3), dtype=complex), "got complex128"),
            (np.array([[1.0, np.nan]]), "expected finite numbers"),
            (np.array([[1.0, np.inf]]), "expected finite numbers"),
            (np.array([["a", "b"]]), "got <U1"),
        ],
    )
    def test_refuses_array(self, tmp_path, array, message):
        np.save(tmp_path / "items.npy", array)
        with pytest.raises(ValueError, match=message):
            load_embeddings(tmp_path / "items.npy")

    def test_never_unpickles(self, tmp_path):
        np.save(tmp_path / "items.npy", np.array([[{}]], dtype=object), allow_pickle=True)
        with pytest.raises(ValueError, match="allow_pickle=False"):
            load_embeddings(tmp_path / "items.npy")

    @pytest.mark.parametrize("name", ["broken.npy", "broken.safetensors", "empty.npy", "empty.safetensors"])
    def test_refuses_broken_file(self, tmp_path, name):
        (tmp_path / name).write_bytes(
            b"" if name.startswith("empty") else b"no such format, whatever it says"
        )
        with pytest.raises(ValueError, match=rf"path: expected a .*{name}"):
            load_embeddings(tmp_path / name)

    def test_refuses_other_kinds_and_missing_files(self, tmp_path):
        with pytest.raises(ValueError, match=r"expected a \.npy or \.safetensors file, got '.*items\.pt'"):
            load_embeddings(tmp_path / "items.pt")
        with pytest.raises(FileNotFoundError, match=r"got '.*items\.npy', which is no file"):
            load_embeddings(tmp_path / "items.npy")
        np.save(tmp_path / "items.npy", self.MATRIX)
        with pytest.raises(ValueError, match=r"expected a tensor name only for .safetensors"):
            load_embeddings(f"{tmp_path / 'items.npy'}::table")
