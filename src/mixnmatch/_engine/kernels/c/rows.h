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

/* Entries that are read twice while they are in the cache. */
#define CACHED 4096

/* Smallest and largest entry, and smallest and largest sum of a row; all NaN if some sum is. */
FOR_ALL_PROCESSORS static void NAMED(extremes)(const REAL *x, Size n, Size classes, double *out) {
    REAL low = x[0], high = x[0], least = INFINITY, most = -INFINITY;
    int undefined = 0;
    if (classes == 2) { /* in one loop: rows are too short for vectors */
        SIMD(reduction(min : low, least) reduction(max : high, most) reduction(| : undefined))
        for (Size i = 0; i < n; i++) {
            REAL a = x[2 * i], b = x[2 * i + 1], sum = a + b, small = a < b ? a : b, large = a > b ? a : b;
            low = small < low ? small : low;
            high = large > high ? large : high;
            undefined |= !(sum == sum);
            least = sum < least ? sum : least;
            most = sum > most ? sum : most;
        }
        n = 0;
    }
    Size step = CACHED / classes > 0 ? CACHED / classes : 1;
    for (Size start = 0; start < n; start += step) {
        Size rows = n - start < step ? n - start : step;
        const REAL *part = x + start * classes;
        SIMD(reduction(min : low) reduction(max : high))
        for (Size k = 0; k < rows * classes; k++) {
            low = part[k] < low ? part[k] : low;
            high = part[k] > high ? part[k] : high;
        }
        for (Size i = 0; i < rows; i++) {
            const REAL *row = part + i * classes;
            REAL sum = 0;
            if (classes < 16)
                for (Size j = 0; j < classes; j++) sum += row[j];
            else {
                SIMD(reduction(+ : sum))
                for (Size j = 0; j < classes; j++) sum += row[j];
            }
            undefined |= !(sum == sum);
            least = sum < least ? sum : least;
            most = sum > most ? sum : most;
        }
    }
    /* The sum of both infinities is NaN, too. */
    out[0] = undefined ? NAN : (double)low;
    out[1] = undefined ? NAN : (double)high;
    out[2] = undefined ? NAN : (double)least;
    out[3] = undefined ? NAN : (double)most;
}

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

/* Up to so many classes, LANES rows are worked on side by side: their own vectors would be too short. */
#define LANES 16
#define FEW 32
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
    if (classes <= FEW && n >= LANES / 2) {
        NAMED(few_mixture_into)(x, n, classes, beta, w1, w2, w3, out);
        return;
    }
    for (Size i = 0; i < n; i++) {
        const REAL *row = x + i * classes;
        REAL *to = out + i * classes, tail[WIDTH];
        REAL top = NAMED(row_max)(row, classes), s = 0, t = 0;
        if (classes >= WIDTH && !(w2 > 0)) {
            s = NAMED(exp_row)(row, classes, beta, top, to, tail);
            if (NAMED(scale_row)(to, classes, tail, w1 / s, w3) != 1) NAMED(keep_winner)(row, classes, to);
            continue;
        }
        SIMD(reduction(+ : s))
        for (Size j = 0; j < classes; j++) {
            to[j] = EXP(beta * (row[j] - top));
            s += to[j];
        }
        REAL scale = w1 / s, plain = 0;
        if (w2 > 0) {
            SIMD(reduction(+ : t))
            for (Size j = 0; j < classes; j++) t += EXP(row[j] - top);
            plain = w2 / t;
        }
        REAL largest = scale + plain + w3;
        BITS ties = 0;
        SIMD(reduction(+ : ties))
        for (Size j = 0; j < classes; j++) {
            REAL v = scale * to[j] + plain * EXP(row[j] - top) + w3;
            ties += v >= largest ? 1 : 0;
            to[j] = v > TINY ? v : TINY;
        }
        if (ties != 1) NAMED(keep_winner)(row, classes, to);
    }
}

