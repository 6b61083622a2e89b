/* Kernels that read rows of float or double; included once for each, with REAL and the suffix of its functions.

   Every function takes n rows of `classes` entries, one after another. Results of a row depend on the row alone. */

#define PASTE_(name, suffix) name##_##suffix
#define PASTE(name, suffix) PASTE_(name, suffix)
#define NAMED(name) PASTE(name, SUFFIX)
#define EXP NAMED(exp)

#include "winners.h"
#include "lanes.h"

FOR_ALL_PROCESSORS static void NAMED(maxima)(const REAL *x, Size n, Size classes, REAL *out) {
    for (Size i = 0; i < n; i++) out[i] = NAMED(row_max)(x + i * classes, classes);
}

/* Sum of each row, its entries added one after the other: what adding up columns gives, to the last bit. */
static void NAMED(sums)(const REAL *x, Size n, Size classes, REAL *out) {
    for (Size i = 0; i < n; i++) {
        const REAL *row = x + i * classes;
        REAL sum = row[0];
        for (Size j = 1; j < classes; j++) sum += row[j];
        out[i] = sum;
    }
}

#include "extremes.h"

/* out = x less the largest entry of its row. */
FOR_ALL_PROCESSORS static void NAMED(leads_into)(const REAL *x, Size n, Size classes, double *out) {
    for (Size i = 0; i < n; i++) {
        const REAL *row = x + i * classes;
        double top = NAMED(row_max)(row, classes);
        SIMD()
        for (Size j = 0; j < classes; j++) out[i * classes + j] = (double)row[j] - top;
    }
}

FOR_ALL_PROCESSORS static void NAMED(winners)(const REAL *x, Size n, Size classes, Index *out) {
    for (Size i = 0; i < n; i++) out[i] = NAMED(row_winner)(x + i * classes, classes);
}

/* Rows of fewer classes than a vector holds are worked on side by side, LANES at a time. */
#define LANES 16
#define FEW (WIDTH - 1)
#define FOR_LANES for (Size r = 0; r < LANES; r++)
#define FOR_CLASSES for (Size j = 0; j < classes; j++)

INLINE Size NAMED(keep_winner)(const REAL *x, Size classes, REAL *out) {
    Size winner = NAMED(row_winner)(x, classes), now = NAMED(row_winner)(out, classes);
    if (winner == now) return 0;
    out[winner] = NEXT(out[now]);
    return 1;
}

/* Where the winner of a row of `out` is not that of `x`, raise the latter just above it; return how many. */
FOR_ALL_PROCESSORS static Size NAMED(keep_winners)(const REAL *x, Size n, Size classes, REAL *out) {
    Size lost = 0;
    if (classes == 2)
        for (Size i = 0; i < n; i++) lost += NAMED(keep_winner)(x + 2 * i, 2, out + 2 * i);
    else if (classes < WIDTH)
        for (Size i = 0; i < n; i++) lost += NAMED(keep_winner)(x + i * classes, classes, out + i * classes);
    else
        for (Size i = 0; i < n; i++)
            if (!NAMED(clear_winner)(x + i * classes, out + i * classes, classes))
                lost += NAMED(keep_winner)(x + i * classes, classes, out + i * classes);
    return lost;
}

/* Up to LANES rows lying on their side, less their largest entries `top`; missing rows are copies of the first. */
INLINE void NAMED(load_lanes)(const REAL *from, Size rows, Size classes, REAL u[FEW][LANES], REAL *top) {
    FOR_LANES top[r] = -INFINITY;
    FOR_CLASSES {
        FOR_LANES u[j][r] = from[(r < rows ? r : 0) * classes + j];
        FOR_LANES top[r] = u[j][r] > top[r] ? u[j][r] : top[r];
    }
    FOR_CLASSES FOR_LANES u[j][r] -= top[r];
}

/* out = w1 softmax(beta x) + w2 softmax(x) + w3, no entry below the smallest normal number, with the winners of x.
   Exponentials are at most that of the winner, which is 1: rounding can only make others as large. */
