/* Loaded before MPI, lets one of its calls fail: the nth, where n is HEED_FAILING_MPI. If the program made
 * fewer, it says so at its end. MPI lets programs replace its functions; the originals begin with P. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static long calls;

static long wanted(void) {
  const char *text = getenv("HEED_FAILING_MPI");
  return text ? strtol(text, NULL, 10) : 0;
}

#define FAILING(name, parameters, arguments)                                                                 \
  int MPI_##name parameters {                                                                                \
    return ++calls == wanted() ? MPI_ERR_OTHER : PMPI_##name arguments;                                      \
  }

FAILING(Init_thread, (int *argc, char ***argv, int level, int *given), (argc, argv, level, given))
FAILING(Comm_set_errhandler, (MPI_Comm c, MPI_Errhandler handler), (c, handler))
FAILING(Comm_rank, (MPI_Comm c, int *rank), (c, rank))
FAILING(Comm_size, (MPI_Comm c, int *size), (c, size))
FAILING(Comm_dup, (MPI_Comm c, MPI_Comm *out), (c, out))
FAILING(Comm_split, (MPI_Comm c, int color, int key, MPI_Comm *out), (c, color, key, out))
FAILING(Isend, (const void *x, int n, MPI_Datatype type, int to, int tag, MPI_Comm c, MPI_Request *r),
        (x, n, type, to, tag, c, r))
FAILING(Irecv, (void *x, int n, MPI_Datatype type, int from, int tag, MPI_Comm c, MPI_Request *r),
        (x, n, type, from, tag, c, r))
FAILING(Ibcast, (void *x, int n, MPI_Datatype type, int root, MPI_Comm c, MPI_Request *r),
        (x, n, type, root, c, r))
FAILING(Iallgather,
        (const void *x, int n, MPI_Datatype type, void *out, int m, MPI_Datatype of, MPI_Comm c,
         MPI_Request *r),
        (x, n, type, out, m, of, c, r))
FAILING(Ialltoall,
        (const void *x, int n, MPI_Datatype type, void *out, int m, MPI_Datatype of, MPI_Comm c,
         MPI_Request *r),
        (x, n, type, out, m, of, c, r))
FAILING(Type_contiguous, (int n, MPI_Datatype of, MPI_Datatype *type), (n, of, type))
FAILING(Type_create_struct,
        (int n, const int sizes[], const MPI_Aint at[], const MPI_Datatype of[], MPI_Datatype *type),
        (n, sizes, at, of, type))
FAILING(Type_commit, (MPI_Datatype * type), (type))
FAILING(Iprobe, (int from, int tag, MPI_Comm c, int *there, MPI_Status *status),
        (from, tag, c, there, status))
FAILING(Test, (MPI_Request * r, int *done, MPI_Status *status), (r, done, status))

static void say(void) __attribute__((destructor));
static void say(void) {
  if (calls < wanted()) fprintf(stderr, "MPI calls: %ld\n", calls);
}
