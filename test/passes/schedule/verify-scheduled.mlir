// RUN: gridloom-opt %s --split-input-file --plan-verify-scheduled --verify-diagnostics

// A group reads memory that compute may still be writing.
dist.mesh @mesh <["model" = 2]>
plan.program @unordered {
  %0 = plan.buffer input "x" : !plan.buffer<tensor<8xf32>>
  %1 = plan.buffer registered : !plan.buffer<tensor<8xf32>>
  %2 = plan.buffer registered : !plan.buffer<tensor<8xf32>>
  plan.block {
    plan.copy ins(%0 : !plan.buffer<tensor<8xf32>>) outs(%1 : !plan.buffer<tensor<8xf32>>) on compute
    // expected-error @+1 {{on stream 'comm.model' in iteration 0 reads a buffer that 'compute' may still be writing in iteration 0; an event must order them}}
    plan.group all_reduce over ["model"] by sum sequence 0 ins(%1 : !plan.buffer<tensor<8xf32>>) outs(%2 : !plan.buffer<tensor<8xf32>>) on collective over ["model"]
  }
} {entry = "main", dims = {}, stage = 0 : i64}

// -----

// The next iteration writes memory that the previous one may still be sending; an alias is the same memory.
plan.program @overrun {
  %0 = plan.buffer input "x" : !plan.buffer<tensor<8xf32>>
  %1 = plan.buffer registered : !plan.buffer<tensor<8xf32>>
  %2 = plan.alias %1 : (!plan.buffer<tensor<8xf32>>) -> !plan.buffer<tensor<2x4xf32>>
  plan.repeat 4 {
    plan.block {
      // expected-error @+1 {{on stream 'compute' in iteration 1 writes a buffer that 'send.1' may still be reading in iteration 0; an event must order them}}
      plan.copy ins(%0 : !plan.buffer<tensor<8xf32>>) outs(%1 : !plan.buffer<tensor<8xf32>>) on compute
      plan.record 0 on compute
      plan.wait 0 on send stage 1
      plan.group send over [] sequence 0 ins(%2 : !plan.buffer<tensor<2x4xf32>>) outs() on send stage 1 {channel = 0 : i64, stage = 1 : i64}
    }
  }
} {entry = "main", dims = {}, stage = 0 : i64}

// -----

plan.program @dangling {
  plan.block {
    // expected-error @+1 {{waits for event 3, which nothing before it records}}
    plan.wait 3 on compute
    plan.record 3 on compute
  }
} {entry = "main", dims = {}, stage = 0 : i64}

// -----

dist.mesh @mesh <["model" = 2]>
plan.program @sequence {
  %0 = plan.buffer registered : !plan.buffer<tensor<8xf32>>
  plan.block {
    // expected-error @+1 {{has sequence number 1; expected 0}}
    plan.group all_reduce over ["model"] by sum sequence 1 ins() outs(%0 : !plan.buffer<tensor<8xf32>>) on collective over ["model"]
  }
} {entry = "main", dims = {}, stage = 0 : i64}

// -----

dist.mesh @mesh <["model" = 2]>
plan.program @stream {
  %0 = plan.buffer registered : !plan.buffer<tensor<8xf32>>
  plan.block {
    plan.group all_reduce over ["model"] by sum sequence 0 ins() outs(%0 : !plan.buffer<tensor<8xf32>>) on collective over ["model"]
    // expected-error @+1 {{is on a stream over axis 'modl', which is not in the mesh}}
    plan.record 0 on collective over ["modl"]
  }
} {entry = "main", dims = {}, stage = 0 : i64}

// -----

dist.mesh @mesh <["model" = 2]>
plan.program @axis {
  %0 = plan.buffer registered : !plan.buffer<tensor<8xf32>>
  plan.block {
    // expected-error @+1 {{spans axis 'data', which is not in the mesh}}
    plan.group all_reduce over ["data"] by sum sequence 0 ins() outs(%0 : !plan.buffer<tensor<8xf32>>) on collective over ["data"]
  }
} {entry = "main", dims = {}, stage = 0 : i64}

// -----

module attributes {dist.stage_axis = "pipe"} {
  dist.mesh @mesh <["pipe" = 2]>
  plan.program @stages {
    %0 = plan.buffer registered : !plan.buffer<tensor<8xf32>>
    plan.block {
      // expected-error @+1 {{spans axis 'pipe', over which devices run different programs or times}}
      plan.group all_reduce over ["pipe"] by sum sequence 0 ins() outs(%0 : !plan.buffer<tensor<8xf32>>) on collective over ["pipe"]
    }
  } {entry = "main", dims = {}, stage = 0 : i64}
}

