// RUN: gridloom-opt %s --split-input-file --plan-form-kernels --plan-verify-fused | FileCheck %s

// A step with momentum is one kernel, which reads the gradient once and writes over both states.
// CHECK-LABEL: func.func @momentum
// CHECK-NEXT: %[[NEXT:.*]]:2 = plan.call @k_multiply_add_multiply_subtract_0(%arg2, %arg0, %arg3, %arg1)
// CHECK-NEXT: return %[[NEXT]]#1, %[[NEXT]]#0
// CHECK: plan.kernel @k_multiply_add_multiply_subtract_0 in_place = [
// CHECK-SAME: #plan.in_place<output = 0, input = 0>, #plan.in_place<output = 0, input = 1>, #plan.in_place<output = 0, input = 3>,
// CHECK-SAME: #plan.in_place<output = 1, input = 0>, #plan.in_place<output = 1, input = 1>, #plan.in_place<output = 1, input = 3>] {
// CHECK: loom.yield %{{.*}}, %{{.*}} : tensor<8x16xf32>, tensor<8x16xf32>
func.func @momentum(%g: tensor<8x16xf32>, %p: tensor<8x16xf32> {loom.state = "p"}, %m: tensor<8x16xf32> {loom.state = "m"}, %rate: tensor<f32>)
    -> (tensor<8x16xf32> {loom.state = "p"}, tensor<8x16xf32> {loom.state = "m"}) {
  %decay = loom.constant dense<0.9> : tensor<8x16xf32>
  %0 = loom.multiply %m, %decay : tensor<8x16xf32>
  %1 = loom.add %0, %g : tensor<8x16xf32>
  %2 = loom.broadcast %rate dims = [] : (tensor<f32>) -> tensor<8x16xf32>
  %3 = loom.multiply %1, %2 : tensor<8x16xf32>
  %4 = loom.subtract %p, %3 : tensor<8x16xf32>
  return %4, %1 : tensor<8x16xf32>, tensor<8x16xf32>
}

// -----

// A value that only other updates of the kernel read is no output: the new momentum before the selection is not
// written, though the next parameter is computed from it.
// CHECK-LABEL: func.func @taken
// CHECK-NEXT: %[[NEXT:.*]]:2 = plan.call
// CHECK-NEXT: return %[[NEXT]]#1, %[[NEXT]]#0
// CHECK: loom.yield %{{.*}}, %{{.*}} : tensor<8x16xf32>, tensor<8x16xf32>
func.func @taken(%g: tensor<8x16xf32>, %p: tensor<8x16xf32> {loom.state = "p"}, %m: tensor<8x16xf32> {loom.state = "m"},
                 %taken: tensor<i1>)
    -> (tensor<8x16xf32> {loom.state = "p"}, tensor<8x16xf32> {loom.state = "m"}) {
  %0 = loom.add %m, %g : tensor<8x16xf32>
  %1 = loom.broadcast %taken dims = [] : (tensor<i1>) -> tensor<8x16xi1>
  %2 = loom.select %1, %0, %m : tensor<8x16xi1>, tensor<8x16xf32>
  %3 = loom.divide %0, %p : tensor<8x16xf32>
  %4 = loom.subtract %p, %3 : tensor<8x16xf32>
  %5 = loom.select %1, %4, %p : tensor<8x16xi1>, tensor<8x16xf32>
  return %5, %2 : tensor<8x16xf32>, tensor<8x16xf32>
}

// -----

// Updates without a common tensor stay apart, and so do those of other shapes.
// CHECK-LABEL: func.func @apart
// CHECK-NEXT: plan.call @k_subtract_1(%arg3, %arg0)
// CHECK-NEXT: plan.call @k_subtract_1(%arg4, %arg1)
// CHECK-NEXT: plan.call @k_subtract_0(%arg5, %arg2)
// CHECK-NEXT: return
func.func @apart(%g: tensor<8x16xf32>, %h: tensor<8x16xf32>, %k: tensor<16xf32>, %p: tensor<8x16xf32> {loom.state = "p"},
                 %q: tensor<8x16xf32> {loom.state = "q"}, %r: tensor<16xf32> {loom.state = "r"})
    -> (tensor<8x16xf32> {loom.state = "p"}, tensor<8x16xf32> {loom.state = "q"}, tensor<16xf32> {loom.state = "r"}) {
  %0 = loom.subtract %p, %g : tensor<8x16xf32>
  %1 = loom.subtract %q, %h : tensor<8x16xf32>
  %2 = loom.subtract %r, %k : tensor<16xf32>
  return %0, %1, %2 : tensor<8x16xf32>, tensor<8x16xf32>, tensor<16xf32>
}

// -----