INLINE void NAMED(few_nll_rows)(const REAL *x, const Index *y, Size n, Size classes, REAL beta, double *out) {
    REAL u[FEW][LANES], top[LANES], s[LANES], s1[LANES], s2[LANES];
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
        for (Size r = 0; r < rows; r++) {
            double mean = (double)s1[r] / s[r], at_label = (double)x[(i + r) * classes + y[i + r]] - top[r];
            double variance = (double)s2[r] / s[r] - mean * mean;
            out[i + r] = (double)beta * at_label - log((double)s[r]);
            out[n + i + r] = at_label - mean;
            out[2 * n + i + r] = variance > 0 ? variance : 0;
        }
    }
}

/* log p_y, x_y - E_p[x] and Var_p[x] at p = softmax(beta x), each a row of `out`. */
FOR_ALL_PROCESSORS static void NAMED(nll_rows)(
    const REAL *x, const Index *y, Size n, Size classes, REAL beta, double *out
) {
    if (classes <= FEW && n >= LANES / 2) {
        NAMED(few_nll_rows)(x, y, n, classes, beta, out);
        return;
    }
    for (Size i = 0; i < n; i++) {
        const REAL *row = x + i * classes;
        REAL top = NAMED(row_max)(row, classes), s = 0, s1 = 0, s2 = 0;
        SIMD(reduction(+ : s, s1, s2))
        for (Size j = 0; j < classes; j++) {
            REAL u = row[j] - top, e = EXP(beta * u);
            s += e;
            s1 += e * u;
            s2 += e * u * u;
        }
        double mean = (double)s1 / s, at_label = (double)row[y[i]] - top, variance = (double)s2 / s - mean * mean;
        out[i] = (double)beta * at_label - log((double)s);
        out[n + i] = at_label - mean;
        out[2 * n + i] = variance > 0 ? variance : 0;
    }
}

/* With dp = dp / dbeta: p_y, dp_y, sum p^2, sum p dp, sum dp^2, Var_p[x]; and with q = softmax(x), if `mixture`:
   q_y, sum q^2, sum p q, sum q dp, sum q dp (x - E_p[x]). */
FOR_ALL_PROCESSORS static void NAMED(brier_rows)(
    const REAL *x, const Index *y, Size n, Size classes, REAL beta, int mixture, REAL *e, double *out
) {
    for (Size i = 0; i < n; i++) {
        const REAL *row = x + i * classes;
        REAL top = NAMED(row_max)(row, classes), s = 0, s1 = 0;
        SIMD(reduction(+ : s, s1))
        for (Size j = 0; j < classes; j++) {
            REAL u = row[j] - top;
            e[j] = EXP(beta * u);
            s += e[j];
            s1 += e[j] * u;
        }
        REAL mean = s1 / s, pp = 0, pd = 0, dd = 0, spread = 0;
        SIMD(reduction(+ : pp, pd, dd, spread))
        for (Size j = 0; j < classes; j++) {
            REAL lead = row[j] - top - mean;
            pp += e[j] * e[j];
            pd += e[j] * e[j] * lead;
            dd += e[j] * e[j] * lead * lead;
            spread += e[j] * lead * lead;
        }
        double p_y = (double)e[y[i]] / s, square = (double)s * s;
        out[i] = p_y;
        out[n + i] = p_y * ((double)row[y[i]] - top - mean);
        out[2 * n + i] = pp / square;
        out[3 * n + i] = pd / square;
        out[4 * n + i] = dd / square;
        out[5 * n + i] = (double)spread / s;
        if (!mixture) continue;
        REAL t = 0, qq = 0, pq = 0, qd = 0, qdd = 0;
        SIMD(reduction(+ : t, qq, pq, qd, qdd))
        for (Size j = 0; j < classes; j++) {
            REAL u = row[j] - top, f = EXP(u), lead = u - mean;
            t += f;
            qq += f * f;
            pq += e[j] * f;
            qd += e[j] * f * lead;
            qdd += e[j] * f * lead * lead;
        }
        double cross = (double)s * t;
        out[6 * n + i] = (double)EXP(row[y[i]] - top) / t;
        out[7 * n + i] = qq / ((double)t * t);
        out[8 * n + i] = pq / cross;
        out[9 * n + i] = qd / cross;
        out[10 * n + i] = qdd / cross;
    }
}

