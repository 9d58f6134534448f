// The formulas of `theory.bounds` once more, for the page's sliders. Tests compare each with Python over a grid; the
// page itself does so for the values that it carries. `tables` has w2(k), k = 0 .. d, for d of at most 32, where Python
// takes it from random matrices; all else is computed here. Numbers are float64.
"use strict";

const makeTheory = (tables) => {
  const SQRT_PI = Math.sqrt(Math.PI);

  // exp(x^2) erfc(x) for x >= 0: the series of erf up to 2, a continued fraction beyond.
  const erfcx = (x) => {
    if (x < 2) {
      let term = x, sum = x;
      for (let n = 1; n < 200 && Math.abs(term) > 1e-18 * Math.abs(sum); n++) {
        term *= (2 * x * x) / (2 * n + 1);
        sum += term;
      }
      return Math.exp(x * x) - (2 / SQRT_PI) * sum; // exp(x^2) erf(x) = 2 / sqrt(pi) sum (2 x^2)^n x / (2 n + 1)!!
    }
    let fraction = x;
    for (let n = 120; n > 0; n--) fraction = x + n / 2 / fraction;
    return 1 / (SQRT_PI * fraction);
  };

  const moments = (t) => {
    const density = Math.exp(-0.5 * t * t) / Math.sqrt(2 * Math.PI);
    const outside = Math.sqrt(Math.PI / 2) * erfcx(t / Math.SQRT2);
    const inside = 1 - density * outside;
    return { outside, inside, below: t * inside + density, above: 1 - t * outside };
  };

  // n(p, q) = min over tau of p E[(tau - z)_+^2] + q E[(z - tau)_+^2]; theory.bounds.width_requirement.
  const widthRequirement = (p, q) => {
    const rare = Math.min(p, q), common = Math.max(p, q);
    if (!(rare > 0)) return 0;
    const ratio = Math.log(rare) - Math.log(common);
    let low = 0, high = 64, t = Math.sqrt(2 * Math.log1p(Math.exp(Math.min(-ratio, 700))));
    let at = moments(t);
    for (let turn = 0; turn < 100; turn++) {
      const value = Math.log(at.above / at.below) - 0.5 * t * t - 0.5 * Math.log(2 * Math.PI) - ratio;
      if (value >= 0) low = t; else high = t;
      let step = t + value / (at.outside / at.above + at.inside / at.below);
      if (!(step >= low && step <= high)) step = 0.5 * (low + high);
      const done = Math.abs(step - t) <= 1e-13 * (1 + t);
      t = step;
      at = moments(t);
      if (done) break;
    }
    return rare * (at.inside + (at.below * at.outside) / at.above);
  };

  const asymptoticWidth = (d) => {
    const out = new Float64Array(d + 1);
    for (let k = 1; k < d; k++) {
      let low = 0, high = Math.PI / 2;
      for (let turn = 0; turn < 60; turn++) {
        const a = 0.5 * (low + high);
        if ((2 / Math.PI) * (a - Math.sin(a) * Math.cos(a)) < k / d) low = a; else high = a;
      }
      const a = 0.5 * (low + high);
      const leading = (2 * a - Math.sin(4 * a) / 2) / Math.PI;
      const correction = Math.sin(a) ** 2 + (2 * a * Math.cos(2 * a) - Math.sin(2 * a)) / Math.PI;
      out[k] = d * d * leading + d * correction;
    }
    out[d] = d * d;
    return out;
  };

  const cache = new Map();
  const widthTable = (d) => {
    if (!cache.has(d)) {
      if (d <= 32) {
        if (!tables[d]) throw new RangeError(`d_model: expected one of ${Object.keys(tables)} or more than 32, got ${d}`);
        cache.set(d, tables[d]);
      } else {
        const table = asymptoticWidth(d), small = asymptoticWidth(32);
        for (let k = 0; k <= 32; k++) table[k] += Math.cbrt(d / 32) * (tables[32][k] - small[k]);
        cache.set(d, table);
      }
    }
    return cache.get(d);
  };

  // d_k with w2(d_k) = width, linear between integers; infinite where even d is not enough.
  const headDim = (d, width) => {
    const table = widthTable(d);
    if (width > table[d]) return Infinity;
    let low = 0, high = d;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (table[middle] <= width) low = middle; else high = middle;
    }
    return low + (width - table[low]) / (table[high] - table[low]);
  };

  const share = (items, edges, heads) => widthRequirement(edges / heads, items * items - edges);

  const partitionTotalKeyDim = (items, edges, d, heads) => heads * headDim(d, share(items, edges, heads));

  const parameterCountTotalKeyDim = (items, edges, d, heads) => {
    const needed = share(items, edges, heads);
    return needed <= d * d ? (heads * needed) / (d + Math.sqrt(d * d - needed)) : Infinity;
  };

  const log2Factorial = (n) => {
    const x = n + 1; // ln Gamma(x) by Stirling's series, x of at least 21
    const series = 1 / (12 * x) - 1 / (360 * x ** 3) + 1 / (1260 * x ** 5) - 1 / (1680 * x ** 7);
    return ((x - 0.5) * Math.log(x) - x + 0.5 * Math.log(2 * Math.PI) + series) / Math.LN2;
  };

  // Bits that name a permutation without fixed points.
  const log2NumPermutationGraphs = (items) => {
    if (items >= 20) return log2Factorial(items) - Math.LOG2E;
    let previous = 1, count = 0;
    for (let n = 2; n <= items; n++) [previous, count] = [count, (n - 1) * (count + previous)];
    return Math.log2(count);
  };

  const countingBound = (bits, d, precision) => Math.max((bits / precision - 1) / (2 * d), 0);

  const log2SignPatterns = (polynomials, variables) => {
    const p = Math.min(variables, polynomials);
    return Math.min(polynomials, p * (Math.log2(8 * Math.E) + Math.log2(polynomials) - Math.log2(p)));
  };

  const warrenBound = (bits, items, d, heads) => {
    const enough = (k) =>
      bits <= (1 + 1e-12) * log2SignPatterns(heads * items * items, heads * k * (2 * d - k) + 1);
    let low = 0, high = d;
    while (high - low > 1) {
      const middle = Math.max(Math.floor((low + high) / 2), 1);
      if (enough(middle)) high = middle; else low = middle;
    }
    return enough(high) ? heads * high : Infinity;
  };

  const oneDimensionalCap = (heads) => 2 * heads;

  // All of them for a permutation of `items` and weights of 32 bits; `theorem` is the largest lower bound.
  const bounds = (items, d, heads) => {
    const bits = log2NumPermutationGraphs(items);
    const counting = countingBound(bits, d, 32), warren = warrenBound(bits, items, d, heads);
    const cap = oneDimensionalCap(heads) < items ? 2 * heads : heads;
    return {
      counting, warren, cap, theorem: Math.max(counting, warren, cap),
      partition: partitionTotalKeyDim(items, items, d, heads),
      parameters: parameterCountTotalKeyDim(items, items, d, heads),
    };
  };

  return {
    bounds, countingBound, erfcx, headDim, log2NumPermutationGraphs, oneDimensionalCap, parameterCountTotalKeyDim,
    partitionTotalKeyDim, warrenBound, widthRequirement, widthTable,
  };
};

if (typeof module !== "undefined") module.exports = { makeTheory };
