/* Kernels in double precision: rows made into distributions, and the logistic families. */

/* Rows of g over their sum, mixed with the uniform distribution: (1 - share) g + share / L. Rows of zeros stay; return
   how many there are. */
FOR_ALL_PROCESSORS static Size normalise(double *g, Size n, Size classes, double share) {
    Size empty = 0;
    for (Size i = 0; i < n; i++) {
        double *row = g + i * classes, total = 0;
        SIMD(reduction(+ : total))
        for (Size j = 0; j < classes; j++) total += row[j];
        if (total == 0) {
            empty++;
            continue;
        }
        double scale = (1 - share) / total, uniform = share / (double)classes;
        SIMD()
        for (Size j = 0; j < classes; j++) row[j] = row[j] * scale + uniform;
    }
    return empty;
}

/* log p, in place of u, and log(1 - p) of K x m logarithms, neither below `lowest`. `norm` is subtracted from u, and
   `log_rest` is log(1 - p) of the largest entry of each of the m samples. */
FOR_ALL_PROCESSORS static void log_odds_of_columns(
    double *u, Size columns, Size m, const double *norm, const double *log_rest, double lowest, double *log_not
) {
    for (Size k = 0; k < columns; k++, u += m, log_not += m) {
        SIMD()
        for (Size i = 0; i < m; i++) {
            double v = u[i] - norm[i], p = exp_d(v), small = p > 0.5 ? 0.5 : p;
            double rest = p > 0.5 ? log_rest[i] : -twice_atanh(small / (2.0 - small));
            u[i] = v > lowest ? v : lowest;
            log_not[i] = rest > lowest ? rest : lowest;
        }
    }
}

/* Loss, gradient (a, b, c) and curvature (aa, ab, ac, bb, bc, cc) of K fits p = sigmoid(a first + b second + c), each to
   a row of m entries. */
FOR_ALL_PROCESSORS static void logistic_sums(
    const double *first, const double *second, const uint8_t *positive, const double *weight, Size problems, Size m,
    const double *theta, const double *targets, int brier, double *out
) {
    for (Size k = 0; k < problems; k++, first += m, second += m, positive += m, theta += 3, out += 10) {
        double a = theta[0], b = theta[1], c = theta[2];
        double low = targets[k], gap = targets[problems + k] - targets[k];
        double total = 0, in_a = 0, in_b = 0, in_c = 0, aa = 0, ab = 0, ac = 0, bb = 0, bc = 0, cc = 0;
        SIMD(reduction(+ : total, in_a, in_b, in_c, aa, ab, ac, bb, bc, cc))
        for (Size i = 0; i < m; i++) {
            double u = first[i], v = second[i], w = weight[i];
            double x = a * u + b * v + c, t = low + positive[i] * gap;
            double e = exp_d(-fabs(x)), r = 1.0 / (1.0 + e), p = x >= 0 ? r : e * r, spread = e * r * r;
            double log_loss = 0.5 * (x + fabs(x)) - x * t + log_1_plus(e);
            double value = brier ? (p - t) * (p - t) : log_loss;
            double slope = w * (brier ? 2.0 * (p - t) * spread : p - t);
            double curve = w * (brier ? 2.0 * spread * spread : spread);
            total += w * value;
            in_a += slope * u;
            in_b += slope * v;
            in_c += slope;
            aa += curve * u * u;
            ab += curve * u * v;
            ac += curve * u;
            bb += curve * v * v;
            bc += curve * v;
            cc += curve;
        }
        out[0] = total, out[1] = in_a, out[2] = in_b, out[3] = in_c;
        out[4] = aa, out[5] = ab, out[6] = ac, out[7] = bb, out[8] = bc, out[9] = cc;
    }
}

/* Sums of g below this are taken of exponentials that are brought to the size of 1. */
#define SMALLEST_SUM 1e-250

