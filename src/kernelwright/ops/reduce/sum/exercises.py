"""Rungs of sum as exercises: threads that must wait for each other, then warps, then blocks."""

from kernelwright.contract.exercise import Exercise, Task

_TID = "const unsigned tid = threadIdx.x;"

EXERCISES = (
    Exercise(
        "sum.numba_block",
        40,
        "shared memory and barriers: a tree of additions by a block",
        "blocks of up to 256 threads, a power of two; a second launch of the same kernel adds "
        "what the blocks leave",
        (
            Task(
                "sum_block",
                (
                    "First each thread alone: start at its number in the grid, cuda.grid(1), and "
                    "walk in steps of all threads of the grid, cuda.gridsize(1), up to n. Add into "
                    "a variable that starts as dtype(0), not as 0.",
                    "Put that sum into shared[tid], and let every thread of the block arrive "
                    "(cuda.syncthreads()) before anybody reads a neighbour's.",
                    "Halve: with half = blockDim.x // 2, threads below half add shared[tid + half] "
                    "to their own. Then half //= 2, until it is 0.",
                    "Each halving reads what the one before wrote, so each ends with a barrier, "
                    "and all threads must reach it: it stands outside of the `if`.",
                    "Thread 0 stores shared[0] to y[cuda.blockIdx.x].",
                ),
                given="tid = cuda.threadIdx.x",
            ),
        ),
    ),
    Exercise(
        "sum.cuda_interleaved",
        50,
        "the first tree in CUDA C++: neighbours first",
        "grid (n / block, rounded up), block threads, one accumulator a thread of shared memory; "
        "launched again over the blocks' sums until one is left",
        (
            Task(
                "sum_interleaved",
                (
                    "Element i = blockIdx.x * blockDim.x + tid, as long long. A thread past n "
                    "brings A(0), which changes no sum. kw::widen turns any type into A.",
                    "s[tid] = that, then __syncthreads(): nobody may read s before all have "
                    "written.",
                    "For step = 1, 2, 4, ... below blockDim.x: where tid is a multiple of "
                    "2 * step, s[tid] += s[tid + step].",
                    "A barrier ends every step, outside of the `if`: a barrier that only some "
                    "threads reach is undefined.",
                    "Thread 0 stores kw::narrow<Out>(s[0]) to y[blockIdx.x].",
                ),
                given=_TID,
            ),
        ),
    ),
    Exercise(
        "sum.cuda_sequential",
        60,
        "the same tree without divergence or bank conflicts",
        "grid (n / block, rounded up), block threads, one accumulator a thread of shared memory; "
        "launched again over the blocks' sums until one is left",
        (
            Task(
                "sum_sequential",
                (
                    "Bring your element to s[tid], or A(0) past n; barrier.",
                    "Start with half = blockDim.x / 2. Threads below half add the element that "
                    "lies half places on. Working threads are neighbours, so warps retire whole; "
                    "and neighbours touch neighbouring banks.",
                    "half /= 2 until it is 0. What may not run ahead of what? Place the barrier.",
                    "Thread 0 stores the block's sum, narrowed, to y[blockIdx.x].",
                ),
                given=_TID,
            ),
        ),
    ),
    Exercise(
        "sum.cuda_shuffle",
        90,
        "warp shuffles: lanes read each other's registers",
        "a grid of fewer blocks than the input has, so that each thread adds many elements; "
        "launched again over the blocks' sums until one is left",
        (
            Task(
                "sum_shuffle",
                (
                    "A grid-stride loop: from this thread's number in the grid to n, in steps of "
                    "gridDim.x * BLOCK, into a register A. Index in long long.",
                    "Within a warp: for lane = 16, 8, 4, 2, 1 add "
                    "__shfl_xor_sync(0xffffffffu, sum, lane). All 32 lanes then hold the warp's "
                    "sum. kw::warp_reduce<kw::Sum> is that loop.",
                    "Across warps: lane 0 of each writes scratch[warp], a barrier, and one more "
                    "warp reduction over scratch; lanes without a warp bring 0. "
                    "kw::block_reduce<kw::Sum>(sum, scratch) is all of it: write it out first.",
                    "One thread stores the sum, narrowed, to y[blockIdx.x].",
                ),
                given="__shared__ A scratch",
            ),
        ),
    ),
    Exercise(
        "sum.triton_block",
        80,
        "a two-dimensional tile with a loop, and a reduction at the end",
        "programs (rows / ROWS, splits): program_id(1) shares a row with num_programs(1) others; "
        "x and y are walked by their strides",
        (
            Task(
                "sum_block",
                (
                    "Two axes: row numbers as a column, tl.program_id(0) * ROWS + "
                    "tl.arange(0, ROWS)[:, None] in int64, and column numbers as a row, "
                    "tl.arange(0, COLS)[None, :]. They broadcast to a tile.",
                    "Keep a running sum for every place of the tile, tl.zeros((ROWS, COLS), "
                    "dtype=ACC). Adding tile to tile needs no communication.",
                    "The loop starts at tl.program_id(1) * COLS and steps by tl.num_programs(1) * "
                    "COLS, so that programs which share a row never read the same columns. Both "
                    "in int64.",
                    "The mask has two parts: rows < n_rows, and start + col < n_cols. What is "
                    "masked must load as 0 (other=0.0): it is added up.",
                    "tl.sum(total, axis=1, keep_dims=True) ends it: one number a row, stored at "
                    "y_ptr + row * y_stride + tl.program_id(1) * y_split, where rows exist.",
                ),
            ),
        ),
    ),
    Exercise(
        "sum.cuda_last_block",
        150,
        "blocks that hand over within one launch: fence, count, read",
        "grid (blocks, rows): blockIdx.y is the row; partials has a place and arrived a counter "
        "for each row's blocks",
        (
            Task(
                "sum_last_block",
                (
                    "`sum` is this block's; thread 0 of the block leaves it in "
                    "partials[row * gridDim.x + blockIdx.x].",
                    "kw::is_last_block(arrived + row, gridDim.x) orders that store before a count "
                    "and is true, in every thread, for the block that arrives last. All others "
                    "return.",
                    "The last block adds all partial sums of its row, thread t those at t, "
                    "t + BLOCK, ...: by place and not by arrival, so that the bits never change.",
                    "Read them with __ldcg: other blocks wrote them during this launch, and L1 "
                    "is not told.",
                    "Reduce over the block once more; thread 0 stores to y[row * y_stride].",
                ),
                given="A sum = kw::block_reduce",
            ),
        ),
    ),
)