// The updates of m and v share nothing, but that of p reads both. A value that is also an output is no part of it.
// CHECK-LABEL: func.func @adam
// CHECK-NEXT: %[[D:.*]] = plan.call @k_divide_0
// CHECK-NEXT: %[[NEXT:.*]]:3 = plan.call
// CHECK-NEXT: return %[[D]], %[[NEXT]]#0, %[[NEXT]]#1, %[[NEXT]]#2
func.func @adam(%g: tensor<8x16xf32>, %h: tensor<8x16xf32>, %m: tensor<8x16xf32> {loom.state = "m"}, %v: tensor<8x16xf32> {loom.state = "v"},
                %p: tensor<8x16xf32> {loom.state = "p"})
    -> (tensor<8x16xf32>, tensor<8x16xf32> {loom.state = "m"}, tensor<8x16xf32> {loom.state = "v"}, tensor<8x16xf32> {loom.state = "p"}) {
  %0 = loom.add %m, %g : tensor<8x16xf32>
  %1 = loom.multiply %v, %h : tensor<8x16xf32>
  %2 = loom.divide %m, %h : tensor<8x16xf32>
  %3 = loom.add %0, %1 : tensor<8x16xf32>
  %4 = loom.add %3, %2 : tensor<8x16xf32>
  %5 = loom.subtract %p, %4 : tensor<8x16xf32>
  return %2, %0, %1, %5 : tensor<8x16xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<8x16xf32>
}

// -----

// The sum of squares of a matrix is one kernel over its rows and one over their sums; both readers of the square compute
// it, which costs as little as reading it.
// CHECK-LABEL: func.func @squares
// CHECK-NEXT: %[[ROWS:.*]] = plan.call @k_multiply_reduce_0(%arg0) : (tensor<32x16xf32>) -> tensor<32xf32>
// CHECK-NEXT: %[[SUM:.*]] = plan.call @k_reduce_sqrt_0(%[[ROWS]]) : (tensor<32xf32>) -> tensor<f32>
// CHECK-NEXT: %[[NEXT:.*]] = plan.call @k_multiply_add_0(%arg0, %arg1)
// CHECK-NEXT: return %[[SUM]], %[[NEXT]]
func.func @squares(%g: tensor<32x16xf32>, %v: tensor<32x16xf32> {loom.state = "v"}) -> (tensor<f32>, tensor<32x16xf32> {loom.state = "v"}) {
  %0 = loom.multiply %g, %g : tensor<32x16xf32>
  %1 = loom.reduce sum %0 dims = [0, 1] : (tensor<32x16xf32>) -> tensor<f32>
  %2 = loom.sqrt %1 : tensor<f32>
  %3 = loom.add %v, %0 : tensor<32x16xf32>
  return %2, %3 : tensor<f32>, tensor<32x16xf32>
}

// -----

// Rows that are added to zeros are added directly to the other operand of the sum.
// CHECK-LABEL: func.func @table
// CHECK-NEXT: %[[SUM:.*]] = plan.call @k_scatter_0(%arg0, %arg1, %arg2) : (tensor<64x16xf32>, tensor<8xi64>, tensor<8x16xf32>) -> tensor<64x16xf32>
// CHECK-NEXT: return %[[SUM]]
func.func @table(%product: tensor<64x16xf32>, %at: tensor<8xi64>, %rows: tensor<8x16xf32>) -> tensor<64x16xf32>
    attributes {loom.entry = "train_step"} {
  %0 = loom.constant dense<0.0> : tensor<64x16xf32>
  %1 = loom.scatter %0, %at, %rows dim = 0 reduce = sum : (tensor<64x16xf32>, tensor<8xi64>, tensor<8x16xf32>) -> tensor<64x16xf32>
  %2 = loom.add %1, %product : tensor<64x16xf32>
  return %2 : tensor<64x16xf32>
}

// -----

// Both readers compute the labels' mask and the square; the square is of a sum in memory.
// CHECK-LABEL: func.func @repeated
// CHECK-NEXT: plan.call @k_compare_select_reduce_0(%arg2, %arg0)
// CHECK-NEXT: %[[SUM:.*]] = plan.call @k_compare_select_add_0(%arg2, %arg1, %arg0)
// CHECK-NEXT: plan.call @k_multiply_reduce_0(%[[SUM]])
// CHECK-NEXT: plan.call @k_multiply_add_subtract_0(%[[SUM]], %arg3)
// CHECK-NEXT: return
func.func @repeated(%x: tensor<32x16xf32>, %y: tensor<32x16xf32>, %label: tensor<32xi64>, %v: tensor<32x16xf32> {loom.state = "v"})
    -> (tensor<32xf32>, tensor<32xf32>, tensor<32x16xf32> {loom.state = "v"}) attributes {loom.entry = "train_step"} {
  %0 = loom.iota dim = 1 : tensor<32x16xi64>
  %1 = loom.broadcast %label dims = [0] : (tensor<32xi64>) -> tensor<32x16xi64>
  %2 = loom.compare eq %0, %1 : (tensor<32x16xi64>, tensor<32x16xi64>) -> tensor<32x16xi1>
  %zero = loom.constant dense<0.0> : tensor<32x16xf32>
  %3 = loom.select %2, %x, %zero : tensor<32x16xi1>, tensor<32x16xf32>
  %4 = loom.reduce sum %3 dims = [1] : (tensor<32x16xf32>) -> tensor<32xf32>
  %5 = loom.select %2, %y, %zero : tensor<32x16xi1>, tensor<32x16xf32>
  %6 = loom.add %5, %x : tensor<32x16xf32>
  %7 = loom.multiply %6, %6 : tensor<32x16xf32>
  %8 = loom.reduce sum %7 dims = [1] : (tensor<32x16xf32>) -> tensor<32xf32>
  %9 = loom.add %v, %7 : tensor<32x16xf32>
  %10 = loom.subtract %9, %6 : tensor<32x16xf32>
  return %4, %8, %10 : tensor<32xf32>, tensor<32xf32>, tensor<32x16xf32>
}

