/* Kernels for maps with a slope and an intercept for each class; included once for float and for double.

   Tables lie on their side, `classes` rows of m samples: loops over samples run on whole vectors, and a table of many
   classes is read twice where array operations would read and write it ten times. `weight` may be NULL. */

/* p = softmax(slope s + intercept) over the classes; `top` is left with the largest argument of each sample, `total`
   with the sum of the exponentials below it. */
FOR_ALL_PROCESSORS static void NAMED(diagonal_softmax_into)(
    const REAL *s, Size classes, Size m, const REAL *slope, const REAL *intercept, REAL *p, REAL *top, double *total
) {
    for (Size i = 0; i < m; i++) top[i] = -INFINITY, total[i] = 0;
    for (Size k = 0; k < classes; k++) {
        const REAL *from = s + k * m, a = slope[k], b = intercept[k];
        SIMD()
        for (Size i = 0; i < m; i++) {
            REAL u = a * from[i] + b;
            top[i] = u > top[i] ? u : top[i];
        }
    }
    for (Size k = 0; k < classes; k++) {
        const REAL *from = s + k * m, a = slope[k], b = intercept[k];
        REAL *to = p + k * m;
        SIMD()
        for (Size i = 0; i < m; i++) {
            to[i] = EXP(a * from[i] + b - top[i]);
            total[i] += to[i];
        }
    }
    for (Size k = 0; k < classes; k++) {
        REAL *to = p + k * m;
        SIMD()
        for (Size i = 0; i < m; i++) to[i] = (REAL)(to[i] / total[i]);
    }
}

/* Curvature of the log loss at p times the direction (slope, intercept): two rows of sums, one for each class. */
FOR_ALL_PROCESSORS static void NAMED(diagonal_product)(
    const REAL *s, const REAL *p, Size classes, Size m, const REAL *slope, const REAL *intercept, const REAL *weight,
    double *mean, double *out
) {
    for (Size i = 0; i < m; i++) mean[i] = 0;
    for (Size k = 0; k < classes; k++) {
        const REAL *from = s + k * m, *at = p + k * m, a = slope[k], b = intercept[k];
        SIMD()
        for (Size i = 0; i < m; i++) mean[i] += at[i] * (a * from[i] + b);
    }
    for (Size k = 0; k < classes; k++) {
        const REAL *from = s + k * m, *at = p + k * m, a = slope[k], b = intercept[k];
        double in_slope = 0, in_intercept = 0;
        SIMD(reduction(+ : in_slope, in_intercept))
        for (Size i = 0; i < m; i++) {
            double z = at[i] * (a * from[i] + b - mean[i]) * (weight ? weight[i] : 1);
            in_slope += z * from[i];
            in_intercept += z;
        }
        out[k] = in_slope, out[classes + k] = in_intercept;
    }
}

/* Sums of q s and of q over the samples, for q = p; or of q s^2, q s and q for q = p (1 - p), if `curved`. */
FOR_ALL_PROCESSORS static void NAMED(diagonal_sums)(
    const REAL *s, const REAL *p, Size classes, Size m, const REAL *weight, int curved, double *out
) {
    double *second = curved ? out : NULL, *first = curved ? out + classes : out, *none = first + classes;
    for (Size k = 0; k < classes; k++) {
        const REAL *from = s + k * m, *at = p + k * m;
        double squares = 0, products = 0, plain = 0;
        SIMD(reduction(+ : squares, products, plain))
        for (Size i = 0; i < m; i++) {
            double q = (double)at[i] * (curved ? 1.0 - at[i] : 1.0) * (weight ? weight[i] : 1);
            squares += q * from[i] * from[i];
            products += q * from[i];
            plain += q;
        }
        if (second) second[k] = squares;
        first[k] = products, none[k] = plain;
    }
}
