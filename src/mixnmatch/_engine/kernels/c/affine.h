/* Log-probabilities of rows, and maps with a slope and an intercept for each class; included once for float and for
   double. */

/* Up to LANES rows lying on their side, less the logarithms of the sums of their exponentials. */
INLINE void NAMED(load_log_softmax)(const REAL *from, Size rows, Size classes, REAL u[FEW][LANES]) {
    REAL top[LANES], sum[LANES];
    NAMED(load_lanes)(from, rows, classes, u, top);
    FOR_LANES sum[r] = 0;
    FOR_CLASSES FOR_LANES sum[r] += EXP(u[j][r]);
    NAMED(logarithms)(sum, LANES);
    FOR_CLASSES FOR_LANES u[j][r] -= sum[r];
}

INLINE void NAMED(few_log_softmax_into)(const REAL *x, Size n, Size classes, REAL *out) {
    REAL u[FEW][LANES];
    for (Size i = 0; i < n; i += LANES) {
        Size rows = n - i < LANES ? n - i : LANES;
        NAMED(load_log_softmax)(x + i * classes, rows, classes, u);
        FOR_CLASSES {
            for (Size r = 0; r < rows; r++) out[(i + r) * classes + j] = u[j][r];
        }
    }
}

FOR_ALL_PROCESSORS static void NAMED(log_softmax_into)(const REAL *x, Size n, Size classes, REAL *out) {
    if (classes <= FEW) {
        NAMED(few_log_softmax_into)(x, n, classes, out);
        return;
    }
    REAL top[TOGETHER], total[TOGETHER];
    for (Size i = 0, rows; i < n; i += rows) {
        rows = n - i < ROWS_TOGETHER(classes) ? n - i : ROWS_TOGETHER(classes);
        NAMED(tops_and_totals)(x + i * classes, rows, classes, top, total);
        FOR_ROWS {
            const REAL *row = x + (i + r) * classes;
            SIMD()
            for (Size j = 0; j < classes; j++) out[(i + r) * classes + j] = (row[j] - top[r]) - total[r];
        }
    }
}

INLINE void NAMED(few_affine_softmax_into)(
    const REAL *x, Size n, Size classes, const REAL *weight, const REAL *intercept, REAL *out
) {
    REAL u[FEW][LANES], top[LANES], sum[LANES];
    for (Size i = 0; i < n; i += LANES) {
        Size rows = n - i < LANES ? n - i : LANES;
        REAL *to = out + i * classes;
        if (weight) NAMED(load_log_softmax)(x + i * classes, rows, classes, u);
        else NAMED(load_lanes)(x + i * classes, rows, classes, u, top);
        FOR_LANES top[r] = -INFINITY, sum[r] = 0;
        FOR_CLASSES FOR_LANES {
            u[j][r] = (weight ? weight[j] : 1) * u[j][r] + intercept[j];
            top[r] = u[j][r] > top[r] ? u[j][r] : top[r];
        }
        FOR_CLASSES FOR_LANES {
            u[j][r] = EXP(u[j][r] - top[r]);
            sum[r] += u[j][r];
        }
        FOR_LANES sum[r] = 1 / sum[r];
        FOR_CLASSES FOR_LANES u[j][r] *= sum[r];
        FOR_CLASSES {
            for (Size r = 0; r < rows; r++) to[r * classes + j] = u[j][r] > TINY ? u[j][r] : TINY;
        }
    }
}

/* to = weight ((x - top) - total) + intercept, or without `weight` x + intercept; return the largest. */
INLINE REAL NAMED(affine_row)(
    const REAL *x, Size classes, const REAL *weight, const REAL *intercept, REAL top, REAL total, REAL *to
) {
    REAL lanes[WIDTH], most = -INFINITY;
    FOR_WIDTH lanes[r] = -INFINITY;
    for (Size at = 0; at < classes; at += WIDTH) {
        Size j = at + WIDTH <= classes ? at : classes - WIDTH; /* some entries twice */
        SIMD()
        FOR_WIDTH {
            to[j + r] = (weight ? weight[j + r] * ((x[j + r] - top) - total) : x[j + r]) + intercept[j + r];
            lanes[r] = to[j + r] > lanes[r] ? to[j + r] : lanes[r];
        }
    }
    SIMD(reduction(max : most))
    FOR_WIDTH most = lanes[r] > most ? lanes[r] : most;
    return most;
}

/* out = softmax(weight * log_softmax(x) + intercept), with a number of each for every class, or, without `weight`,
   softmax(x + intercept); no entry below the smallest normal number. */
FOR_ALL_PROCESSORS static void NAMED(affine_softmax_into)(
    const REAL *x, Size n, Size classes, const REAL *weight, const REAL *intercept, REAL *out
) {
    if (classes <= FEW) {
        NAMED(few_affine_softmax_into)(x, n, classes, weight, intercept, out);
        return;
    }
    REAL top[TOGETHER] = {0}, total[TOGETHER] = {0}, tail[TOGETHER][WIDTH];
    for (Size i = 0, rows; i < n; i += rows) {
        rows = n - i < ROWS_TOGETHER(classes) ? n - i : ROWS_TOGETHER(classes);
        const REAL *from = x + i * classes;
        REAL *to = out + i * classes;
        if (weight) NAMED(tops_and_totals)(from, rows, classes, top, total);
        FOR_ROWS {
            const REAL *row = from + r * classes;
            REAL *into = to + r * classes;
            top[r] = weight ? NAMED(affine_row)(row, classes, weight, intercept, top[r], total[r], into)
                            : NAMED(affine_row)(row, classes, NULL, intercept, 0, 0, into);
        }
        FOR_ROWS total[r] = NAMED(exp_row)(to + r * classes, classes, 1, top[r], to + r * classes, tail[r]);
        FOR_ROWS total[r] = 1 / total[r];
        FOR_ROWS {
            REAL *into = to + r * classes;
            NAMED(scale_row)(into, classes, tail[r], into, 0, total[r], 0, 0, 0);
        }
    }
}
