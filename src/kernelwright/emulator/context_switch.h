// Switching stacks: saves and restores the callee-saved registers in assembly.
#pragma once

// Save the registers on the current stack and its pointer in *save, then resume the stack `to`.
extern "C" void kw_switch(void **save, void *to);

#if defined(__x86_64__)
asm(R"(
.text
.globl kw_switch
.hidden kw_switch
.type kw_switch,@function
kw_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size kw_switch,.-kw_switch
)");

// A stack on which kw_switch starts `main`. `top` is aligned to 16 bytes.
inline void *fresh_stack(void *top, void (*main)()) {
  void **sp = static_cast<void **>(top);
  *--sp = nullptr;  // the return address of `main`: the stack is 8 bytes off a multiple of 16
  *--sp = reinterpret_cast<void *>(main);
  for (int i = 0; i < 6; ++i) *--sp = nullptr;
  return sp;
}
#elif defined(__aarch64__)
asm(R"(
.text
.globl kw_switch
.hidden kw_switch
.type kw_switch,%function
kw_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size kw_switch,.-kw_switch
)");

inline void *fresh_stack(void *top, void (*main)()) {
  void **sp = static_cast<void **>(top);
  for (int i = 0; i < 20; ++i) *--sp = nullptr;
  sp[11] = reinterpret_cast<void *>(main);  // x30
  return sp;
}
#else
#error "the emulator has no context switch for this processor: x86-64 and aarch64 have one"
#endif
