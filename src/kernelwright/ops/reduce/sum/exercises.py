"""Rungs of sum as exercises: synchronization of threads, then of warps, then of blocks."""

from kernelwright.contract.exercise import Exercise, Target, Task

_TID = "const unsigned tid = threadIdx.x;"

EXERCISES = (
    Exercise(
        "sum.numba_block",
        40,
        "the sum of n elements, by several blocks",
        "blocks of up to 256 threads, a power of two; a second launch of the same kernel adds the "
        "blocks' results",
        (
            Task(
                "sum_block",
                (
                    "First each thread adds its own elements: from its index in the grid, "
                    "cuda.grid(1), up to n, in steps of the number of threads in the grid, "
                    "cuda.gridsize(1). Use a variable that starts as dtype(0), not as 0.",
                    "Store that sum in shared[tid], and wait for all threads of the block "
                    "(cuda.syncthreads()) before any thread reads the sum of another.",
                    "Reduce by halves: with half = blockDim.x // 2, threads below half add "
                    "shared[tid + half] to their own. Then half //= 2, until it is 0.",
                    "Each step reads what the previous one wrote, so each ends with a barrier. "
                    "All threads must reach it: place it outside the `if`.",
                    "Thread 0 stores shared[0] to y[cuda.blockIdx.x].",
                ),
                given="tid = cuda.threadIdx.x",
            ),
        ),
    ),
    Exercise(
        "sum.cuda_interleaved",
        50,
        "the sum of n elements of any dtype, by several blocks",
        "grid (n / block, rounded up), block threads, one accumulator per thread in shared "
        "memory; launched again over the blocks' sums until one is left",
        (
            Task(
                "sum_interleaved",
                (
                    "Element i = blockIdx.x * blockDim.x + tid, as long long. A thread beyond n "
                    "contributes A(0). kw::widen converts any type to A.",
                    "s[tid] = that, then __syncthreads(): no thread may read s before all have "
                    "written.",
                    "For step = 1, 2, 4, ... below blockDim.x: where tid is a multiple of 2 * "
                    "step, s[tid] += s[tid + step].",
                    "Each step ends with a barrier, outside the `if`: a barrier that only some "
                    "threads reach is undefined behavior.",
                    "Thread 0 stores kw::narrow<Out>(s[0]) to y[blockIdx.x].",
                ),
                given=_TID,
            ),
        ),
        (Target("sectors", 0.15),),
    ),
    Exercise(
        "sum.cuda_sequential",
        60,
        "the same with few divergent branches and no bank conflict",
        "grid (n / block, rounded up), block threads, one accumulator per thread in shared "
        "memory; launched again over the blocks' sums until one is left",
        (
            Task(
                "sum_sequential",
                (
                    "Store the thread's element in s[tid], or A(0) beyond n; then a barrier.",
                    "Start with half = blockDim.x / 2. Threads below half add the element at "
                    "distance half. The active threads are consecutive, so whole warps become "
                    "idle, and consecutive threads access consecutive banks.",
                    "half /= 2 until it is 0. Decide which accesses must be ordered, and place "
                    "the barrier.",
                    "Thread 0 stores the block's sum, narrowed, to y[blockIdx.x].",
                ),
                given=_TID,
            ),
        ),
        (Target("divergence", 0.03), Target("conflicts", 0)),
    ),
    Exercise(
        "sum.cuda_shuffle",
        90,
        "the same with one barrier; a thread adds many elements",
        "a grid of fewer blocks than the input has, so that each thread adds many elements; "
        "launched again over the blocks' sums until one is left",
        (
            Task(
                "sum_shuffle",
                (
                    "A grid-stride loop: from this thread's number in the grid to n, in steps of "
                    "gridDim.x * BLOCK, into a register A. Index in long long.",
                    "Within a warp: for lane = 16, 8, 4, 2, 1 add __shfl_xor_sync(0xffffffffu, "
                    "sum, lane). All 32 lanes then hold the warp's sum. kw::warp_reduce<kw::Sum> "
                    "is that loop.",
                    "Across warps: lane 0 of each writes scratch[warp], a barrier, and one more "
                    "warp reduction over scratch; lanes beyond the number of warps contribute 0. "
                    "kw::block_reduce<kw::Sum>(sum, scratch) does all of this: write it out "
                    "first.",
                    "One thread stores the sum, narrowed, to y[blockIdx.x].",
                ),
                given="__shared__ A scratch",
            ),
        ),
        (Target("sectors", 0.15), Target("divergence", 0.01)),
    ),
    Exercise(
        "sum.triton_block",
        80,
        "sums of rows, several programs to a row",
        "programs (rows / ROWS, splits): num_programs(1) programs share a row; x and y are "
        "accessed by their strides",
        (
            Task(
                "sum_block",
                (
                    "Two axes: row numbers as a column, tl.program_id(0) * ROWS + tl.arange(0, "
                    "ROWS)[:, None] in int64, and column numbers as a row, tl.arange(0, "
                    "COLS)[None, :]. They broadcast to a tile.",
                    "Keep a running sum for every position of the tile, tl.zeros((ROWS, COLS), "
                    "dtype=ACC). Adding tile to tile needs no communication.",
                    "The loop starts at tl.program_id(1) * COLS and steps by tl.num_programs(1) * "
                    "COLS, so that programs which share a row never read the same columns. Both "
                    "in int64.",
                    "The mask has two parts: rows < n_rows, and start + col < n_cols. Masked "
                    "elements must load as 0 (other=0.0), because they are summed.",
                    "tl.sum(total, axis=1, keep_dims=True) then gives one number per row, stored "
                    "at y_ptr + row * y_stride + tl.program_id(1) * y_split, where the row "
                    "exists.",
                ),
            ),
        ),
    ),
    Exercise(
        "sum.cuda_last_block",
        150,
        "sums of rows by several blocks, in one launch, reproducible",
        "grid (blocks, rows): blockIdx.y is the row; partials has one element for each block of a "
        "row, arrived one counter for each row",
        (
            Task(
                "sum_last_block",
                (
                    "`sum` is the sum of this block; thread 0 stores it in partials[row * "
                    "gridDim.x + blockIdx.x].",
                    "kw::is_last_block(arrived + row, gridDim.x) makes that store visible before "
                    "it counts the block, and is true in all threads of the block that arrives "
                    "last. All other blocks return.",
                    "The last block adds all partial sums of its row, thread t those at t, t + "
                    "BLOCK, ...: in the order of their positions and not of arrival, so that the "
                    "result has the same bits in every run.",
                    "Read them with __ldcg: other blocks wrote them during this launch, and L1 is "
                    "not coherent.",
                    "Reduce over the block once more; thread 0 stores to y[row * y_stride].",
                ),
                given="A sum = kw::block_reduce",
            ),
        ),
        (Target("sectors", 0.15),),
    ),
)
