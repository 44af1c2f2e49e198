// RUN: gridloom-opt %s --split-input-file --plan-schedule --plan-verify-scheduled --plan-allocate --plan-verify-allocated --mlir-print-local-scope | FileCheck %s
// RUN: gridloom-opt %s --split-input-file --plan-schedule="overlap=false" --plan-verify-scheduled --plan-allocate | FileCheck %s --check-prefix=SERIAL

dist.mesh @mesh <["data" = 2]>
loom.weight @w0 : tensor<512x512xf32> from <"", offset = 0, bytes = 1048576>
loom.weight @w1 : tensor<512x512xf32> from <"", offset = 1048576, bytes = 1048576>
loom.weight @w2 : tensor<512x512xf32> from <"", offset = 2097152, bytes = 1048576>
loom.weight @w3 : tensor<512x512xf32> from <"", offset = 3145728, bytes = 1048576>

// A weight is sent from its own memory. A gather starts while the layer before the one that needs it computes. It
// waits for the layer before that, whose weight was in the memory of its result: two gathered weights at once.
// CHECK-LABEL: plan.program @prefetch
// CHECK-NOT: plan.copy
// CHECK: plan.block {
// CHECK-NEXT: plan.group all_gather {{.*}} sequence 0 ins(%[[S0:.*]] : {{.*}}) outs(%[[W0:.*]] : {{.*}})
// CHECK-NEXT: plan.record [[G0:.*]] on collective
// CHECK-NEXT: plan.group all_gather {{.*}} sequence 1
// CHECK-NEXT: plan.record [[G1:.*]] on collective
// CHECK-NEXT: plan.wait [[G0]] on compute
// CHECK-NEXT: plan.library
// CHECK-NEXT: plan.record [[C0:.*]] on compute
// CHECK-NEXT: plan.wait [[C0]] on collective
// CHECK-NEXT: plan.group all_gather {{.*}} sequence 2
// CHECK-NEXT: plan.record [[G2:.*]] on collective
// CHECK-NEXT: plan.wait [[G1]] on compute
// CHECK-NEXT: plan.library
// CHECK-NEXT: plan.record [[C1:.*]] on compute
// CHECK-NEXT: plan.wait [[C1]] on collective
// CHECK-NEXT: plan.group all_gather {{.*}} sequence 3
// CHECK: } {{{.*}}registered_bytes = 2097152 : i64
// Without overlap, compute waits for each gather, so none needs to start early.
// SERIAL-LABEL: plan.program @prefetch
// SERIAL: plan.group all_gather
// SERIAL-NOT: plan.group
// SERIAL: plan.library
// SERIAL: plan.group all_gather
func.func @prefetch(%x0: tensor<1024x512xf32> {loom.name = "x"}) -> (tensor<1024x512xf32> {loom.name = "y"})
    attributes {loom.entry = "main", loom.dims = {}, dist.stage = 0 : i64, dist.microbatches = 1 : i64} {
  %s0 = loom.get_weight @w0 {sharding = #dist.sharding<@mesh, [{"data"}, {}]>} : tensor<256x512xf32>
  %f0 = dist.start {
    %r = dist.all_gather %s0 over ["data"] dim = 0 : (tensor<256x512xf32>) -> tensor<512x512xf32>
    dist.yield %r : tensor<512x512xf32>
  } : !dist.future<tensor<512x512xf32>>
  %w0 = dist.done %f0 : !dist.future<tensor<512x512xf32>> -> tensor<512x512xf32>
  %s1 = loom.get_weight @w1 {sharding = #dist.sharding<@mesh, [{"data"}, {}]>} : tensor<256x512xf32>
  %f1 = dist.start {
    %r = dist.all_gather %s1 over ["data"] dim = 0 : (tensor<256x512xf32>) -> tensor<512x512xf32>
    dist.yield %r : tensor<512x512xf32>
  } : !dist.future<tensor<512x512xf32>>
  %w1 = dist.done %f1 : !dist.future<tensor<512x512xf32>> -> tensor<512x512xf32>
  %s2 = loom.get_weight @w2 {sharding = #dist.sharding<@mesh, [{"data"}, {}]>} : tensor<256x512xf32>
  %f2 = dist.start {
    %r = dist.all_gather %s2 over ["data"] dim = 0 : (tensor<256x512xf32>) -> tensor<512x512xf32>
    dist.yield %r : tensor<512x512xf32>
  } : !dist.future<tensor<512x512xf32>>
  %w2 = dist.done %f2 : !dist.future<tensor<512x512xf32>> -> tensor<512x512xf32>
  %s3 = loom.get_weight @w3 {sharding = #dist.sharding<@mesh, [{"data"}, {}]>} : tensor<256x512xf32>
  %f3 = dist.start {
    %r = dist.all_gather %s3 over ["data"] dim = 0 : (tensor<256x512xf32>) -> tensor<512x512xf32>
    dist.yield %r : tensor<512x512xf32>
  } : !dist.future<tensor<512x512xf32>>
  %w3 = dist.done %f3 : !dist.future<tensor<512x512xf32>> -> tensor<512x512xf32>
  %x1 = plan.matmul %x0, %w0 <sizes = [1024, 512, 512], lhs = [512, 1], rhs = [512, 1], out = [512, 1]> : (tensor<1024x512xf32>, tensor<512x512xf32>) -> tensor<1024x512xf32>
  %x2 = plan.matmul %x1, %w1 <sizes = [1024, 512, 512], lhs = [512, 1], rhs = [512, 1], out = [512, 1]> : (tensor<1024x512xf32>, tensor<512x512xf32>) -> tensor<1024x512xf32>
  %x3 = plan.matmul %x2, %w2 <sizes = [1024, 512, 512], lhs = [512, 1], rhs = [512, 1], out = [512, 1]> : (tensor<1024x512xf32>, tensor<512x512xf32>) -> tensor<1024x512xf32>
  %x4 = plan.matmul %x3, %w3 <sizes = [1024, 512, 512], lhs = [512, 1], rhs = [512, 1], out = [512, 1]> : (tensor<1024x512xf32>, tensor<512x512xf32>) -> tensor<1024x512xf32>
  return %x4 : tensor<1024x512xf32>
}

// -----

dist.mesh @mesh <["data" = 2]>
loom.weight @w0 : tensor<512x512xf32> from <"", offset = 0, bytes = 1048576>
loom.weight @w1 : tensor<512x512xf32> from <"", offset = 1048576, bytes = 1048576>
loom.weight @w2 : tensor<512x512xf32> from <"", offset = 2097152, bytes = 1048576>
loom.weight @w3 : tensor<512x512xf32> from <"", offset = 3145728, bytes = 1048576>

// Two weights at once even if gathers take longer than compute: a gather that starts sooner would
// only wait for its stream.
// CHECK-LABEL: plan.program @late
// CHECK: plan.group all_gather {{.*}} sequence 0
// CHECK: plan.group all_gather {{.*}} sequence 1
// CHECK: plan.library
// CHECK: plan.record [[C0:.*]] on compute
// CHECK: plan.wait [[C0]] on collective
// CHECK: plan.group all_gather {{.*}} sequence 2
// CHECK: plan.library
// CHECK: } {{{.*}}registered_bytes = 2097152 : i64
func.func @late(%x0: tensor<8x512xf32> {loom.name = "x"}) -> (tensor<8x512xf32> {loom.name = "y"})
    attributes {loom.entry = "main", loom.dims = {}, dist.stage = 0 : i64, dist.microbatches = 1 : i64} {
  %s0 = loom.get_weight @w0 {sharding = #dist.sharding<@mesh, [{"data"}, {}]>} : tensor<256x512xf32>
  %f0 = dist.start {
    %r = dist.all_gather %s0 over ["data"] dim = 0 : (tensor<256x512xf32>) -> tensor<512x512xf32>
    dist.yield %r : tensor<512x512xf32>
  } : !dist.future<tensor<512x512xf32>>
  %w0 = dist.done %f0 : !dist.future<tensor<512x512xf32>> -> tensor<512x512xf32>
  %s1 = loom.get_weight @w1 {sharding = #dist.sharding<@mesh, [{"data"}, {}]>} : tensor<256x512xf32>
  %f1 = dist.start {
    %r = dist.all_gather %s1 over ["data"] dim = 0 : (tensor<256x512xf32>) -> tensor<512x512xf32>
    dist.yield %r : tensor<512x512xf32>
  } : !dist.future<tensor<512x512xf32>>
  %w1 = dist.done %f1 : !dist.future<tensor<512x512xf32>> -> tensor<512x512xf32>
  %s2 = loom.get_weight @w2 {sharding = #dist.sharding<@mesh, [{"data"}, {}]>} : tensor<256x512xf32>
  %f2 = dist.start {
    %r = dist.all_gather %s2 over ["data"] dim = 0 : (tensor<256x512xf32>) -> tensor<512x512xf32>
    dist.yield %r : tensor<512x512xf32>
  } : !dist.future<tensor<512x512xf32>>
  %w2 = dist.done %f2 : !dist.future<tensor<512x512xf32>> -> tensor<512x512xf32>
  %s3 = loom.get_weight @w3 {sharding = #dist.sharding<@mesh, [{"data"}, {}]>} : tensor<256x512xf32>
  %f3 = dist.start {
    %r = dist.all_gather %s3 over ["data"] dim = 0 : (tensor<256x512xf32>) -> tensor<512x512xf32>
    dist.yield %r : tensor<512x512xf32>
  } : !dist.future<tensor<512x512xf32>>
  %w3 = dist.done %f3 : !dist.future<tensor<512x512xf32>> -> tensor<512x512xf32>
  %x1 = plan.matmul %x0, %w0 <sizes = [8, 512, 512], lhs = [512, 1], rhs = [512, 1], out = [512, 1]> : (tensor<8x512xf32>, tensor<512x512xf32>) -> tensor<8x512xf32>
  %x2 = plan.matmul %x1, %w1 <sizes = [8, 512, 512], lhs = [512, 1], rhs = [512, 1], out = [512, 1]> : (tensor<8x512xf32>, tensor<512x512xf32>) -> tensor<8x512xf32>
  %x3 = plan.matmul %x2, %w2 <sizes = [8, 512, 512], lhs = [512, 1], rhs = [512, 1], out = [512, 1]> : (tensor<8x512xf32>, tensor<512x512xf32>) -> tensor<8x512xf32>
  %x4 = plan.matmul %x3, %w3 <sizes = [8, 512, 512], lhs = [512, 1], rhs = [512, 1], out = [512, 1]> : (tensor<8x512xf32>, tensor<512x512xf32>) -> tensor<8x512xf32>
  return %x4 : tensor<8x512xf32>
}

// -----

dist.mesh @mesh <["data" = 2]>
loom.weight @w0 : tensor<512x512xf32> from <"", offset = 0, bytes = 1048576>

// A single gather needs its memory whenever it starts, so it starts at once.
// CHECK-LABEL: plan.program @alone
// CHECK: plan.block {
// CHECK-NEXT: plan.group all_gather
// CHECK-NEXT: plan.record [[G:.*]] on collective
// CHECK-NEXT: plan.wait [[G]] on compute
// CHECK-NEXT: plan.library
func.func @alone(%x0: tensor<1024x512xf32> {loom.name = "x"}) -> (tensor<1024x512xf32> {loom.name = "y"})
    attributes {loom.entry = "main", loom.dims = {}, dist.stage = 0 : i64, dist.microbatches = 1 : i64} {
  %s0 = loom.get_weight @w0 {sharding = #dist.sharding<@mesh, [{"data"}, {}]>} : tensor<256x512xf32>
  %f0 = dist.start {
    %r = dist.all_gather %s0 over ["data"] dim = 0 : (tensor<256x512xf32>) -> tensor<512x512xf32>
    dist.yield %r : tensor<512x512xf32>
  } : !dist.future<tensor<512x512xf32>>
  %w0 = dist.done %f0 : !dist.future<tensor<512x512xf32>> -> tensor<512x512xf32>
  %x1 = plan.matmul %x0, %w0 <sizes = [1024, 512, 512], lhs = [512, 1], rhs = [512, 1], out = [512, 1]> : (tensor<1024x512xf32>, tensor<512x512xf32>) -> tensor<1024x512xf32>
  return %x1 : tensor<1024x512xf32>
}

// -----

dist.mesh @mesh <["data" = 2, "micro" = 4]>
loom.weight @w0 : tensor<512x512xf32> from <"", offset = 0, bytes = 1048576>
loom.weight @w1 : tensor<512x512xf32> from <"", offset = 1048576, bytes = 1048576>
loom.weight @w2 : tensor<512x512xf32> from <"", offset = 2097152, bytes = 1048576>

// Micro-batches gather again, into memory that the previous one used; so the first gathers wait for its compute.
// CHECK-LABEL: plan.program @again
// CHECK-DAG: plan.buffer registered {bytes = 1048576 : i64, offset = 0 : i64}
// CHECK: plan.repeat 4 {
// CHECK-NEXT: plan.block {
// CHECK-NEXT: plan.record [[C:.*]] on compute
// CHECK-NEXT: plan.wait [[C]] on collective
// CHECK-NEXT: plan.group all_gather {{.*}} sequence 0
// CHECK-NEXT: plan.record {{.*}} on collective
// CHECK-NEXT: plan.group all_gather {{.*}} sequence 1
// CHECK: } {{{.*}}registered_bytes = 2097152 : i64
func.func @again(%x0: tensor<1024x512xf32> {loom.name = "x", dist.sharding = #dist.sharding<@mesh, [{"micro"}, {}]>}) -> (tensor<1024x512xf32> {loom.name = "y", dist.sharding = #dist.sharding<@mesh, [{"micro"}, {}]>})
    attributes {loom.entry = "main", loom.dims = {}, dist.stage = 0 : i64, dist.microbatches = 4 : i64} {
  %s0 = loom.get_weight @w0 {sharding = #dist.sharding<@mesh, [{"data"}, {}]>} : tensor<256x512xf32>
  %f0 = dist.start {
    %r = dist.all_gather %s0 over ["data"] dim = 0 : (tensor<256x512xf32>) -> tensor<512x512xf32>
    dist.yield %r : tensor<512x512xf32>
  } : !dist.future<tensor<512x512xf32>>
  %w0 = dist.done %f0 : !dist.future<tensor<512x512xf32>> -> tensor<512x512xf32>
  %s1 = loom.get_weight @w1 {sharding = #dist.sharding<@mesh, [{"data"}, {}]>} : tensor<256x512xf32>
  %f1 = dist.start {
    %r = dist.all_gather %s1 over ["data"] dim = 0 : (tensor<256x512xf32>) -> tensor<512x512xf32>
    dist.yield %r : tensor<512x512xf32>
  } : !dist.future<tensor<512x512xf32>>
  %w1 = dist.done %f1 : !dist.future<tensor<512x512xf32>> -> tensor<512x512xf32>
  %s2 = loom.get_weight @w2 {sharding = #dist.sharding<@mesh, [{"data"}, {}]>} : tensor<256x512xf32>
  %f2 = dist.start {
    %r = dist.all_gather %s2 over ["data"] dim = 0 : (tensor<256x512xf32>) -> tensor<512x512xf32>
    dist.yield %r : tensor<512x512xf32>
  } : !dist.future<tensor<512x512xf32>>
  %w2 = dist.done %f2 : !dist.future<tensor<512x512xf32>> -> tensor<512x512xf32>
  %x1 = plan.matmul %x0, %w0 <sizes = [1024, 512, 512], lhs = [512, 1], rhs = [512, 1], out = [512, 1]> : (tensor<1024x512xf32>, tensor<512x512xf32>) -> tensor<1024x512xf32>
  %x2 = plan.matmul %x1, %w1 <sizes = [1024, 512, 512], lhs = [512, 1], rhs = [512, 1], out = [512, 1]> : (tensor<1024x512xf32>, tensor<512x512xf32>) -> tensor<1024x512xf32>
  %x3 = plan.matmul %x2, %w2 <sizes = [1024, 512, 512], lhs = [512, 1], rhs = [512, 1], out = [512, 1]> : (tensor<1024x512xf32>, tensor<512x512xf32>) -> tensor<1024x512xf32>
  return %x3 : tensor<1024x512xf32>
}

// -----

dist.mesh @mesh <["data" = 2]>
loom.weight @w : tensor<512x512xf32> from <"", offset = 0, bytes = 1048576>

// A weight with padded rows is copied, because a peer receives contiguous elements.
// CHECK-LABEL: plan.program @padded
// CHECK: plan.copy
// CHECK: plan.group all_gather
func.func @padded() -> (tensor<512x512xf32> {loom.name = "y"})
    attributes {loom.entry = "main", loom.dims = {}, dist.stage = 0 : i64, dist.microbatches = 1 : i64} {
  %s = loom.get_weight @w {layout = #loom.layout<[0, 1], pad = 16>, sharding = #dist.sharding<@mesh, [{"data"}, {}]>} : tensor<256x512xf32>
  %f = dist.start {
    %r = dist.all_gather %s over ["data"] dim = 0 : (tensor<256x512xf32>) -> tensor<512x512xf32>
    dist.yield %r : tensor<512x512xf32>
  } : !dist.future<tensor<512x512xf32>>
  %w = dist.done %f : !dist.future<tensor<512x512xf32>> -> tensor<512x512xf32>
  return %w : tensor<512x512xf32>
}
