"""Many processes on one GPU."""

from kernelwright.toolchain import driver

BLOCKING_SYNC = 4  # CU_CTX_SCHED_BLOCKING_SYNC


def wait_without_spinning() -> None:
    """This process sleeps while it waits for the GPU. By default it spins, and while the GPU serves
    another process, that takes a core from those which compile. To be called before this process
    uses the GPU."""
    library = driver.library()
    driver.check(library.cuInit(0), "cuInit")
    code = library.cuDevicePrimaryCtxSetFlags_v2(0, BLOCKING_SYNC)
    driver.check(code, "cuDevicePrimaryCtxSetFlags")
