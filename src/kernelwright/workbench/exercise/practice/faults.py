"""Exercises whose kernel has one planted fault to find."""

from kernelwright.contract.exercise import Exercise, Target, Task

_FAULT = "find the fault"

FAULTS = (
    Exercise(
        "row_sum.cuda_block",
        38,
        f"{_FAULT}: y[row] = the sum of a row",
        "one block of 256 threads for each row",
        (
            Task(
                "row_sum",
                (
                    "Which threads execute each __syncthreads()?",
                    "A barrier must be reached by all threads of the block. What does thread 255 "
                    "do while half is 128?",
                ),
                planted=(
                    ("    if (tid < half) sums", "    if (tid < half) {\n      sums"),
                    ("half];\n    __sync", "half];\n      __sync"),
                    ("\n  }\n  if (tid == 0)", "\n    }\n  }\n  __syncthreads();\n  if (tid == 0)"),
                ),
            ),
        ),
        name="fault.row_sum",
    ),
    Exercise(
        "vector_add.cuda_thread",
        8,
        f"{_FAULT}: c = a + b",
        "(n + 255) / 256 blocks of 256 threads",
        (
            Task(
                "vector_add",
                (
                    "For n = 256 there are 256 threads. For n = 257, how many?",
                    "Which elements do the threads of the last block access?",
                ),
                planted=(("i < n", "i <= n"),),
            ),
        ),
        name="fault.vector_add",
    ),
    Exercise(
        "histogram.cuda_shared",
        71,
        f"{_FAULT}: counts[b] = how many elements of x are b",
        "up to 64 blocks of 256 threads; bins integers of dynamic shared memory",
        (
            Task(
                "histogram",
                (
                    "What does shared memory hold when a block starts?",
                    "A block has 256 threads. How many bins may there be?",
                ),
                planted=(
                    (
                        "  for (int b = threadIdx.x; b < bins; b += blockDim.x) mine[b] = 0;",
                        "  if (threadIdx.x < bins) mine[threadIdx.x] = 0;",
                    ),
                ),
            ),
        ),
        name="fault.histogram",
    ),
    Exercise(
        "prefix_sum.cuda_block",
        72,
        f"{_FAULT}: y[row][i] = x[row][0] + ... + x[row][i]",
        "one block of 128 threads for each row",
        (
            Task(
                "prefix_sum",
                (
                    "The results may be right each time you try: in which order do the threads of "
                    "two warps run?",
                    "For each shared variable: who writes it, who reads it, and which barrier lies "
                    "between? Follow the loop round into its next turn.",
                ),
                planted=(("      now ^= 1;\n", ""),),
            ),
        ),
        name="fault.prefix_sum",
    ),
    Exercise(
        "transpose.cuda_tile",
        73,
        "correct, but slower than necessary: y = x transposed",
        "blocks of 32 x 8 threads, one for each 32 x 32 elements of x, rounded up",
        (
            Task(
                "transpose",
                (
                    "The counter says what is wrong: accesses to shared memory. Which one?",
                    "Word w of shared memory lies in bank w % 32. In which banks do the elements "
                    "lie that the lanes of a warp read together?",
                ),
                planted=(("tile[kSide][kSide + 1]", "tile[kSide][kSide]"),),
            ),
        ),
        (Target("sectors", 0.3), Target("conflicts", 0)),
        name="fault.tile",
    ),
)
