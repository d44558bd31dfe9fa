/* NAS MG, psinv: u = u + C r over a grid of 64^3 (2.1 MB). U is neither re-read nor re-written soon: skip. */
#include <stdlib.h>

#define N 66
#define AT(i3, i2, i1) (((i3) * N + (i2)) * N + (i1))

__attribute__((noinline)) static void psinv(const double *r, double *u) {
    double r1[N], r2[N];
    for (long i3 = 1; i3 < N - 1; i3++)
        for (long i2 = 1; i2 < N - 1; i2++) {
            for (long i1 = 0; i1 < N; i1++) {
                r1[i1] = r[AT(i3, i2 - 1, i1)] + r[AT(i3, i2 + 1, i1)] + r[AT(i3 - 1, i2, i1)] + r[AT(i3 + 1, i2, i1)];
                r2[i1] = r[AT(i3 - 1, i2 - 1, i1)] + r[AT(i3 - 1, i2 + 1, i1)] + r[AT(i3 + 1, i2 - 1, i1)];
            }
            for (long i1 = 1; i1 < N - 1; i1++)
                u[AT(i3, i2, i1)] += -3.0 / 8 * r[AT(i3, i2, i1)] + 1.0 / 32 * (r[AT(i3, i2, i1 - 1)] + r1[i1])
                                     - 1.0 / 64 * (r2[i1] + r1[i1 - 1] + r1[i1 + 1]);
        }
}

int main(void) {
    double *r = calloc(N * N * N, sizeof *r), *u = calloc(N * N * N, sizeof *u);
    for (int cycle = 0; cycle < 4; cycle++) psinv(r, u);
    return u[AT(3, 3, 3)] == 1 ? 1 : 0;
}
