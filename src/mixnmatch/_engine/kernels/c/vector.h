/* Kernels for a slope and an intercept for each of many classes, on rows as they are given; included once for float and
   for double.

   With s = beta log_softmax(x), a row has p = softmax(slope s + intercept). Nothing of a row is kept between passes:
   computing it anew takes less time than reading it from memory. Rows are worked on in small groups, so that their
   entries are still in the cache when they are added to the sums of the classes. */

/* Rows in a group, and entries that are summed up in REAL before they are added to a double. */
#define GROUP 8
#define PART 512
#define FOR_PARTS for (Size at = 0, size; at < classes && (size = classes - at < PART ? classes - at : PART); at += PART)
#define S(j) (beta * ((from[j] - top) - total))

/* What a row is turned into: p (in place of `p`), and the two numbers that s is computed with. */
typedef struct {
    REAL top, total;
    double log_sum; /* logarithm of the sum of exponentials of slope s + intercept */
} NAMED(VectorRow);

INLINE NAMED(VectorRow) NAMED(vector_row)(
    const REAL *row, Size classes, REAL beta, const REAL *slope, const REAL *intercept, REAL *p
) {
    REAL top = NAMED(row_max)(row, classes), most = -INFINITY;
    double sum = 0;
    FOR_PARTS {
        const REAL *from = row + at;
        REAL part = 0;
        SIMD(reduction(+ : part))
        for (Size j = 0; j < size; j++) part += EXP(from[j] - top);
        sum += part;
    }
    REAL total = (REAL)log(sum);
    FOR_PARTS {
        const REAL *from = row + at, *a = slope + at, *b = intercept + at;
        REAL *to = p + at;
        SIMD(reduction(max : most))
        for (Size j = 0; j < size; j++) {
            to[j] = a[j] * S(j) + b[j];
            most = to[j] > most ? to[j] : most;
        }
    }
    sum = 0;
    FOR_PARTS {
        REAL *to = p + at, part = 0;
        SIMD(reduction(+ : part))
        for (Size j = 0; j < size; j++) {
            to[j] = EXP(to[j] - most);
            part += to[j];
        }
        sum += part;
    }
    REAL scale = (REAL)(1 / sum);
    SIMD()
    for (Size j = 0; j < classes; j++) p[j] *= scale;
    NAMED(VectorRow) found = {top, total, (double)most + log(sum)};
    return found;
}

/* Sums over rows for each class: of p s and p; if `curved` of q s^2, q s and q for q = p (1 - p). `label` has two
   numbers for each row: the logarithm of its label's p, and its label's s. `weight` may be NULL. */
FOR_ALL_PROCESSORS static void NAMED(vector_sums)(
    const REAL *x, const Index *y, Size n, Size classes, const double *weight, REAL beta, const REAL *slope,
    const REAL *intercept, int curved, REAL *scratch, double *label, double *out
) {
    NAMED(VectorRow) found[GROUP];
    memset(out, 0, (size_t)((curved ? 3 : 2) * classes) * sizeof *out);
    for (Size i = 0; i < n; i += GROUP) {
        Size rows = n - i < GROUP ? n - i : GROUP;
        for (Size r = 0; r < rows; r++) {
            const REAL *from = x + (i + r) * classes;
            found[r] = NAMED(vector_row)(from, classes, beta, slope, intercept, scratch + r * classes);
            REAL top = found[r].top, total = found[r].total;
            Size k = (Size)y[i + r];
            label[i + r] = (double)(slope[k] * S(k) + intercept[k]) - found[r].log_sum;
            label[n + i + r] = S(k);
        }
        FOR_PARTS {
            REAL plain[PART], first[PART], second[PART];
            memset(plain, 0, sizeof plain), memset(first, 0, sizeof first), memset(second, 0, sizeof second);
            for (Size r = 0; r < rows; r++) {
                const REAL *from = x + (i + r) * classes + at, *p = scratch + r * classes + at;
                REAL top = found[r].top, total = found[r].total, w = weight ? (REAL)weight[i + r] : 1;
                if (curved) {
                    SIMD()
                    for (Size j = 0; j < size; j++) {
                        REAL s = S(j), q = w * p[j] * (1 - p[j]);
                        plain[j] += q, first[j] += q * s, second[j] += q * s * s;
                    }
                } else {
                    SIMD()
                    for (Size j = 0; j < size; j++) {
                        REAL q = w * p[j];
                        plain[j] += q, first[j] += q * S(j);
                    }
                }
            }
            double *to = out + at;
            if (curved) {
                SIMD()
                for (Size j = 0; j < size; j++) to[j] += second[j];
                to += classes;
            }
            SIMD()
            for (Size j = 0; j < size; j++) to[j] += first[j], to[classes + j] += plain[j];
        }
    }
}

/* Curvature of the log loss times the direction (in_slope, in_intercept): two rows of sums, one for each class. */
FOR_ALL_PROCESSORS static void NAMED(vector_product)(
    const REAL *x, Size n, Size classes, const double *weight, REAL beta, const REAL *slope, const REAL *intercept,
    const REAL *in_slope, const REAL *in_intercept, REAL *scratch, double *out
) {
    NAMED(VectorRow) found[GROUP];
    REAL mean[GROUP];
    memset(out, 0, (size_t)(2 * classes) * sizeof *out);
    for (Size i = 0; i < n; i += GROUP) {
        Size rows = n - i < GROUP ? n - i : GROUP;
        for (Size r = 0; r < rows; r++) {
            const REAL *row = x + (i + r) * classes;
            found[r] = NAMED(vector_row)(row, classes, beta, slope, intercept, scratch + r * classes);
            REAL top = found[r].top, total = found[r].total;
            double sum = 0;
            FOR_PARTS {
                const REAL *from = row + at, *p = scratch + r * classes + at, *v = in_slope + at, *b = in_intercept + at;
                REAL part = 0;
                SIMD(reduction(+ : part))
                for (Size j = 0; j < size; j++) part += p[j] * (v[j] * S(j) + b[j]);
                sum += part;
            }
            mean[r] = (REAL)sum;
        }
        FOR_PARTS {
            REAL plain[PART], first[PART];
            memset(plain, 0, sizeof plain), memset(first, 0, sizeof first);
            for (Size r = 0; r < rows; r++) {
                const REAL *from = x + (i + r) * classes + at, *p = scratch + r * classes + at;
                const REAL *v = in_slope + at, *b = in_intercept + at;
                REAL top = found[r].top, total = found[r].total, w = weight ? (REAL)weight[i + r] : 1;
                SIMD()
                for (Size j = 0; j < size; j++) {
                    REAL s = S(j), q = w * p[j] * (v[j] * s + b[j] - mean[r]);
                    plain[j] += q, first[j] += q * s;
                }
            }
            SIMD()
            for (Size j = 0; j < size; j++) out[at + j] += first[j], out[classes + at + j] += plain[j];
        }
    }
}

#undef GROUP
#undef PART
#undef FOR_PARTS
#undef S