/* The same less the logarithms of the sums of their exponentials. */
INLINE void NAMED(load_log_softmax)(const REAL *from, Size rows, Size classes, REAL u[FEW][LANES]) {
    REAL top[LANES], sum[LANES];
    NAMED(load_lanes)(from, rows, classes, u, top);
    FOR_LANES sum[r] = 0;
    FOR_CLASSES FOR_LANES sum[r] += EXP(u[j][r]);
    FOR_LANES sum[r] = (REAL)log((double)sum[r]);
    FOR_CLASSES FOR_LANES u[j][r] -= sum[r];
}

/* Logarithm of the sum of exponentials of a row less its largest entry. */
INLINE REAL NAMED(log_total)(const REAL *row, Size classes, REAL top) {
    REAL s = 0;
    SIMD(reduction(+ : s))
    for (Size j = 0; j < classes; j++) s += EXP(row[j] - top);
    return (REAL)log((double)s);
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
    if (classes <= FEW && n >= LANES / 2) {
        NAMED(few_log_softmax_into)(x, n, classes, out);
        return;
    }
    for (Size i = 0; i < n; i++) {
        const REAL *row = x + i * classes;
        REAL top = NAMED(row_max)(row, classes), total = NAMED(log_total)(row, classes, top);
        SIMD()
        for (Size j = 0; j < classes; j++) out[i * classes + j] = (row[j] - top) - total;
    }
}

INLINE void NAMED(few_vector_softmax_into)(
    const REAL *x, Size n, Size classes, const REAL *weight, const REAL *intercept, REAL *out
) {
    REAL u[FEW][LANES], top[LANES], sum[LANES];
    for (Size i = 0; i < n; i += LANES) {
        Size rows = n - i < LANES ? n - i : LANES;
        REAL *to = out + i * classes;
        NAMED(load_log_softmax)(x + i * classes, rows, classes, u);
        FOR_LANES top[r] = -INFINITY;
        FOR_CLASSES FOR_LANES {
            u[j][r] = weight[j] * u[j][r] + intercept[j];
            top[r] = u[j][r] > top[r] ? u[j][r] : top[r];
        }
        FOR_LANES sum[r] = 0;
        FOR_CLASSES FOR_LANES {
            u[j][r] = EXP(u[j][r] - top[r]);
            sum[r] += u[j][r];
        }
        FOR_LANES sum[r] = 1 / sum[r];
        FOR_CLASSES {
            for (Size r = 0; r < rows; r++) to[r * classes + j] = u[j][r] * sum[r];
        }
    }
}

/* out = softmax(weight * log_softmax(x) + intercept), with a number of each for every class. */
FOR_ALL_PROCESSORS static void NAMED(vector_softmax_into)(
    const REAL *x, Size n, Size classes, const REAL *weight, const REAL *intercept, REAL *out
) {
    if (classes <= FEW && n >= LANES / 2) {
        NAMED(few_vector_softmax_into)(x, n, classes, weight, intercept, out);
        return;
    }
    for (Size i = 0; i < n; i++) {
        const REAL *row = x + i * classes;
        REAL *to = out + i * classes;
        REAL top = NAMED(row_max)(row, classes), total = NAMED(log_total)(row, classes, top), s = 0;
        SIMD()
        for (Size j = 0; j < classes; j++) to[j] = weight[j] * ((row[j] - top) - total) + intercept[j];
        top = NAMED(row_max)(to, classes);
        SIMD(reduction(+ : s))
        for (Size j = 0; j < classes; j++) {
            to[j] = EXP(to[j] - top);
            s += to[j];
        }
        REAL scale = 1 / s;
        SIMD()
        for (Size j = 0; j < classes; j++) to[j] *= scale;
    }
}

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
    if (classes <= FEW && n >= LANES / 2) {
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
#undef CACHED
#undef WIDTH
#undef FOR_WIDTH
#undef WHOLE
