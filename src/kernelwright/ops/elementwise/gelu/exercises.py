"""Rungs of gelu as exercises: one element per thread, then one block of elements per program."""

from kernelwright.contract.exercise import Exercise, Target, Task

EXERCISES = (
    Exercise(
        "gelu.numba_thread",
        10,
        "gelu of each element, exact and by tanh, in float32",
        "one thread per element, in blocks of 128 or more; the last block may have spare threads",
        (
            Task(
                "gelu_fwd_thread",
                (
                    "cuda.grid(1) is the index of this thread in the whole grid, and of its "
                    "element.",
                    "The grid is rounded up to whole blocks, so the last threads have no element: "
                    "they must access neither x nor y. n is the number of elements.",
                    "gelu(x) = x/2 (1 + erf(x / sqrt 2)). math.erf works here, and the constants "
                    "above are float32: a plain 0.5 would make the expression float64.",
                ),
            ),
            Task(
                "gelu_tanh_fwd_thread",
                (
                    "The same with the approximation: x/2 (1 + tanh u), u = sqrt(2/pi) (x + "
                    "0.044715 x^3). Read x[i] once, into a variable.",
                ),
            ),
        ),
    ),
    Exercise(
        "gelu.cuda_thread",
        20,
        "gelu of each element, of 16-bit types too, computed in float",
        "grid (n / block, rounded up), block threads; one element per thread",
        (
            Task(
                "gelu",
                (
                    "TANH is a compile-time constant: `if constexpr (TANH)` leaves one formula in "
                    "the binary.",
                    "Write float constants with an f (0.5f): a double would cost 64-bit "
                    "arithmetic, at half the rate on an H200 and at 1/64 on a consumer GPU.",
                ),
            ),
            Task(
                "gelu_fwd_thread",
                (
                    "The thread's element is blockIdx.x * blockDim.x + threadIdx.x. Widen to long "
                    "long before you multiply: 32 bits overflow beyond 2^31 elements.",
                    "The last block extends beyond n: threads there must neither load nor store.",
                    "kw::to_float(x[i]) widens any storage type, kw::from_float<T>(y) rounds back.",
                ),
            ),
        ),
        (Target("sectors", 0.3),),
    ),
    Exercise(
        "gelu.triton_block",
        30,
        "gelu of n elements, BLOCK in each program",
        "one program for each BLOCK elements, rounded up; TANH picks the formula",
        (
            Task(
                "gelu_fwd_block",
                (
                    "There are no threads here. A program handles BLOCK elements at once: their "
                    "indices are tl.program_id(0) * BLOCK + tl.arange(0, BLOCK). Convert the "
                    "program's index to int64 first (.to(tl.int64)).",
                    "Pass a mask (indices < n) to both tl.load and tl.store: where it is false, "
                    "no memory is accessed.",
                    "Compute in float32: .to(tl.float32) after the load. gelu_tanh(x) and "
                    "gelu_erf(x, dtype of the result) are imported; the dtype of x is "
                    "x_ptr.dtype.element_ty. `if TANH:` is decided when the kernel is compiled.",
                    "Store in the result's type: y.to(y_ptr.dtype.element_ty).",
                ),
            ),
        ),
    ),
)
