/* NAS MG, resid: r = v - A u, and the border exchange behind it reads what was written. R is re-read, not re-written
   soon: clean. */
#include <stdlib.h>

#define N 66
#define AT(i3, i2, i1) (((i3) * N + (i2)) * N + (i1))

__attribute__((noinline)) static void resid(const double *u, const double *v, double *r, long i3) {
    for (long i2 = 1; i2 < N - 1; i2++)
        for (long i1 = 1; i1 < N - 1; i1++)
            r[AT(i3, i2, i1)] = v[AT(i3, i2, i1)] + 8.0 / 3 * u[AT(i3, i2, i1)]
                                - 1.0 / 6 * (u[AT(i3 - 1, i2, i1)] + u[AT(i3 + 1, i2, i1)])
                                - 1.0 / 12 * (u[AT(i3, i2 - 1, i1)] + u[AT(i3, i2 + 1, i1)]);
}

__attribute__((noinline)) static double norm(const double *r, long i3) {
    double sum = 0;
    for (long i2 = 1; i2 < N - 1; i2++)
        for (long i1 = 1; i1 < N - 1; i1++) sum += r[AT(i3, i2, i1)] * r[AT(i3, i2, i1)];
    return sum;
}

int main(void) {
    double *u = calloc(N * N * N, sizeof *u), *v = calloc(N * N * N, sizeof *v), *r = calloc(N * N * N, sizeof *r);
    double sum = 0;
    for (int cycle = 0; cycle < 4; cycle++)
        for (long i3 = 1; i3 < N - 1; i3++) {
            resid(u, v, r, i3);
            sum += norm(r, i3);
        }
    return sum == 1 ? 1 : 0;
}