// -----

// The mean of a sum over devices is computed in both kernels that read it, since the sum is in memory.
dist.mesh @mesh <["data" = 2]>
// CHECK-LABEL: func.func @mean
// CHECK: %[[SUM:.*]] = dist.done
// CHECK-NEXT: plan.call @k_multiply_reduce_0(%[[SUM]])
// CHECK-NEXT: plan.call @k_multiply_subtract_0(%[[SUM]], %arg1)
// CHECK-NEXT: return
func.func @mean(%x: tensor<32x16xf32>, %p: tensor<32x16xf32> {loom.state = "p"}) -> (tensor<32x16xf32> {loom.state = "p"}, tensor<32xf32>)
    attributes {loom.dims = {}, loom.entry = "train_step"} {
  %f = dist.start {
    %r = dist.all_reduce %x over ["data"] sum : tensor<32x16xf32>
    dist.yield %r : tensor<32x16xf32>
  } : !dist.future<tensor<32x16xf32>>
  %0 = dist.done %f : !dist.future<tensor<32x16xf32>> -> tensor<32x16xf32>
  %1 = loom.constant dense<0.125> : tensor<32x16xf32>
  %2 = loom.multiply %0, %1 : tensor<32x16xf32>
  %3 = loom.multiply %2, %2 : tensor<32x16xf32>
  %4 = loom.reduce sum %3 dims = [1] : (tensor<32x16xf32>) -> tensor<32xf32>
  %5 = loom.subtract %p, %2 : tensor<32x16xf32>
  return %5, %4 : tensor<32x16xf32>, tensor<32xf32>
}

// -----

// A device updates its part of a parameter, which is gathered then, with its part of the moment, in place.
dist.mesh @mesh <["data" = 2]>
// CHECK-LABEL: func.func @split
// CHECK: %[[NEXT:.*]]:2 = plan.call @k_multiply_add_gather_subtract_0(%arg2, %arg0, %{{.*}}, %{{.*}})
// CHECK-NOT: plan.call
// CHECK: %[[GATHERED:.*]] = dist.done
// CHECK: return %[[GATHERED]], %[[NEXT]]#0
// CHECK: plan.kernel @k_multiply_add_gather_subtract_0 in_place = [#plan.in_place<output = 0, input = 0>
func.func @split(%g: tensor<32x16xf32>, %p: tensor<64x16xf32> {loom.state = "p"}, %m: tensor<32x16xf32> {loom.state = "m"})
    -> (tensor<64x16xf32> {loom.state = "p"}, tensor<32x16xf32> {loom.state = "m"}) attributes {loom.dims = {}, loom.entry = "train_step"} {
  %decay = loom.constant dense<0.9> : tensor<32x16xf32>
  %device = dist.axis_index ["data"] : tensor<i64>
  %parts = loom.reshape %p : (tensor<64x16xf32>) -> tensor<2x32x16xf32>
  %part = loom.gather %parts, %device dim = 0 : (tensor<2x32x16xf32>, tensor<i64>) -> tensor<32x16xf32>
  %0 = loom.multiply %m, %decay : tensor<32x16xf32>
  %1 = loom.add %0, %g : tensor<32x16xf32>
  %2 = loom.subtract %part, %1 : tensor<32x16xf32>
  %f = dist.start {
    %r = dist.all_gather %2 over ["data"] dim = 0 : (tensor<32x16xf32>) -> tensor<64x16xf32>
    dist.yield %r : tensor<64x16xf32>
  } : !dist.future<tensor<64x16xf32>>
  %3 = dist.done %f : !dist.future<tensor<64x16xf32>> -> tensor<64x16xf32>
  return %3, %1 : tensor<64x16xf32>, tensor<32x16xf32>
}
