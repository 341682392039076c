"""Exercises on the operators of practice."""

from kernelwright.contract.exercise import Exercise, Target, Task

from .faults import FAULTS

_COALESCED = Target("sectors", 0.3)
_NO_CONFLICTS = Target("conflicts", 0)

WRITE = (
    Exercise(
        "vector_add.numba_thread",
        2,
        "c = a + b, for any number of elements",
        "(n + 63) / 64 blocks of 64 threads",
        (
            Task(
                "vector_add",
                (
                    "Every thread runs this function. Give each its own element: cuda.grid(1) is "
                    "the index of a thread in the whole grid.",
                    "There are more threads than elements if 64 does not divide n. The others "
                    "must access neither a, b nor c: if i < n.",
                ),
            ),
        ),
    ),
    Exercise(
        "vector_add.cuda_thread",
        4,
        "c = a + b, for any number of elements",
        "(n + 255) / 256 blocks of 256 threads",
        (
            Task(
                "vector_add",
                (
                    "A thread knows its place: blockIdx.x, blockDim.x (the threads of a block) and "
                    "threadIdx.x. Its index in the grid is blockIdx.x * blockDim.x + threadIdx.x.",
                    "Compute the index as long long: a vector may have more than 2^31 elements.",
                    "Threads with an index of n or more must access nothing.",
                    "If a warp touches more sectors than the target, its neighboring threads do "
                    "not access neighboring elements.",
                ),
            ),
        ),
        (Target("sectors", 0.4),),
    ),
    Exercise(
        "vector_add.triton_block",
        6,
        "c = a + b, for any number of elements",
        "one program for each BLOCK elements, rounded up",
        (
            Task(
                "vector_add",
                (
                    "A program works on BLOCK elements at once: their indices are "
                    "tl.program_id(0) * BLOCK + tl.arange(0, BLOCK).",
                    "tl.load(a_ptr + indices, mask=...) reads them, tl.store(c_ptr + indices, "
                    "values, mask=...) writes them. Where the mask is false nothing is accessed.",
                ),
            ),
        ),
    ),
    Exercise(
        "row_sum.numba_block",
        34,
        "y[row] = the sum of a row of any length",
        "one block of THREADS threads for each row",
        (
            Task(
                "row_sum",
                (
                    "The elements of row r are x[r * columns] and the following; a block's row is "
                    "cuda.blockIdx.x. Share them out: thread tid adds elements tid, tid + THREADS, "
                    "and so on, in a variable that starts as float32(0.0).",
                    "Threads of a block exchange values through shared memory: sums = "
                    "cuda.shared.array(THREADS, float32). Each stores its sum in sums[tid].",
                    "No thread may read the sum of another before it is written: "
                    "cuda.syncthreads() waits until all threads of the block have arrived.",
                    "Then add the THREADS sums: one thread can do it in a loop. Faster: the first "
                    "half of the threads adds the sums of the second half to its own, then the "
                    "first quarter, each step followed by a barrier that all threads reach.",
                    "One thread stores the result in y[cuda.blockIdx.x].",
                ),
            ),
        ),
    ),
    Exercise(
        "row_sum.cuda_block",
        36,
        "y[row] = the sum of a row of any length",
        "one block of 256 threads for each row",
        (
            Task(
                "row_sum",
                (
                    "The elements of row r are x[r * columns] and the following; a block's row is "
                    "blockIdx.x. First let each thread add a part of them, in a register. For few "
                    "sectors, neighboring threads add neighboring elements: thread t adds t, t + "
                    "256, ...",
                    "Threads of a block exchange values through shared memory: __shared__ float "
                    "sums[256]. Each thread stores its sum there.",
                    "No thread may read the sum of another before it is written: __syncthreads() "
                    "waits until all threads of the block have arrived.",
                    "Then add the 256 sums. One thread can do it in a loop. Faster: for half = "
                    "128, 64, ..., 1, threads below half add sums[tid + half] to sums[tid].",
                    "Each step reads what the one before wrote, so a barrier follows each. All "
                    "threads must reach it: not inside the if.",
                ),
            ),
        ),
        (Target("sectors", 0.2), _NO_CONFLICTS),
    ),
    Exercise(
        "transpose.numba_tile",
        61,
        "y = x transposed",
        "blocks of SIDE x SIDE threads, one for each SIDE x SIDE elements of x, rounded up",
        (
            Task(
                "transpose",
                (
                    "x has `rows` rows of `columns` elements: element (r, c) is x[r * columns + "
                    "c], and belongs to y[c * rows + r]. A thread has two indices: "
                    "cuda.threadIdx.x and .y, in block cuda.blockIdx.x and .y.",
                    "Both sizes need a bound, and those of x and y differ.",
                    "For coalesced reads and writes, go through a tile in shared memory: "
                    "cuda.shared.array((SIDE, SIDE + 1), float32), written by rows, read by "
                    "columns, with a barrier between.",
                ),
            ),
        ),
    ),
    Exercise(
        "transpose.cuda_tile",
        62,
        "y = x transposed, loads and stores in few sectors",
        "blocks of 32 x 8 threads, one for each 32 x 32 elements of x, rounded up: each thread "
        "moves four elements",
        (
            Task(
                "transpose",
                (
                    "x has `rows` rows of `columns` elements: element (r, c) is x[r * columns + "
                    "c], and belongs to y[c * rows + r]. threadIdx.x is 0 to 31, threadIdx.y 0 to "
                    "7: a thread takes rows threadIdx.y, threadIdx.y + 8, ... of its block's 32.",
                    "If a warp's loads lie together, its stores lie `rows` apart: 32 sectors. Let "
                    "both lie together, and turn the tile in shared memory: written by rows, read "
                    "by columns, with __syncthreads() between.",
                    "On the way out the block's place is the mirrored one: rows of y start at "
                    "blockIdx.x * 32, columns at blockIdx.y * 32. So the bounds are mirrored too.",
                    "The elements of a column of a [32][32] tile lie in one bank. A row of 33 puts "
                    "them into 32 banks.",
                ),
            ),
        ),
        (_COALESCED, _NO_CONFLICTS),
    ),
    Exercise(
        "transpose.triton_tile",
        63,
        "y = x transposed",
        "programs (columns / SIDE, rows / SIDE), rounded up",
        (
            Task(
                "transpose",
                (
                    "tl.program_id(1) counts tiles down x, tl.program_id(0) tiles across. Make a "
                    "vector of SIDE row numbers and one of SIDE column numbers.",
                    "row[:, None] * columns + column[None, :] are the places of a tile of x; the "
                    "mask has two parts, one for each size.",
                    "tl.trans turns a tile, and a mask.",
                ),
            ),
        ),
    ),
    Exercise(
        "matmul.numba_tile",
        64,
        "the matrix product c = a b",
        "blocks of TILE x TILE threads, one for each TILE x TILE elements of c, rounded up",
        (
            Task(
                "matmul_tile",
                (
                    "a is m x k with rows lda apart, b is k x n with rows ldb apart, c is m x n. "
                    "A thread computes the element of c at its own row and column.",
                    "The threads of a block need the same TILE rows of a and TILE columns of b. "
                    "Copy TILE x TILE elements of each to shared memory, one per thread, with 0 "
                    "beyond the matrix; use them; go on to the next TILE along k.",
                    "Two barriers in each turn: after the copy, before any thread multiplies; and "
                    "after the products, before the next copy overwrites the tiles.",
                ),
            ),
        ),
    ),
    Exercise(
        "matmul.cuda_shared",
        65,
        "the matrix product c = a b, in few sectors",
        "blocks of 32 x 32 threads, one for each 32 x 32 elements of c, rounded up",
        (
            Task(
                "matmul_shared",
                (
                    "a is m x k with rows lda apart, b is k x n with rows ldb apart, c is m x n. "
                    "A thread computes the element of c at its own row and column: neighbors along "
                    "threadIdx.x in neighboring columns.",
                    "The 1,024 threads of a block need the same 32 rows of a and 32 columns of b. "
                    "Copy 32 x 32 elements of each to shared memory, one per thread, with 0 beyond "
                    "the matrix; use them; go on to the next 32 along k.",
                    "Two barriers in each turn: after the copy, before any thread multiplies; and "
                    "after the products, before the next copy overwrites the tiles.",
                    "A thread without an element of c takes part in the copies and the barriers; "
                    "only its store is left out.",
                ),
            ),
        ),
        (Target("sectors", 2), _NO_CONFLICTS),
    ),
    Exercise(
        "histogram.cuda_shared",
        66,
        "counts[b] = how many elements of x are b",
        "up to 64 blocks of 256 threads, fewer than elements; counts starts as 0; shared memory "
        "for `bins` integers (extern __shared__ int name[])",
        (
            Task(
                "histogram",
                (
                    "A grid-stride loop: from the thread's index in the grid to n, in steps of "
                    "gridDim.x * blockDim.x.",
                    "Many threads add to one count: counts[b] += 1 loses some. atomicAdd(&counts[b]"
                    ", 1) does not.",
                    "For few global atomics, let each block count in its own shared memory, and "
                    "add its counts to the result at the end: bins atomics per block.",
                    "Shared memory is not zero at the start. Set it, for any number of bins, then "
                    "a barrier; and a second one before the counts are added up.",
                ),
            ),
        ),
        (Target("atomics", 0.2),),
    ),
    Exercise(
        "prefix_sum.numba_block",
        67,
        "y[row][i] = x[row][0] + ... + x[row][i]",
        "one block of THREADS threads for each row",
        (
            Task(
                "prefix_sum",
                (
                    "Scan THREADS elements at a time, and carry their total to the next ones.",
                    "Within a tile in shared memory: in step s every element adds the one 2^s "
                    "places before it. After log2(THREADS) steps it holds the sum up to itself.",
                    "A step must not overwrite what another thread has yet to read: read from one "
                    "buffer and write to another, then a barrier.",
                ),
            ),
        ),
    ),
    Exercise(
        "prefix_sum.cuda_block",
        68,
        "y[row][i] = x[row][0] + ... + x[row][i]",
        "one block of 128 threads for each row",
        (
            Task(
                "prefix_sum",
                (
                    "Scan 128 elements at a time, and carry their total to the next ones. One "
                    "thread alone would touch a sector for each element.",
                    "Within a tile in shared memory: in step s every element adds the one 2^s "
                    "places before it. After 7 steps it holds the sum up to itself.",
                    "A step must not overwrite what another thread has yet to read: read from one "
                    "buffer and write to another, then a barrier. Or read into a register, "
                    "barrier, write, barrier.",
                    "The next tile must not overwrite what a slower thread has yet to read either.",
                ),
            ),
        ),
        (_COALESCED, _NO_CONFLICTS),
    ),
    Exercise(
        "layernorm.numba_block",
        111,
        "y = (x - mean) / sqrt(variance + eps) * weight + bias",
        "one block of THREADS threads for each row",
        (
            Task(
                "layernorm",
                (
                    "Mean and variance are sums over the row, by columns: the reduction of "
                    "row_sum.numba_block, twice. All threads need the result: all read it after "
                    "the last barrier.",
                    "The variance as E[x^2] - mean^2 cancels where the mean is large: take the "
                    "mean first, then add the squares of x - mean.",
                    "If the second sum overwrites what the first left in shared memory, a thread "
                    "may not have read it yet: another array, or one more barrier.",
                    "1 / math.sqrt(variance + eps); then a last loop over the row.",
                ),
            ),
        ),
    ),
    Exercise(
        "layernorm.cuda_block",
        112,
        "y = (x - mean) / sqrt(variance + eps) * weight + bias",
        "one block of 256 threads for each row",
        (
            Task(
                "layernorm",
                (
                    "Mean and variance are sums over the row, by columns: the reduction of "
                    "row_sum.cuda_block, twice. Write it as a __device__ function that returns the "
                    "sum to all threads.",
                    "The variance as E[x^2] - mean^2 cancels where the mean is large: take the "
                    "mean first, then add the squares of x - mean.",
                    "If two reductions use the same shared memory, a barrier must separate the "
                    "last read of the first from the first write of the second.",
                    "rsqrtf(variance + eps); then a last loop over the row.",
                ),
            ),
        ),
        (Target("sectors", 1.0), _NO_CONFLICTS),
    ),
    Exercise(
        "layernorm.triton_row",
        114,
        "the same, each element read once",
        "one program for each row; COLUMNS is `columns` rounded up to a power of two",
        (
            Task(
                "layernorm",
                (
                    "Load the row under a mask, with other=0.0, so that what is not there adds "
                    "nothing to tl.sum(x, axis=0).",
                    "x - mean is not 0 where nothing was loaded: tl.where(inside, x - mean, 0.0) "
                    "before the squares are added.",
                    "Divide by columns, not by COLUMNS; tl.rsqrt.",
                ),
            ),
        ),
    ),
)

EXERCISES = (*WRITE, *FAULTS)
