/* Histograms of confidences. */

#ifndef MIXNMATCH_BINS_H
#define MIXNMATCH_BINS_H

/* Add samples to sums over bins of equal width: how many there are, their confidences and their outcomes, 0 or 1. */
static void add_to_bins(const double *z, const uint8_t *y, Size n, Size bins, double *sums) {
    double *count = sums, *confidence = sums + bins, *outcome = sums + 2 * bins, scale = (double)bins;
    for (Size i = 0; i < n; i++) {
        double place = z[i] * scale;
        Size cell = place > 0.0 ? (place < scale ? (Size)place : bins - 1) : 0; /* 0 also where it is NaN */
        count[cell] += 1.0;
        confidence[cell] += z[i];
        outcome[cell] += y[i] ? 1.0 : 0.0;
    }
}

#endif
