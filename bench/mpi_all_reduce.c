/* mpi_all_reduce.c - the times of MPI_Allreduce over sizes.
 *
 * Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
 *
 * bench/all_reduce_vs_mpi.py compiles and runs it: arguments are timed calls, calls before them,
 * and sizes in bytes. Prints a line for each size: bytes and the slowest rank's microseconds per
 * call, measured as gridloom bench all_reduce does: sums of f32, out of place.
 */
#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>

static void run(const float *in, float *out, int count, int times) {
  for (int i = 0; i < times; ++i)
    MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc < 4) {
    if (rank == 0)
      fprintf(stderr, "usage: mpi_all_reduce CALLS WARMUP BYTES...\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  int calls = atoi(argv[1]), warmup = atoi(argv[2]);
  for (int i = 3; i < argc; ++i) {
    size_t bytes = (size_t)atol(argv[i]);
    int count = (int)(bytes / sizeof(float));
    float *in = malloc(bytes), *out = malloc(bytes);
    if (!in || !out)
      MPI_Abort(MPI_COMM_WORLD, 3);
    for (int k = 0; k < count; ++k)
      in[k] = (float)((rank * 3 + k) % 5);
    run(in, out, count, warmup);
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime();
    run(in, out, count, calls);
    double mine = (MPI_Wtime() - begin) / calls * 1e6, slowest;
    MPI_Reduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    for (int k = 0; k < count; ++k) {
      float sum = 0;
      for (int other = 0; other < ranks; ++other)
        sum += (float)((other * 3 + k) % 5);
      if (out[k] != sum)
        MPI_Abort(MPI_COMM_WORLD, 4);
    }
    if (rank == 0)
      printf("%zu %.2f\n", bytes, slowest);
    free(in);
    free(out);
  }
  MPI_Finalize();
  return 0;
}
