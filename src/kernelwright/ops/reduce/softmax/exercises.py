"""Rungs of softmax as exercises: the formula a thread, a block, a program, a warp a row."""

from kernelwright.contract.exercise import Exercise, Task

EXERCISES = (
    Exercise(
        "softmax.cuda_naive",
        70,
        "the formula as it stands, and why the maximum goes first",
        "one thread a row, in blocks of 128: the last block has threads to spare",
        (
            Task(
                "softmax_fwd_naive",
                (
                    "Three walks over the row's n_cols elements: the maximum, the sum of "
                    "exponentials, the quotients.",
                    "exp overflows float32 beyond 88. Subtracting the maximum first changes no "
                    "quotient, and no exponent is above 0.",
                    "fmaxf drops NaN, PyTorch keeps it: kw::max_nan(a, b). Start at "
                    "-kw::kInfinity, so that a row of -inf gives NaN as PyTorch does.",
                    "Add up in double: a chain of n additions in float loses digits with n.",
                    "kw::to_float(x[i]) reads any type, kw::from_float<T>(...) rounds to it.",
                ),
                given="y += row * n_cols;",
            ),
        ),
    ),
    Exercise(
        "softmax.numba_block",
        110,
        "a block a row: two reductions through one piece of shared memory",
        "one block of THREADS threads a row",
        (
            Task(
                "softmax_fwd_block",
                (
                    "Thread tid looks at columns tid, tid + THREADS, ...: its own maximum first, "
                    "from LOWEST on. NaN is larger than nothing: v > top or v != v.",
                    "Put it into parts[tid] and halve, as in sum.numba_block, with the larger "
                    "instead of the sum. A barrier before each halving, and one after the last "
                    "before anybody reads parts[0].",
                    "Everybody reads parts[0]; then one more barrier, for parts is about to be "
                    "overwritten, and a fast thread must not overtake a slow reader.",
                    "The same again with the sum of math.exp(x - top), from np.float32(0.0) on.",
                    "Last walk: y[target + i] = math.exp(x[source + i] - top) / total.",
                ),
                given="source, target =",
            ),
        ),
    ),
    Exercise(
        "softmax.triton_row",
        100,
        "a fused kernel: one read, one write, all else in registers",
        "programs of ROWS rows each; COLS is n_cols rounded up to a power of two",
        (
            Task(
                "softmax_fwd_row",
                (
                    "A tile of ROWS x COLS: row numbers as a column (int64), column numbers as a "
                    "row, a mask of both bounds.",
                    "Load with other=float('-inf'): what is masked must neither be the maximum "
                    "nor count in the sum. Then .to(tl.float32).",
                    "tl.max(x, axis=1, keep_dims=True) broadcasts against the tile. Use the "
                    "imported exp: tl.exp is less exact far from 0.",
                    "y = e / sum of e along the row; store in y's type, under the mask. x has "
                    "a row stride, y is contiguous: its rows are n_cols apart.",
                ),
            ),
        ),
    ),
    Exercise(
        "softmax.triton_online",
        130,
        "maximum and sum in one read, by rescaling what was summed so far",
        "one program a row; BLOCK columns at a time",
        (
            Task(
                "softmax_fwd_online",
                (
                    "Keep two vectors of BLOCK: top, the maximum each place has seen (-inf at "
                    "first), and total, the sum of exp(x - top) it has seen (0).",
                    "For each chunk: higher = the maximum of top and x, NaN kept "
                    "(tl.maximum(..., propagate_nan=tl.PropagateNan.ALL)). Old terms were "
                    "relative to top: multiply total by exp(top - higher), then add "
                    "exp(x - higher).",
                    "-inf - -inf is NaN. Where higher is -inf take 0 in its place in both "
                    "exponents: the sum stays 0.",
                    "After the loop fold the vectors: m = tl.reduce(top, 0, _max_nan), and the "
                    "sum of total * exp(top - m), with the same care for -inf.",
                    "Second walk: load again, store exp(x - m) divided by that sum.",
                ),
                given="y_ptr += row * n_cols",
            ),
        ),
    ),
    Exercise(
        "softmax.cuda_warp",
        140,
        "a row in a warp's registers: no shared memory, no barrier",
        "WIDTH lanes hold a row, VECS vectors of VEC elements a lane, ROWS rows at once",
        (
            Task(
                "softmax_fwd_warp",
                (
                    "The loads are done: raw[r][v] holds row first + r; places past the end hold "
                    "-inf. For each r (#pragma unroll, so that arrays stay in registers):",
                    "max = kw::warp_reduce<kw::Max, WIDTH>(kw::max_of(raw[r])): all WIDTH lanes "
                    "get it. Lanes without elements must come along.",
                    "kw::to_float(raw[r][v], e[v]) unpacks a vector; kw::exp_scaled<T>(e - max) is "
                    "exp but for a constant that cancels. Sum within a vector first, then over "
                    "vectors, then kw::warp_reduce<kw::Sum, WIDTH>.",
                    "Multiply by kw::reciprocal<T>(sum), and kw::store_if(y + (first + r) * n_cols "
                    "+ col, row and column exist, kw::from_float<T>(e[v])) with col as above.",
                ),
                given="inside, -kw::kInfinity);\n    }",
            ),
        ),
    ),
    Exercise(
        "softmax.backward.triton_row",
        120,
        "a gradient from the result: the same tile, one more reduction",
        "programs of ROWS rows each; COLS is n_cols rounded up to a power of two",
        (
            Task(
                "softmax_bwd_row",
                (
                    "gx_i = y_i (gy_i - sum_j gy_j y_j): the Jacobian of softmax, "
                    "diag(y) - y y', never has to exist.",
                    "The tile and its mask are those of the forward. Here masked places load as "
                    "0: they are only added up.",
                    "gy and y have row strides of their own; gx is contiguous.",
                    "Compute in float32, store in gx's type.",
                ),
            ),
        ),
    ),
)
