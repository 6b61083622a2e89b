/* Intra order-preserving maps: what is added to the logarithms of probabilities. */

#ifndef MIXNMATCH_ORDER_H
#define MIXNMATCH_ORDER_H

/* out = x + d(x) for a piecewise-linear d with values at nodes from 0 downwards: `fine` even steps to `low`, then steps
   that are `factor` times as wide; beyond the last node d is constant. */
static void add_deviation(
    const double *x, Size size, double low, Size fine, double factor, const double *values, Size nodes, double *out
) {
    double scale = (double)fine / low, start = (double)fine, end = (double)(nodes - 1);
    for (Size k = 0; k < size; k++) {
        double s = x[k] * scale, wide = start + (s - start) / factor;
        s = s < wide ? s : wide;
        s = s > 0.0 ? s : 0.0; /* also where it is NaN */
        s = s < end ? s : end;
        Size cell = (Size)s < nodes - 2 ? (Size)s : nodes - 2;
        out[k] = (values[cell + 1] - values[cell]) * (s - (double)cell) + values[cell] + x[k];
    }
}

#endif