INLINE void NAMED(few_mixture_into)(
    const REAL *x, Size n, Size classes, REAL beta, REAL w1, REAL w2, REAL w3, REAL *out
) {
    REAL u[FEW][LANES], top[LANES], sum[LANES], plain[LANES], value[LANES], largest[LANES];
    for (Size i = 0; i < n; i += LANES) {
        Size rows = n - i < LANES ? n - i : LANES;
        REAL *to = out + i * classes;
        BITS ties[LANES];
        NAMED(load_lanes)(x + i * classes, rows, classes, u, top);
        FOR_LANES sum[r] = plain[r] = 0, ties[r] = 0;
        if (w2 > 0) FOR_CLASSES FOR_LANES plain[r] += EXP(u[j][r]);
        FOR_CLASSES FOR_LANES sum[r] += EXP(beta * u[j][r]);
        FOR_LANES sum[r] = w1 / sum[r];
        if (w2 > 0) FOR_LANES plain[r] = w2 / plain[r];
        FOR_LANES largest[r] = sum[r] + w3 + plain[r];
        FOR_CLASSES {
            FOR_LANES value[r] = sum[r] * EXP(beta * u[j][r]) + w3;
            if (w2 > 0) FOR_LANES value[r] += plain[r] * EXP(u[j][r]);
            FOR_LANES ties[r] += value[r] >= largest[r];
            FOR_LANES value[r] = value[r] > TINY ? value[r] : TINY;
            for (Size r = 0; r < rows; r++) to[r * classes + j] = value[r];
        }
        for (Size r = 0; r < rows; r++)
            if (ties[r] != 1) NAMED(keep_winner)(x + (i + r) * classes, classes, to + r * classes);
    }
}

FOR_ALL_PROCESSORS static void NAMED(mixture_into)(
    const REAL *x, Size n, Size classes, REAL beta, REAL w1, REAL w2, REAL w3, REAL *out
) {
    if (classes <= FEW) {
        NAMED(few_mixture_into)(x, n, classes, beta, w1, w2, w3, out);
        return;
    }
    REAL top[TOGETHER], scale[TOGETHER], plain[TOGETHER], tail[TOGETHER][WIDTH];
    for (Size i = 0, rows; i < n; i += rows) {
        rows = n - i < ROWS_TOGETHER(classes) ? n - i : ROWS_TOGETHER(classes);
        const REAL *from = x + i * classes;
        REAL *to = out + i * classes;
        FOR_ROWS top[r] = NAMED(row_max)(from + r * classes, classes);
        if (w2 > 0) FOR_ROWS plain[r] = w2 / NAMED(exp_sum)(from + r * classes, classes, top[r]);
        FOR_ROWS scale[r] = NAMED(exp_row)(from + r * classes, classes, beta, top[r], to + r * classes, tail[r]);
        FOR_ROWS scale[r] = w1 / scale[r];
        FOR_ROWS {
            const REAL *row = from + r * classes;
            REAL *into = to + r * classes;
            BITS ties = w2 > 0 ? NAMED(scale_row)(into, classes, tail[r], row, top[r], scale[r], 1, plain[r], w3)
                               : NAMED(scale_row)(into, classes, tail[r], row, top[r], scale[r], 0, 0, w3);
            if (ties != 1) NAMED(keep_winner)(row, classes, into);
        }
    }
}

/* Results of up to LANES rows from their sums of e, e u and e u^2, and from u at the label. */
INLINE void NAMED(nll_results)(
    const REAL *s, const REAL *s1, const REAL *s2, const double *at_label, Size rows, Size n, REAL beta, double *out
) {
    double log_p[LANES], mean[LANES], variance[LANES];
    SIMD()
    FOR_LANES {
        mean[r] = (double)s1[r] / s[r];
        variance[r] = (double)s2[r] / s[r] - mean[r] * mean[r];
        log_p[r] = (double)beta * at_label[r] - log_from_1((double)s[r]);
    }
    for (Size r = 0; r < rows; r++) {
        out[r] = log_p[r];
        out[n + r] = at_label[r] - mean[r];
        out[2 * n + r] = variance[r] > 0 ? variance[r] : 0;
    }
}

INLINE void NAMED(few_nll_rows)(const REAL *x, const Index *y, Size n, Size classes, REAL beta, double *out) {
    REAL u[FEW][LANES], top[LANES], s[LANES], s1[LANES], s2[LANES];
    double at_label[LANES] = {0};
    for (Size i = 0; i < n; i += LANES) {
        Size rows = n - i < LANES ? n - i : LANES;
        NAMED(load_lanes)(x + i * classes, rows, classes, u, top);
        FOR_LANES s[r] = s1[r] = s2[r] = 0;
        FOR_CLASSES FOR_LANES {
            REAL e = EXP(beta * u[j][r]);
            s[r] += e;
            s1[r] += e * u[j][r];
            s2[r] += e * u[j][r] * u[j][r];
        }
        for (Size r = 0; r < rows; r++) at_label[r] = (double)x[(i + r) * classes + y[i + r]] - top[r];
        NAMED(nll_results)(s, s1, s2, at_label, rows, n, beta, out + i);
    }
}

/* Partial sums of e, e u and e u^2 for u = x - top, e = exp(beta u), over WIDTH entries from `seen` on. */
INLINE void NAMED(nll_lanes)(const REAL *x, REAL beta, REAL top, BITS seen, REAL sum[3][WIDTH]) {
    SIMD()
    FOR_LANES_OF_ROW {
        REAL u = x[r] - top, e = r >= seen ? EXP(beta * u) : 0;
        sum[0][r] += e;
        sum[1][r] += e * u;
        sum[2][r] += e * u * u;
    }
}