// -----

plan.program @sends {
  %0 = plan.buffer input "x" : !plan.buffer<tensor<8xf32>>
  plan.block {
    // expected-error @+1 {{sends channel 0 to stage 1 where that receives channel 1}}
    plan.group send over [] sequence 0 ins(%0 : !plan.buffer<tensor<8xf32>>) outs() on send stage 1 {channel = 0 : i64, stage = 1 : i64}
  }
} {entry = "main", dims = {}, stage = 0 : i64}
plan.program @receives {
  %0 = plan.buffer registered : !plan.buffer<tensor<8xf32>>
  plan.block {
    plan.group recv over [] sequence 0 ins() outs(%0 : !plan.buffer<tensor<8xf32>>) on recv stage 0 {channel = 1 : i64, stage = 0 : i64}
  }
} {entry = "main", dims = {}, stage = 1 : i64}

// -----

plan.program @sends {
  %0 = plan.buffer input "x" : !plan.buffer<tensor<8xf32>>
  plan.block {
    // expected-error @+1 {{sends 'tensor<8xf32>' on channel 0; stage 1 receives 'tensor<4xf32>'}}
    plan.group send over [] sequence 0 ins(%0 : !plan.buffer<tensor<8xf32>>) outs() on send stage 1 {channel = 0 : i64, stage = 1 : i64}
  }
} {entry = "main", dims = {}, stage = 0 : i64}
plan.program @receives {
  %0 = plan.buffer registered : !plan.buffer<tensor<4xf32>>
  plan.block {
    plan.group recv over [] sequence 0 ins() outs(%0 : !plan.buffer<tensor<4xf32>>) on recv stage 0 {channel = 0 : i64, stage = 0 : i64}
  }
} {entry = "main", dims = {}, stage = 1 : i64}

// -----

plan.program @sends {
  %0 = plan.buffer input "x" : !plan.buffer<tensor<8xf32>>
  plan.block {
    // expected-error @+1 {{sends channel 0, which stage 1 does not receive}}
    plan.group send over [] sequence 0 ins(%0 : !plan.buffer<tensor<8xf32>>) outs() on send stage 1 {channel = 0 : i64, stage = 1 : i64}
  }
} {entry = "main", dims = {}, stage = 0 : i64}
plan.program @receives {
} {entry = "main", dims = {}, stage = 1 : i64}

// -----

plan.program @sends {
  %0 = plan.buffer input "x" : !plan.buffer<tensor<8xf32>>
  plan.repeat 2 {
    plan.block {
      // expected-error @+1 {{repeats 2 times; stage 1 receives 1 times}}
      plan.group send over [] sequence 0 ins(%0 : !plan.buffer<tensor<8xf32>>) outs() on send stage 1 {channel = 0 : i64, stage = 1 : i64}
    }
  }
} {entry = "main", dims = {}, stage = 0 : i64}
plan.program @receives {
  %0 = plan.buffer registered : !plan.buffer<tensor<8xf32>>
  plan.block {
    plan.group recv over [] sequence 0 ins() outs(%0 : !plan.buffer<tensor<8xf32>>) on recv stage 0 {channel = 0 : i64, stage = 0 : i64}
  }
} {entry = "main", dims = {}, stage = 1 : i64}

// -----

// Both stages send on one stream before they receive: with rendezvous, neither send ends.
// expected-error @+1 {{the stages of entry 'main' wait for each other forever: a cycle: stage 0 'send.1' iteration 0 sends channel 0 to stage 1 (node 'left/out') waits for stage 1 'recv.0' iteration 0 awaits an event (node 'right/in') waits for stage 1 'send.0' iteration 0 sends channel 1 to stage 0 (node 'right/out') waits for stage 0 'recv.1' iteration 0 awaits an event (node 'left/in') waits for stage 0 'send.1' iteration 0 sends channel 0 to stage 1 (node 'left/out')}}
plan.program @first {
  %0 = plan.buffer input "x" : !plan.buffer<tensor<8xf32>>
  %1 = plan.buffer registered : !plan.buffer<tensor<8xf32>>
  plan.block {
    plan.group send over [] sequence 0 ins(%0 : !plan.buffer<tensor<8xf32>>) outs() on send stage 1 {channel = 0 : i64, stage = 1 : i64} loc("left/out")
    plan.record 0 on send stage 1
    plan.wait 0 on recv stage 1 loc("left/in")
    plan.group recv over [] sequence 1 ins() outs(%1 : !plan.buffer<tensor<8xf32>>) on recv stage 1 {channel = 1 : i64, stage = 1 : i64} loc("left/in")
  }
} {entry = "main", dims = {}, stage = 0 : i64}
plan.program @second {
  %0 = plan.buffer input "x" : !plan.buffer<tensor<8xf32>>
  %1 = plan.buffer registered : !plan.buffer<tensor<8xf32>>
  plan.block {
    plan.group send over [] sequence 0 ins(%0 : !plan.buffer<tensor<8xf32>>) outs() on send stage 0 {channel = 1 : i64, stage = 0 : i64} loc("right/out")
    plan.record 0 on send stage 0
    plan.wait 0 on recv stage 0 loc("right/in")
    plan.group recv over [] sequence 1 ins() outs(%1 : !plan.buffer<tensor<8xf32>>) on recv stage 0 {channel = 0 : i64, stage = 0 : i64} loc("right/in")
  }
} {entry = "main", dims = {}, stage = 1 : i64}

