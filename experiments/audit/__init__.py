"""Capacity audit of real layers: how much relation a layer's heads could hold, and how much of it attention shows.

    python -m experiments run audit                     # MiniLM and SmolLM2, verses of `make text`
    python -m experiments run audit --text PATH         # any UTF-8 file instead
    python -m experiments run audit --models DIR        # a folder with a BERT, Llama or GPT-2

Three questions about every layer of ``h`` heads of ``d_k`` dimensions on a stream of width ``d``:

1. *How much of its rank does a head use?* Singular values of ``W_q^T W_k`` (at most ``d_k`` of them), as effective
   rank (exponential of the entropy of their shares) and stable rank (squared Frobenius over squared spectral norm),
   beside random weights of the same shape. Biases are left out, and so is RoPE: with it the matrix stands for two
   tokens at the same position, and every other distance has another one of the same rank.
2. *What could the layer hold?* Edges of a random graph over its items that h heads hold by the fixed even partition
   (a prediction for isotropic Gaussian items; `theory.bounds.partition_max_edges`), at the stream's width d and, since
   real embeddings are far from isotropic, at the effective rank of the embedding table.
3. *What would attention's graph need?* For every head and token of a text, the token attended most: distinct edges
   between *types* (ids), over the types of the text; without edges from or to special tokens ([CLS], [SEP]) and from a
   type to itself. ``D_K`` that a random graph of as many edges on as many items would need, against the layer's. That
   is an upper estimate twice over (real relations share structure, and heads that go by position need no edge at all)
   and says nothing of what depends on context. So it is also measured how far such a graph is fixed at all: edges of
   one half of the contexts, met again in the other half, are attended most how often, against a token of the same
   context at random.

What was expected, written down before the runs that test it (`experiments.audit.records` judges):

1. Effective rank is below that of random weights of the same shape, on average over the heads of every layer.
2. No layer could hold a random permutation of its own vocabulary: less than one edge for every item.
3. The graph of the whole text needs more than the layer has, in most layers of every model.
4. It is not a fixed graph: an edge met again is attended most more than three times as often as a token at random, but
   in less than half of the cases, in most layers.
"""
