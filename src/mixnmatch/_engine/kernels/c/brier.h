/* Parts of the squared error of rows and of its derivatives; included once for float and for double. */

/* Sums over a row, for u = x - top, e = exp(beta u), f = exp(u) and lead = u - E_p[u]: of e, e u; e^2, e^2 lead,
   e^2 lead^2, e lead^2; f, f^2, e f, e f lead, e f lead^2. */
#define SUMS 11
typedef REAL NAMED(BrierSums)[SUMS][LANES];

/* Results of a row, number r of some: see below. */
INLINE void NAMED(brier_results)(
    NAMED(BrierSums) sum, Size r, double e_y, double u_y, int mixture, Size n, double *out
) {
    double s = sum[0][r], mean = sum[1][r] / s, p_y = e_y / s;
    out[0] = p_y;
    out[n] = p_y * (u_y - mean);
    for (Size k = 2; k < 5; k++) out[k * n] = sum[k][r] / (s * s);
    out[5 * n] = sum[5][r] / s;
    if (!mixture) return;
    double t = sum[6][r];
    out[6 * n] = exp_d(u_y) / t;
    out[7 * n] = sum[7][r] / (t * t);
    for (Size k = 8; k < SUMS; k++) out[k * n] = sum[k][r] / (s * t);
}

/* What LANES entries, of one row or of as many rows, add to the sums after the first two. */
INLINE void NAMED(brier_lanes)(
    const REAL *u, const REAL *e, const REAL *mean, int mixture, BITS seen, NAMED(BrierSums) sum
) {
    SIMD()
    for (BITS r = 0; r < LANES; r++) {
        REAL lead = u[r] - mean[r], square = e[r] * e[r];
        sum[2][r] += square;
        sum[3][r] += square * lead;
        sum[4][r] += square * lead * lead;
        sum[5][r] += e[r] * lead * lead;
        if (mixture) {
            REAL f = r >= seen ? EXP(u[r]) : 0, both = e[r] * f;
            sum[6][r] += f;
            sum[7][r] += f * f;
            sum[8][r] += both;
            sum[9][r] += both * lead;
            sum[10][r] += both * lead * lead;
        }
    }
}

/* exp(beta u) of LANES entries, from `seen` on, and what they add to the first two sums. */
INLINE void NAMED(brier_exp_lanes)(const REAL *u, REAL beta, BITS seen, REAL *e, NAMED(BrierSums) sum) {
    SIMD()
    for (BITS r = 0; r < LANES; r++) {
        e[r] = r >= seen ? EXP(beta * u[r]) : 0;
        sum[0][r] += e[r];
        sum[1][r] += e[r] * u[r];
    }
}

INLINE void NAMED(few_brier_rows)(
    const REAL *x, const Index *y, Size n, Size classes, REAL beta, int mixture, double *out
) {
    REAL u[FEW][LANES], e[FEW][LANES], top[LANES], mean[LANES];
    for (Size i = 0; i < n; i += LANES) {
        Size rows = n - i < LANES ? n - i : LANES;
        NAMED(BrierSums) sum = {{0}};
        NAMED(load_lanes)(x + i * classes, rows, classes, u, top);
        FOR_CLASSES NAMED(brier_exp_lanes)(u[j], beta, 0, e[j], sum);
        FOR_LANES mean[r] = sum[1][r] / sum[0][r];
        FOR_CLASSES NAMED(brier_lanes)(u[j], e[j], mean, mixture, 0, sum);
        for (Size r = 0; r < rows; r++) {
            Size label = (Size)y[i + r];
            NAMED(brier_results)(sum, r, e[label][r], u[label][r], mixture, n, out + i + r);
        }
    }
}

/* WIDTH entries of a row less `top`. */
INLINE void NAMED(leads_of)(const REAL *x, REAL top, REAL *u) {
    SIMD()
    FOR_LANES u[r] = x[r] - top;
}

/* With dp = dp / dbeta: p_y, dp_y, sum p^2, sum p dp, sum dp^2, Var_p[x]; and with q = softmax(x), if `mixture`:
   q_y, sum q^2, sum p q, sum q dp, sum q dp (x - E_p[x]). `scratch` has room for a row. */
FOR_ALL_PROCESSORS static void NAMED(brier_rows)(
    const REAL *x, const Index *y, Size n, Size classes, REAL beta, int mixture, REAL *scratch, double *out
) {
    if (classes <= FEW) {
        NAMED(few_brier_rows)(x, y, n, classes, beta, mixture, out);
        return;
    }
    REAL u[LANES], tail[LANES], mean[LANES];
    Size whole = WHOLE(classes);
    BITS seen = (BITS)AGAIN(classes);
    for (Size i = 0; i < n; i++) {
        const REAL *row = x + i * classes, *last = row + classes - WIDTH;
        REAL top = NAMED(row_max)(row, classes), total[SUMS][LANES];
        NAMED(BrierSums) sum = {{0}};
        for (Size j = 0; j < whole; j += WIDTH) {
            NAMED(leads_of)(row + j, top, u);
            NAMED(brier_exp_lanes)(u, beta, 0, scratch + j, sum);
        }
        if (whole < classes) {
            NAMED(leads_of)(last, top, u);
            NAMED(brier_exp_lanes)(u, beta, seen, tail, sum);
        }
        REAL middle = NAMED(sum_of_lanes)(sum[1]) / NAMED(sum_of_lanes)(sum[0]);
        FOR_LANES mean[r] = middle;
        for (Size j = 0; j < whole; j += WIDTH) {
            NAMED(leads_of)(row + j, top, u);
            if (mixture) NAMED(brier_lanes)(u, scratch + j, mean, 1, 0, sum);
            else NAMED(brier_lanes)(u, scratch + j, mean, 0, 0, sum);
        }
        if (whole < classes) {
            NAMED(leads_of)(last, top, u);
            NAMED(brier_lanes)(u, tail, mean, mixture, seen, sum);
        }
        for (Size k = 0; k < SUMS; k++) total[k][0] = NAMED(sum_of_lanes)(sum[k]);
        REAL u_y = row[y[i]] - top;
        NAMED(brier_results)(total, 0, EXP(beta * u_y), u_y, mixture, n, out + i);
    }
}

#undef SUMS
