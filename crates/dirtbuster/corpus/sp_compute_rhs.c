/* NAS SP, compute_rhs: of many matrices one, RHS, takes the writes, and is rarely reused: a pre-store. */
#include <stdlib.h>

#define N 40
#define AT(k, j, i, m) ((((k) * N + (j)) * N + (i)) * 5 + (m))

__attribute__((noinline)) static void compute_rhs(const double *u, const double *forcing, const double *us, double *rhs) {
    for (long k = 1; k < N - 1; k++)
        for (long j = 1; j < N - 1; j++)
            for (long i = 1; i < N - 1; i++)
                for (long m = 0; m < 5; m++)
                    rhs[AT(k, j, i, m)] = forcing[AT(k, j, i, m)]
                                          + 0.75 * (u[AT(k, j, i + 1, m)] - 2 * u[AT(k, j, i, m)] + u[AT(k, j, i - 1, m)])
                                          - us[(k * N + j) * N + i];
}

int main(void) {
    double *u = calloc(N * N * N * 5, sizeof *u), *forcing = calloc(N * N * N * 5, sizeof *forcing);
    double *us = calloc(N * N * N, sizeof *us), *rhs = calloc(N * N * N * 5, sizeof *rhs);
    for (int step = 0; step < 3; step++) compute_rhs(u, forcing, us, rhs);
    return rhs[AT(3, 3, 3, 3)] == 1 ? 1 : 0;
}