// -----

plan.program @unwritten {
  %0 = plan.buffer arena : !plan.buffer<tensor<8xf32>>
  %1 = plan.buffer output "y" : !plan.buffer<tensor<8xf32>>
  plan.block {
    // expected-error @+1 {{reads a buffer that nothing has written before}}
    plan.copy ins(%0 : !plan.buffer<tensor<8xf32>>) outs(%1 : !plan.buffer<tensor<8xf32>>) on compute
  }
} {entry = "main", dims = {}, stage = 0 : i64}

// -----

// A transpose still reads what it has overwritten.
plan.kernel @turn {
^bb0(%x: tensor<4x4xf32>):
  %0 = loom.transpose %x [1, 0] : (tensor<4x4xf32>) -> tensor<4x4xf32>
  loom.yield %0 : tensor<4x4xf32>
}
plan.program @in_place {
  %0 = plan.buffer state "s" : !plan.buffer<tensor<4x4xf32>>
  plan.block {
    // expected-error @+1 {{writes a buffer that it reads, and cannot do that in place}}
    plan.launch @turn ins(%0 : !plan.buffer<tensor<4x4xf32>>) outs(%0 : !plan.buffer<tensor<4x4xf32>>) on compute
  }
} {entry = "main", dims = {}, stage = 0 : i64}

// -----

// A scatter's rows must not be in the memory that it writes.
plan.kernel @update {
^bb0(%x: tensor<8xf32>, %at: tensor<8xi64>):
  %0 = loom.scatter %x, %at, %x dim = 0 : (tensor<8xf32>, tensor<8xi64>, tensor<8xf32>) -> tensor<8xf32>
  loom.yield %0 : tensor<8xf32>
}
plan.program @rows {
  %0 = plan.buffer state "s" : !plan.buffer<tensor<8xf32>>
  %1 = plan.buffer input "at" : !plan.buffer<tensor<8xi64>>
  plan.block {
    // expected-error @+1 {{writes a buffer that it reads, and cannot do that in place}}
    plan.launch @update ins(%0, %1 : !plan.buffer<tensor<8xf32>>, !plan.buffer<tensor<8xi64>>) outs(%0 : !plan.buffer<tensor<8xf32>>) on compute
  }
} {entry = "main", dims = {}, stage = 0 : i64}

// -----

// A reduce_scatter's part must not overlap the whole, nor an all_reduce's sums another part of the same buffer.
dist.mesh @mesh <["data" = 2]>
plan.program @overlap {
  %0 = plan.buffer state "s" : !plan.buffer<tensor<16xf32>>
  %1 = plan.alias %0 : (!plan.buffer<tensor<16xf32>>) -> !plan.buffer<tensor<8xf32>>
  %2 = plan.alias %0 {offset = 8 : i64} : (!plan.buffer<tensor<16xf32>>) -> !plan.buffer<tensor<8xf32>>
  plan.block {
    plan.group all_reduce over ["data"] by sum sequence 0 ins(%0 : !plan.buffer<tensor<16xf32>>) outs(%0 : !plan.buffer<tensor<16xf32>>) on collective over ["data"]
    // expected-error @+1 {{writes a buffer that it reads, and cannot do that in place}}
    plan.group all_reduce over ["data"] by sum sequence 1 ins(%1 : !plan.buffer<tensor<8xf32>>) outs(%2 : !plan.buffer<tensor<8xf32>>) on collective over ["data"]
  }
} {entry = "main", dims = {}, stage = 0 : i64}
