"""Requirements on the machine code of a product for Hopper's tensor cores."""

from kernelwright.contract import H200, Launch
from kernelwright.toolchain import binary, compiled, nvrtc


def holds(step: Launch, instruction: str = "HGMMA") -> None:
    """Compile a launch's kernel for an H200, and assert that the sums stay in registers, products
    are not serialized, the parameters match the plan, and shared memory suffices."""
    made = nvrtc.compile(step.kernel, H200.arch)
    used = binary.resources(made)
    assert (used.stack, used.spill_stores, used.spill_loads) == (0, 0, 0)
    assert binary.serialized_products(made) == []
    assert compiled.hidden_parameters(made, step.kinds) == 0
    assert used.static_shared + step.shared <= H200.shared_per_block
    assert instruction in binary.sass(made)