/* Values of g = sigmoid(a log_p - b log_not + c) over their sum in a row, and the derivative of log g. */
INLINE void shares(
    const double *log_p, const double *log_not, Size classes, const double *theta, double *g, double *rest
) {
    double a = theta[0], b = theta[1], c = theta[2], total = 0;
    SIMD(reduction(+ : total))
    for (Size j = 0; j < classes; j++) {
        double x = a * log_p[j] - b * log_not[j] + c, e = exp_d(-fabs(x)), r = 1.0 / (1.0 + e);
        g[j] = x >= 0 ? r : e * r;
        rest[j] = x >= 0 ? e * r : r;
        total += g[j];
    }
    if (total < SMALLEST_SUM) { /* a row of zeros, almost: there g is the exponential of its argument */
        double top = -INFINITY;
        total = 0;
        for (Size j = 0; j < classes; j++) {
            double x = a * log_p[j] - b * log_not[j] + c;
            top = x > top ? x : top;
        }
        for (Size j = 0; j < classes; j++) {
            g[j] = exp_d(a * log_p[j] - b * log_not[j] + c - top);
            total += g[j];
        }
    }
    SIMD()
    for (Size j = 0; j < classes; j++) g[j] /= total;
}

/* Loss of each row under a mixture of `members` normalised sigmoids and, if `fixed`, of p and the uniform distribution,
   and its gradient in all theta and in the weights w. */
FOR_ALL_PROCESSORS static void sigmoid_mixture_rows(
    const double *log_p, const double *log_not, const double *p, const Index *y, Size n, Size classes,
    const double *theta, Size members, const double *w, int fixed, int brier, double *scratch, double *out
) {
    double *mixed = scratch + 2 * members * classes;
    Size at_w = 1 + 3 * members;
    for (Size i = 0; i < n; i++, log_p += classes, log_not += classes, p += classes) {
        Size label = (Size)y[i];
        for (Size f = 0; f < members; f++) {
            double *share = scratch + 2 * f * classes;
            shares(log_p, log_not, classes, theta + 3 * f, share, share + classes);
        }
        SIMD()
        for (Size j = 0; j < classes; j++) mixed[j] = fixed ? w[members] * p[j] + w[members + 1] / (double)classes : 0.0;
        for (Size f = 0; f < members; f++) {
            const double *share = scratch + 2 * f * classes;
            SIMD()
            for (Size j = 0; j < classes; j++) mixed[j] += w[f] * share[j];
        }
        double value = 0;
        if (brier) { /* from here on `mixed` is the slope of the loss in what is mixed */
            mixed[label] -= 1.0;
            SIMD(reduction(+ : value))
            for (Size j = 0; j < classes; j++) {
                value += mixed[j] * mixed[j];
                mixed[j] *= 2.0;
            }
        } else {
            double at = mixed[label] > 1e-300 ? mixed[label] : 1e-300;
            value = -log(at);
            memset(mixed, 0, (size_t)classes * sizeof *mixed);
            mixed[label] = -1.0 / at;
        }
        out[i] = value;
        for (Size f = 0; f < members; f++) {
            const double *share = scratch + 2 * f * classes, *rest = share + classes;
            double mean = 0, in_a = 0, in_b = 0, in_c = 0;
            SIMD(reduction(+ : mean))
            for (Size j = 0; j < classes; j++) mean += mixed[j] * share[j];
            SIMD(reduction(+ : in_a, in_b, in_c))
            for (Size j = 0; j < classes; j++) {
                double inner = (mixed[j] - mean) * share[j] * rest[j];
                in_a += inner * log_p[j];
                in_b -= inner * log_not[j];
                in_c += inner;
            }
            out[(1 + 3 * f) * n + i] = w[f] * in_a;
            out[(2 + 3 * f) * n + i] = w[f] * in_b;
            out[(3 + 3 * f) * n + i] = w[f] * in_c;
            out[(at_w + f) * n + i] = mean;
        }
        if (fixed) {
            double in_plain = 0, in_uniform = 0;
            SIMD(reduction(+ : in_plain, in_uniform))
            for (Size j = 0; j < classes; j++) {
                in_plain += mixed[j] * p[j];
                in_uniform += mixed[j];
            }
            out[(at_w + members) * n + i] = in_plain;
            out[(at_w + members + 1) * n + i] = in_uniform / (double)classes;
        }
    }
}