/* log p_y, x_y - E_p[x] and Var_p[x] at p = softmax(beta x), each a row of `out`. */
FOR_ALL_PROCESSORS static void NAMED(nll_rows)(
    const REAL *x, const Index *y, Size n, Size classes, REAL beta, double *out
) {
    if (classes <= FEW) {
        NAMED(few_nll_rows)(x, y, n, classes, beta, out);
        return;
    }
    REAL top[LANES], s[LANES], s1[LANES], s2[LANES];
    double at_label[LANES] = {0};
    FOR_LANES s[r] = 1, s1[r] = s2[r] = 0;
    for (Size i = 0, rows; i < n; i += rows) {
        rows = n - i < ROWS_TOGETHER(classes) ? n - i : ROWS_TOGETHER(classes);
        const REAL *from = x + i * classes;
        Size whole = WHOLE(classes);
        FOR_ROWS top[r] = NAMED(row_max)(from + r * classes, classes);
        FOR_ROWS {
            const REAL *row = from + r * classes;
            REAL sum[3][WIDTH] = {{0}};
            for (Size j = 0; j < whole; j += WIDTH) NAMED(nll_lanes)(row + j, beta, top[r], 0, sum);
            if (whole < classes) NAMED(nll_lanes)(row + classes - WIDTH, beta, top[r], (BITS)AGAIN(classes), sum);
            s[r] = NAMED(sum_of_lanes)(sum[0]), s1[r] = NAMED(sum_of_lanes)(sum[1]);
            s2[r] = NAMED(sum_of_lanes)(sum[2]), at_label[r] = (double)row[y[i + r]] - top[r];
        }
        NAMED(nll_results)(s, s1, s2, at_label, rows, n, beta, out + i);
    }
}

#include "brier.h"

#include "affine.h"
#include "pieces.h"

/* Sums of exponentials below this have lost digits: they are taken relative to the largest. */
#define UNDERFLOW 1e-290

/* Logarithm of the sum of exponentials of all entries but one, also where they underflow. */
static double NAMED(log_sum_of_others)(const REAL *row, Size classes, Size top) {
    double second = -DBL_MAX, total = 0;
    for (Size j = 0; j < classes; j++)
        if (j != top && row[j] > second) second = row[j];
    for (Size j = 0; j < classes; j++)
        if (j != top) total += exp_d((double)row[j] - second);
    return total > 0 ? second + log(total) : second;
}

/* log p and log(1 - p) of every entry, neither below `lowest`, of logits or of log-probabilities. */
FOR_ALL_PROCESSORS static void NAMED(log_odds_into)(
    const REAL *x, Size n, Size classes, int logits, double lowest, double *p, double *log_p, double *log_not
) {
    for (Size i = 0; i < n; i++) {
        const REAL *row = x + i * classes;
        Size top = NAMED(row_winner)(row, classes);
        double shift = logits ? row[top] : 0, total = 0, rest = 0, *to = log_p + i * classes;
        SIMD(reduction(+ : total))
        for (Size j = 0; j < classes; j++) {
            p[j] = exp_d((double)row[j] - shift);
            total += p[j];
        }
        if (!logits) total = 1;
        int large = p[top] > 0.5 * total;
        if (large) {
            p[top] = 0;
            SIMD(reduction(+ : rest))
            for (Size j = 0; j < classes; j++) rest += p[j];
        }
        shift += log(total);
        SIMD()
        for (Size j = 0; j < classes; j++) {
            double v = (double)row[j] - shift;
            to[j] = v > lowest ? v : lowest;
        }
        to = log_not + i * classes;
        SIMD()
        for (Size j = 0; j < classes; j++) {
            double v = -twice_atanh(p[j] / (2.0 * total - p[j]));
            to[j] = v > lowest ? v : lowest;
        }
        /* Next to 1 the difference 1 - p has no digits left: there it is the sum of the other entries. Not below 1/2,
           where several entries may be equal and must stay so. */
        if (!large) continue;
        double v = rest >= UNDERFLOW ? log(rest / total) : NAMED(log_sum_of_others)(row, classes, top) - shift;
        to[top] = v > lowest ? v : lowest;
    }
}

/* The same for two classes given as logits. */
FOR_ALL_PROCESSORS static void NAMED(log_odds_of_two_into)(
    const REAL *x, Size n, double lowest, double *log_p, double *log_not
) {
    SIMD()
    for (Size i = 0; i < n; i++) {
        double lead = (double)x[2 * i] - x[2 * i + 1], size = fabs(lead), e = exp_d(-size);
        double rest = log_1_plus(e);
        double first = 0.5 * (lead - size) - rest, second = -0.5 * (lead + size) - rest;
        first = first > lowest ? first : lowest;
        second = second > lowest ? second : lowest;
        log_p[2 * i] = log_not[2 * i + 1] = first;
        log_p[2 * i + 1] = log_not[2 * i] = second;
    }
}

