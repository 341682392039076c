"""Rungs of softmax as exercises: a row per thread, per block, per program, per warp."""

from kernelwright.contract.exercise import Exercise, Target, Task

EXERCISES = (
    Exercise(
        "softmax.cuda_naive",
        70,
        "softmax of a row, for values of any size, NaN and inf",
        "one thread per row, in blocks of 128; the last block may have spare threads",
        (
            Task(
                "softmax_fwd_naive",
                (
                    "Three loops over the row's n_cols elements: the maximum, the sum of "
                    "exponentials, the quotients.",
                    "exp overflows float32 beyond 88. Subtracting the maximum first does not "
                    "change the quotients, and no exponent is above 0.",
                    "fmaxf ignores NaN, PyTorch propagates it: use kw::max_nan(a, b). Start at "
                    "-kw::kInfinity, so that a row of -inf gives NaN, as in PyTorch.",
                    "Accumulate in double: the error of n successive additions in float grows "
                    "with n.",
                    "kw::to_float(x[i]) reads any type, kw::from_float<T>(...) rounds to it.",
                ),
                given="y += row * n_cols;",
            ),
        ),
    ),
    Exercise(
        "softmax.numba_block",
        110,
        "softmax of a row, by the threads of a block",
        "one block of THREADS threads per row",
        (
            Task(
                "softmax_fwd_block",
                (
                    "Thread tid reads columns tid, tid + THREADS, ... First find its own maximum, "
                    "starting from LOWEST. A comparison with NaN is false: test v > top or v != "
                    "v.",
                    "Store it in parts[tid] and reduce by halves as in sum.numba_block, with the "
                    "maximum in place of the sum. A barrier precedes each halving, and one "
                    "follows the last, before parts[0] is read.",
                    "All threads read parts[0]. Then one more barrier: parts is about to be "
                    "overwritten, and some threads may not have read it yet.",
                    "Do the same with the sum of math.exp(x - top), starting from np.float32(0.0).",
                    "Last loop: y[target + i] = math.exp(x[source + i] - top) / total.",
                ),
                given="source, target =",
            ),
        ),
    ),
    Exercise(
        "softmax.triton_row",
        100,
        "softmax of rows, each element read once",
        "programs of ROWS rows each; COLS is n_cols rounded up to a power of two",
        (
            Task(
                "softmax_fwd_row",
                (
                    "A tile of ROWS x COLS: row numbers as a column (int64), column numbers as a "
                    "row, a mask of both bounds.",
                    "Load with other=float('-inf'): masked elements must change neither the "
                    "maximum nor the sum. Then .to(tl.float32).",
                    "tl.max(x, axis=1, keep_dims=True) broadcasts against the tile. Use the "
                    "imported exp: tl.exp is less accurate far from 0.",
                    "y = e / sum of e along the row; store in y's type, under the mask. x has a "
                    "row stride, y is contiguous: its rows are n_cols apart.",
                ),
            ),
        ),
    ),
    Exercise(
        "softmax.triton_online",
        130,
        "softmax of a row of any length, each element read twice",
        "one program per row; BLOCK columns at a time",
        (
            Task(
                "softmax_fwd_online",
                (
                    "Keep two vectors of BLOCK elements: top, the maximum at each position so far "
                    "(initially -inf), and total, the sum of exp(x - top) so far (initially 0).",
                    "For each chunk: higher = the maximum of top and x, NaN propagated "
                    "(tl.maximum(..., propagate_nan=tl.PropagateNan.ALL)). Old terms were "
                    "relative to top: multiply total by exp(top - higher), then add exp(x - "
                    "higher).",
                    "-inf - -inf is NaN. Where higher is -inf, use 0 instead in both exponents: "
                    "the sum stays 0.",
                    "After the loop, reduce the vectors: m = tl.reduce(top, 0, _max_nan), and the "
                    "sum of total * exp(top - m), treating -inf in the same way.",
                    "Second loop: load again, store exp(x - m) divided by that sum.",
                ),
                given="y_ptr += row * n_cols",
            ),
        ),
    ),
    Exercise(
        "softmax.cuda_warp",
        140,
        "softmax of a row without shared memory",
        "WIDTH lanes hold a row, VECS vectors of VEC elements per lane, ROWS rows at once",
        (
            Task(
                "softmax_fwd_warp",
                (
                    "The loads are given: raw[r][v] holds row first + r; elements past the end "
                    "are -inf. For each r (#pragma unroll, so that arrays stay in registers):",
                    "max = kw::warp_reduce<kw::Max, WIDTH>(kw::max_of(raw[r])): all WIDTH lanes "
                    "receive it, and all must take part, also those without elements.",
                    "kw::to_float(raw[r][v], e[v]) unpacks a vector; kw::exp_scaled<T>(e - max) "
                    "is exp times a constant, which cancels. Sum within a vector first, then over "
                    "vectors, then kw::warp_reduce<kw::Sum, WIDTH>.",
                    "Multiply by kw::reciprocal<T>(sum), and kw::store_if(y + (first + r) * "
                    "n_cols + col, row and column exist, kw::from_float<T>(e[v])) with col as "
                    "above.",
                ),
                given="inside, -kw::kInfinity);\n    }",
            ),
        ),
        (Target("sectors", 0.3),),
    ),
    Exercise(
        "softmax.backward.triton_row",
        120,
        "the gradient of softmax, each element read once",
        "programs of ROWS rows each; COLS is n_cols rounded up to a power of two",
        (
            Task(
                "softmax_bwd_row",
                (
                    "gx_i = y_i (gy_i - sum_j gy_j y_j): the Jacobian of softmax, diag(y) - y y', "
                    "is never formed.",
                    "The tile and its mask are those of the forward. Here masked elements load as "
                    "0, because they are only summed.",
                    "gy and y have their own row strides; gx is contiguous.",
                    "Compute in float32, store in gx's type.",
                ),
            ),
        ),
    ),
)
