/* Piecewise linear functions, and what lies between sorted knots; included once for float and for double. */

/* Rounding can put a probability a hair outside [0, 1], and a zero may carry a sign. */
INLINE REAL NAMED(in_unit_interval)(REAL x) {
    x = x < 0 ? -x : x;
    return x < 1 ? x + (REAL)0 : 1;
}

/* A piecewise linear function of every entry in [0, 1]: values[k] + slopes[k] (x - knots[k]) from knot k on. The
   leading bits of a number say between which knots to search. */
FOR_ALL_PROCESSORS static void NAMED(interpolate_into)(
    const REAL *x, Size n, Size shift, const int32_t *first, const int32_t *last, Size n_cells, const double *knots,
    const double *values, const double *slopes, double left, double *out
) {
    for (Size i = 0; i < n; i++) {
        REAL entry = NAMED(in_unit_interval)(x[i]);
        BITS bits;
        memcpy(&bits, &entry, sizeof bits);
        Size cell = (Size)(bits >> shift); /* within the table, unless the entry is NaN */
        cell = cell < 0 ? 0 : cell < n_cells ? cell : n_cells - 1;
        int32_t low = first[cell], high = last[cell];
        double v = entry;
        while (low < high) {
            int32_t middle = (low + high + 1) >> 1;
            if (knots[middle] <= v) low = middle;
            else high = middle - 1;
        }
        out[i] = low < 0 ? left : values[low] + slopes[low] * (v - knots[low]);
    }
}

/* Entries of a column that are searched in step with each other: they wait for memory together. */
#define SEARCHED 64

/* The same with a function for each column, stored end to end, that of column k from offsets[k] on. */
FOR_ALL_PROCESSORS static void NAMED(interpolate_columns_into)(
    const REAL *x, Size n, Size classes, const double *knots, const double *values, const double *slopes,
    const double *left, const int64_t *offsets, double *out
) {
    double v[SEARCHED];
    int64_t k[SEARCHED];
    for (Size start = 0; start < n; start += SEARCHED) {
        Size rows = n - start < SEARCHED ? n - start : SEARCHED;
        for (Size j = 0; j < classes; j++) {
            const REAL *from = x + start * classes + j;
            double *to = out + start * classes + j;
            for (Size i = 0; i < rows; i++) v[i] = NAMED(in_unit_interval)(from[i * classes]), k[i] = offsets[j];
            for (int64_t count = offsets[j + 1] - offsets[j]; count > 1; count -= count / 2) {
                int64_t half = count / 2;
                SIMD()
                for (Size i = 0; i < rows; i++) k[i] += knots[k[i] + half] <= v[i] ? half : 0;
            }
            for (Size i = 0; i < rows; i++) {
                double above = v[i] - knots[k[i]];
                to[i * classes] = above >= 0 ? values[k[i]] + slopes[k[i]] * above : left[j];
            }
        }
    }
}

/* Add entries to the gaps between sorted knots: weight, sum of scores and largest score (where not NULL). */
static void NAMED(add_gaps)(
    const REAL *x, Size n, Size classes, const double *row_weight, Size shift, int64_t base, const int32_t *first,
    const int32_t *last, Size n_cells, const double *knots, Size n_knots, double *weight, double *score_sum,
    double *largest
) {
    for (Size i = 0; i < n; i++) {
        double w = row_weight ? row_weight[i] : 1.0;
        for (Size j = 0; j < classes; j++) {
            REAL entry = x[i * classes + j];
            BITS bits;
            memcpy(&bits, &entry, sizeof bits);
            int64_t cell = entry == 0 ? -base : (int64_t)(bits >> shift) - base; /* a zero may carry a sign */
            int32_t low = 0, high;
            if (cell >= (int64_t)n_cells) low = (int32_t)n_knots;
            else if (cell >= 0) {
                low = first[cell], high = last[cell];
                while (low < high) {
                    int32_t middle = (low + high) >> 1;
                    if (knots[middle] <= entry) low = middle + 1;
                    else high = middle;
                }
            }
            weight[low] += w;
            if (score_sum) score_sum[low] += w * entry;
            if (largest && entry > largest[low]) largest[low] = entry;
        }
    }
}

INLINE double NAMED(log_sum)(const REAL *row, Size classes, double top) {
    double total = 0;
    SIMD(reduction(+ : total))
    for (Size j = 0; j < classes; j++) total += exp_d((double)row[j] - top);
    return log(total);
}

/* Add the weight of all entries of softmax(x) but the labels' to the gaps between knots, whose logarithms are known in
   cells of equal width; rows in which rounding decides are left out and marked. The last cell takes the label. */
FOR_ALL_PROCESSORS static void NAMED(add_gaps_of_logits)(
    const REAL *x, const Index *y, Size n, Size classes, const double *row_weight, const double *logs, Size n_logs,
    double low, double scale, const int32_t *first, const int32_t *last, Size n_cells, double doubt, int32_t *cells,
    int32_t *searched, double *in_cell, double *weight, uint8_t *unsure
) {
    for (Size i = 0; i < n; i++) {
        const REAL *row = x + i * classes;
        double top = NAMED(row_max)(row, classes), total = NAMED(log_sum)(row, classes, top);
        SIMD()
        for (Size j = 0; j < classes; j++) {
            double v = (((double)row[j] - top) - total - low) * scale + 1.0;
            v = v > 0 ? v : 0;
            cells[j] = (int32_t)(v < (double)n_cells - 1 ? v : (double)n_cells - 1);
        }
        cells[y[i]] = (int32_t)n_cells;
        /* Most entries are in cells without knots: nothing here branches on them. */
        Size count = 0;
        for (Size j = 0; j < classes; j++) {
            searched[count] = (int32_t)j;
            count += first[cells[j]] != last[cells[j]];
        }
        int sure = 1;
        for (Size k = 0; k < count; k++) {
            double v = ((double)row[searched[k]] - top) - total;
            int32_t a = first[cells[searched[k]]], b = last[cells[searched[k]]];
            while (a < b) {
                int32_t middle = (a + b) >> 1;
                if (logs[middle] <= v) a = middle + 1;
                else b = middle;
            }
            int near = (a > 0 && v - logs[a - 1] < doubt) || (a < (int32_t)n_logs && logs[a] - v < doubt);
            if (near || (v < low && logs[0] < low)) sure = 0;
            searched[k] = a;
        }
        unsure[i] = !sure;
        if (!sure) continue;
        double w = row_weight ? row_weight[i] : 1.0;
        for (Size j = 0; j < classes; j++) in_cell[cells[j]] += w;
        for (Size k = 0; k < count; k++) weight[searched[k]] += w;
    }
}