/* Results of a row of logits: sums of the other classes' exponentials and of their squares, and that of the label. */
INLINE void NAMED(label_row)(double u_y, double others, double squares, Size n, double *out) {
    double total = others + exp(u_y);
    out[0] = u_y - log(total);
    out[n] = (squares + others * others) / (total * total);
}

INLINE void NAMED(few_label_rows)(const REAL *x, const Index *y, Size n, Size classes, double *out) {
    REAL u[FEW][LANES], top[LANES];
    double others[LANES], squares[LANES];
    for (Size i = 0; i < n; i += LANES) {
        Size rows = n - i < LANES ? n - i : LANES;
        NAMED(load_lanes)(x + i * classes, rows, classes, u, top);
        int32_t label[LANES];
        FOR_LANES others[r] = squares[r] = 0;
        FOR_LANES label[r] = (int32_t)y[i + (r < rows ? r : 0)];
        FOR_CLASSES FOR_LANES {
            double e = exp_d((double)u[j][r]) * (label[r] != (int32_t)j);
            others[r] += e;
            squares[r] += e * e;
        }
        for (Size r = 0; r < rows; r++) NAMED(label_row)(u[label[r]][r], others[r], squares[r], n, out + i + r);
    }
}

/* Log-probability of the label of a row of logits, and the squared error of the softmax (the label is subtracted first,
   so that small errors keep their digits). */
FOR_ALL_PROCESSORS static void NAMED(label_rows_of_logits)(
    const REAL *x, const Index *y, Size n, Size classes, double *e, double *out
) {
    if (classes <= FEW) {
        NAMED(few_label_rows)(x, y, n, classes, out);
        return;
    }
    for (Size i = 0; i < n; i++) {
        const REAL *row = x + i * classes;
        Size label = (Size)y[i];
        double top = NAMED(row_max)(row, classes), others = 0, squares = 0;
        SIMD()
        for (Size j = 0; j < classes; j++) e[j] = exp_d((double)row[j] - top);
        e[label] = 0;
        SIMD(reduction(+ : others, squares))
        for (Size j = 0; j < classes; j++) {
            others += e[j];
            squares += e[j] * e[j];
        }
        NAMED(label_row)((double)row[label] - top, others, squares, n, out + i);
    }
}

/* Squared error of rows of probabilities. */
FOR_ALL_PROCESSORS static void NAMED(squared_errors)(
    const REAL *x, const Index *y, Size n, Size classes, double *out
) {
    if (classes == 2) { /* in one loop: rows are too short for vectors */
        SIMD()
        for (Size i = 0; i < n; i++) {
            double a = (double)x[2 * i] - (y[i] == 0), b = (double)x[2 * i + 1] - (y[i] == 1);
            out[i] = a * a + b * b;
        }
        return;
    }
    if (classes <= FEW && sizeof(REAL) < sizeof(double)) { /* rows of doubles are faster one by one */
        for (Size i = 0; i < n; i += LANES) {
            Size rows = n - i < LANES ? n - i : LANES;
            double squares[LANES] = {0};
            BITS label[LANES];
            FOR_LANES label[r] = (BITS)y[i + (r < rows ? r : 0)];
            FOR_CLASSES {
                REAL p[LANES];
                FOR_LANES p[r] = x[(i + (r < rows ? r : 0)) * classes + j];
                SIMD()
                FOR_LANES {
                    double off = (double)p[r] - (label[r] == (BITS)j ? 1.0 : 0.0);
                    squares[r] += off * off;
                }
            }
            for (Size r = 0; r < rows; r++) out[i + r] = squares[r];
        }
        return;
    }
    for (Size i = 0; i < n; i++) {
        const REAL *row = x + i * classes;
        Size label = (Size)y[i];
        double squares = 0;
        SIMD(reduction(+ : squares))
        for (Size j = 0; j < classes; j++) {
            double off = (double)row[j] - (j == label);
            squares += off * off;
        }
        out[i] = squares;
    }
}

#include "diagonal.h"
#include "vector.h"

#undef PASTE_
#undef PASTE
#undef NAMED
#undef EXP
#undef LANES
#undef FEW
#undef FOR_LANES
#undef FOR_CLASSES
#undef UNDERFLOW
#undef SEARCHED
#undef WIDTH
#undef FOR_WIDTH
#undef WHOLE
#undef AGAIN
#undef FOR_LANES_OF_ROW
#undef FOR_ROWS
#undef ROWS_TOGETHER
#undef TOGETHER
