// RUN: gridloom-opt %s --split-input-file --plan-verify-allocated --verify-diagnostics

plan.program @unplaced {
  // expected-error @+1 {{has 0 bytes for a tensor of 128; run plan-allocate}}
  %0 = plan.buffer arena : !plan.buffer<tensor<32xf32>>
} {entry = "main", dims = {}, stage = 0 : i64}

// -----

plan.program @outside {
  // expected-error @+1 {{ends at 192 in a space of 128 bytes}}
  %0 = plan.buffer arena {bytes = 128 : i64, offset = 64 : i64} : !plan.buffer<tensor<32xf32>>
} {entry = "main", dims = {}, stage = 0 : i64, arena_bytes = 128 : i64}

// -----

plan.program @unaligned {
  // expected-error @+1 {{starts at 32, which is not a multiple of 64}}
  %0 = plan.buffer arena {bytes = 128 : i64, offset = 32 : i64} : !plan.buffer<tensor<32xf32>>
} {entry = "main", dims = {}, stage = 0 : i64, arena_bytes = 256 : i64}

// -----

plan.program @overlap {
  %x = plan.buffer input "x" {bytes = 128 : i64} : !plan.buffer<tensor<32xf32>>
  %y = plan.buffer output "y" {bytes = 128 : i64} : !plan.buffer<tensor<32xf32>>
  // expected-note @+1 {{the other buffer}}
  %0 = plan.buffer arena {bytes = 128 : i64, offset = 0 : i64} : !plan.buffer<tensor<32xf32>>
  // expected-error @+1 {{at 64 in iteration 0 overlaps a buffer at 0 in iteration 0 that may be in use at the same time}}
  %1 = plan.buffer arena {bytes = 128 : i64, offset = 64 : i64} : !plan.buffer<tensor<32xf32>>
  plan.block {
    plan.copy ins(%x : !plan.buffer<tensor<32xf32>>) outs(%0 : !plan.buffer<tensor<32xf32>>) on compute
    plan.copy ins(%0 : !plan.buffer<tensor<32xf32>>) outs(%1 : !plan.buffer<tensor<32xf32>>) on compute
    plan.copy ins(%1 : !plan.buffer<tensor<32xf32>>) outs(%y : !plan.buffer<tensor<32xf32>>) on compute
  }
} {entry = "main", dims = {}, stage = 0 : i64, arena_bytes = 192 : i64}

// -----

// Within an iteration the send comes before the copy to %1, by an event; the next iteration's copy to
// %0 does not wait for the read of %1 on the other stream.
plan.program @next_iteration {
  %x = plan.buffer input "x" {bytes = 128 : i64} : !plan.buffer<tensor<32xf32>>
  // expected-note @+1 {{the other buffer}}
  %0 = plan.buffer registered {bytes = 128 : i64, offset = 0 : i64} : !plan.buffer<tensor<32xf32>>
  // expected-error @+1 {{overlaps a buffer at 0 in iteration 1 that may be in use at the same time}}
  %1 = plan.buffer registered {bytes = 128 : i64, offset = 0 : i64} : !plan.buffer<tensor<32xf32>>
  plan.repeat 3 {
    plan.block {
      plan.copy ins(%x : !plan.buffer<tensor<32xf32>>) outs(%0 : !plan.buffer<tensor<32xf32>>) on compute
      plan.record 0 on compute
      plan.wait 0 on send stage 1
      plan.group send over [] sequence 0 ins(%0 : !plan.buffer<tensor<32xf32>>) outs() on send stage 1 {channel = 0 : i64, stage = 1 : i64}
      plan.record 1 on send stage 1
      plan.wait 1 on compute
      plan.copy ins(%x : !plan.buffer<tensor<32xf32>>) outs(%1 : !plan.buffer<tensor<32xf32>>) on compute
      plan.record 2 on compute
      plan.wait 2 on send stage 1
      plan.group send over [] sequence 1 ins(%1 : !plan.buffer<tensor<32xf32>>) outs() on send stage 1 {channel = 1 : i64, stage = 1 : i64}
    }
  }
} {entry = "main", dims = {}, stage = 0 : i64, registered_bytes = 128 : i64}

// -----

// %0 is used before the repeat, %1 in it: iterations are not distinguished.
plan.program @outside_the_repeat {
  %x = plan.buffer input "x" {bytes = 128 : i64} : !plan.buffer<tensor<32xf32>>
  %0 = plan.buffer arena {bytes = 128 : i64, offset = 0 : i64} : !plan.buffer<tensor<32xf32>>
  // expected-error @+1 {{overlaps a buffer that is used outside the repeat}}
  %1 = plan.buffer arena {bytes = 128 : i64, offset = 64 : i64} : !plan.buffer<tensor<32xf32>>
  plan.block {
    plan.copy ins(%x : !plan.buffer<tensor<32xf32>>) outs(%0 : !plan.buffer<tensor<32xf32>>) on compute
  }
  plan.repeat 3 {
    plan.block {
      plan.copy ins(%x : !plan.buffer<tensor<32xf32>>) outs(%1 : !plan.buffer<tensor<32xf32>>) on compute
    }
  }
} {entry = "main", dims = {}, stage = 0 : i64, arena_bytes = 256 : i64}

// -----

// The branch reads its condition after the second copy.
plan.program @condition {
  %p = plan.buffer input "p" {bytes = 1 : i64} : !plan.buffer<tensor<i1>>
  %x = plan.buffer input "x" {bytes = 128 : i64} : !plan.buffer<tensor<32xf32>>
  %y = plan.buffer output "y" {bytes = 128 : i64} : !plan.buffer<tensor<32xf32>>
  // expected-note @+1 {{the other buffer}}
  %c = plan.buffer arena {bytes = 1 : i64, offset = 0 : i64} : !plan.buffer<tensor<i1>>
  // expected-error @+1 {{at 0 in iteration 0 overlaps a buffer at 0 in iteration 0 that may be in use at the same time}}
  %0 = plan.buffer arena {bytes = 128 : i64, offset = 0 : i64} : !plan.buffer<tensor<32xf32>>
  plan.block {
    plan.copy ins(%p : !plan.buffer<tensor<i1>>) outs(%c : !plan.buffer<tensor<i1>>) on compute
    plan.copy ins(%x : !plan.buffer<tensor<32xf32>>) outs(%0 : !plan.buffer<tensor<32xf32>>) on compute
  }
  plan.if %c : !plan.buffer<tensor<i1>> then {
    plan.block {
      plan.copy ins(%0 : !plan.buffer<tensor<32xf32>>) outs(%y : !plan.buffer<tensor<32xf32>>) on compute
    }
  } else {
    plan.block {
      plan.copy ins(%x : !plan.buffer<tensor<32xf32>>) outs(%y : !plan.buffer<tensor<32xf32>>) on compute
    }
  }
} {entry = "main", dims = {}, stage = 0 : i64, arena_bytes = 128 : i64}
