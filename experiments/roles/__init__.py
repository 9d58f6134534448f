"""What the heads of really pretrained models do.

    python -m experiments run roles                     # quick: about ten minutes on two cores
    python -m experiments run roles --ud PATH --text PATH --out DIR

Measured for every head of MiniLM-L6 (BERT, 6 x 12) and SmolLM2-135M-Instruct (Llama, 30 x 9, weights quantised to 4
bits), layers and heads counted from 0:

- on a text: shares of attention to the previous and the next token, to itself, to the first token and to delimiters
  ([SEP], full stops and commas), over all tokens; entropy, smoothed by 1e-4 (Clark et al. 2019); confidence, the mean
  of the largest weight, without [SEP] as query or key (Voita et al. 2019); how often the largest weight stands at one
  fixed offset; in a causal model the attention sink;
- on random tokens that are repeated once (causal models): induction and previous-token scores;
- on a treebank: dependencies. Maps between words (to a word the sum over its pieces, from it the mean; Clark et al.
  2019); the prediction is the word attended most, or that attends most, without the word itself. The head, the
  direction and the baseline's fixed offset are chosen on the first half of the sentences and reported on the second,
  with Wilson intervals;
- Jensen-Shannon divergences between all heads, and their map in two dimensions.

The control has random weights in its layers and keeps the embeddings (`experiments.pretrained.random_weights`).
Thresholds of the roles: `experiments.roles.naming`.

Expected before the runs (`experiments.roles.claims` judges it):

1. syntax: a head beats the best offset by 10 points for half of the common relations in MiniLM, a quarter in SmolLM2;
2. control: with random weights that happens for at most one common relation in ten;
3. layers: heads of one layer are nearer to one another than to those of other layers (as Clark et al. found in BERT);
4. groups: heads that share keys and values are nearer still;
5. sinks: half of SmolLM2's heads from layer 2 on give the first token more than half of their attention;
6. induction: SmolLM2 has three induction heads or more (above 0.5), all in layers behind a previous-token head;
7. middle: MiniLM's entropy is lowest in a layer that is neither the first nor the last (as in BERT);
8. separator: in some layer of MiniLM more than half of the attention goes to [SEP] (as in BERT);
9. neighbours: MiniLM has a previous-token and a next-token head, SmolLM2 a previous-token head (shares above 0.5).

What was known before the runs: that MiniLM has heads for some relations, and SmolLM2 induction heads in layers 17 and
18 and a previous-token head in layer 16, from a trial on other sentences.
"""
