// RUN: gridloom-opt %s --split-input-file --dist-search-splits="axes=data,model" --dist-assign-stages --dist-propagate --dist-declare-storage --dist-choose-splits --dist-verify-sharded --dist-insert-reshards --dist-lower-reshards --dist-localize --canonicalize | FileCheck %s

// Layouts that people write by hand are found from costs alone, without seeds.

// Few rows: the columns of the first weight, the rows of the second, and one all_reduce, as in Megatron's MLP.
dist.mesh @mesh <["model" = 8]>
loom.weight @w1 : tensor<1024x4096xf32> from <"", offset = 0, bytes = 16777216>
loom.weight @w2 : tensor<4096x1024xf32> from <"", offset = 0, bytes = 16777216>
// CHECK-LABEL: func.func @few_rows
// CHECK-NOT: = dist.
// CHECK: loom.dot_general {{.*}} (tensor<4x1024xf32>, tensor<1024x512xf32>) -> tensor<4x512xf32>
// CHECK: loom.gelu erf {{.*}} : tensor<4x512xf32>
// CHECK: %[[P:.*]] = loom.dot_general {{.*}} (tensor<4x512xf32>, tensor<512x1024xf32>) -> tensor<4x1024xf32>
// CHECK: dist.all_reduce %[[P]] over ["model"] sum
// CHECK-NOT: = dist.
// CHECK: return
func.func @few_rows(%x: tensor<4x1024xf32> {loom.name = "x"}) -> (tensor<4x1024xf32> {loom.name = "y", dist.sharding = #dist.sharding<@mesh, [{}, {}]>, dist.origin = #dist.origin<"user">}) {
  %w1 = loom.get_weight @w1 : tensor<1024x4096xf32>
  %w2 = loom.get_weight @w2 : tensor<4096x1024xf32>
  %0 = loom.dot_general %x, %w1 batch = [] x [] contract = [1] x [0] : (tensor<4x1024xf32>, tensor<1024x4096xf32>) -> tensor<4x4096xf32>
  %1 = loom.gelu erf %0 : tensor<4x4096xf32>
  %2 = loom.dot_general %1, %w2 batch = [] x [] contract = [1] x [0] : (tensor<4x4096xf32>, tensor<4096x1024xf32>) -> tensor<4x1024xf32>
  %3 = loom.add %2, %x : tensor<4x1024xf32>
  return %3 : tensor<4x1024xf32>
}

// -----

// Many rows are split over all devices: no communication.
dist.mesh @mesh <["data" = 2, "model" = 4]>
loom.weight @w1 : tensor<1024x4096xf32> from <"", offset = 0, bytes = 16777216>
loom.weight @w2 : tensor<4096x1024xf32> from <"", offset = 0, bytes = 16777216>
// CHECK-LABEL: func.func @many_rows
// CHECK-SAME: tensor<256x1024xf32>
// CHECK-NOT: = dist.
// CHECK: return {{.*}} : tensor<256x1024xf32>
func.func @many_rows(%x: tensor<2048x1024xf32> {loom.name = "x"}) -> (tensor<2048x1024xf32> {loom.name = "y"}) {
  %w1 = loom.get_weight @w1 : tensor<1024x4096xf32>
  %w2 = loom.get_weight @w2 : tensor<4096x1024xf32>
  %0 = loom.dot_general %x, %w1 batch = [] x [] contract = [1] x [0] : (tensor<2048x1024xf32>, tensor<1024x4096xf32>) -> tensor<2048x4096xf32>
  %1 = loom.gelu erf %0 : tensor<2048x4096xf32>
  %2 = loom.dot_general %1, %w2 batch = [] x [] contract = [1] x [0] : (tensor<2048x4096xf32>, tensor<4096x1024xf32>) -> tensor<2048x1024xf32>
  return %2 : tensor<2048x1024xf32>
}

// -----

// Attention of one short sequence: by heads, one all_reduce.
dist.mesh @mesh <["model" = 4]>
loom.weight @q : tensor<1024x1024xf32> from <"", offset = 0, bytes = 4194304>
loom.weight @k : tensor<1024x1024xf32> from <"", offset = 0, bytes = 4194304>
loom.weight @v : tensor<1024x1024xf32> from <"", offset = 0, bytes = 4194304>
loom.weight @o : tensor<1024x1024xf32> from <"", offset = 0, bytes = 4194304>
// CHECK-LABEL: func.func @attention
// CHECK-NOT: = dist.
// CHECK: loom.softmax {{.*}} : tensor<1x4x3x3xf32>
// CHECK-NOT: = dist.
// CHECK: %[[O:.*]] = loom.dot_general {{.*}} (tensor<1x3x256xf32>, tensor<256x1024xf32>) -> tensor<1x3x1024xf32>
// CHECK-NEXT: dist.all_reduce %[[O]] over ["model"] sum
// CHECK-NOT: = dist.
// CHECK: return
func.func @attention(%x: tensor<1x3x1024xf32> {loom.name = "x"}) -> (tensor<1x3x1024xf32> {loom.name = "y", dist.sharding = #dist.sharding<@mesh, [{}, {}, {}]>, dist.origin = #dist.origin<"user">}) {
  %q = loom.get_weight @q : tensor<1024x1024xf32>
  %k = loom.get_weight @k : tensor<1024x1024xf32>
  %v = loom.get_weight @v : tensor<1024x1024xf32>
  %o = loom.get_weight @o : tensor<1024x1024xf32>
  %0 = loom.dot_general %x, %q batch = [] x [] contract = [2] x [0] : (tensor<1x3x1024xf32>, tensor<1024x1024xf32>) -> tensor<1x3x1024xf32>
  %1 = loom.dot_general %x, %k batch = [] x [] contract = [2] x [0] : (tensor<1x3x1024xf32>, tensor<1024x1024xf32>) -> tensor<1x3x1024xf32>
  %2 = loom.dot_general %x, %v batch = [] x [] contract = [2] x [0] : (tensor<1x3x1024xf32>, tensor<1024x1024xf32>) -> tensor<1x3x1024xf32>
  %3 = loom.reshape %0 : (tensor<1x3x1024xf32>) -> tensor<1x3x16x64xf32>
  %4 = loom.reshape %1 : (tensor<1x3x1024xf32>) -> tensor<1x3x16x64xf32>
  %5 = loom.reshape %2 : (tensor<1x3x1024xf32>) -> tensor<1x3x16x64xf32>
  %6 = loom.dot_general %3, %4 batch = [0, 2] x [0, 2] contract = [3] x [3] : (tensor<1x3x16x64xf32>, tensor<1x3x16x64xf32>) -> tensor<1x16x3x3xf32>
  %7 = loom.softmax %6 dim = 3 : tensor<1x16x3x3xf32>
  %8 = loom.dot_general %7, %5 batch = [0, 1] x [0, 2] contract = [3] x [1] : (tensor<1x16x3x3xf32>, tensor<1x3x16x64xf32>) -> tensor<1x16x3x64xf32>
  %9 = loom.transpose %8 [0, 2, 1, 3] : (tensor<1x16x3x64xf32>) -> tensor<1x3x16x64xf32>
  %10 = loom.reshape %9 : (tensor<1x3x16x64xf32>) -> tensor<1x3x1024xf32>
  %11 = loom.dot_general %10, %o batch = [] x [] contract = [2] x [0] : (tensor<1x3x1024xf32>, tensor<1024x1024xf32>) -> tensor<1x3x1024xf32>
  return %11 : tensor<1x3x1024xf32>
}

// -----

// Pinned shardings stay: the weight by rows, so a reduction follows it.
dist.mesh @mesh <["model" = 4]>
loom.weight @w : tensor<1024x1024xf32> from <"", offset = 0, bytes = 4194304>
// CHECK-LABEL: func.func @given
// CHECK: %[[P:.*]] = loom.dot_general {{.*}} (tensor<3x256xf32>, tensor<256x1024xf32>) -> tensor<3x1024xf32>
// CHECK-NEXT: dist.all_reduce %[[P]] over ["model"] sum
func.func @given(%x: tensor<3x1024xf32> {loom.name = "x"}) -> (tensor<3x1024xf32> {loom.name = "y", dist.sharding = #dist.sharding<@mesh, [{}, {}]>, dist.origin = #dist.origin<"user">}) {
  %w = loom.get_weight @w {dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{"model"}, {}]>]} : tensor<1024x1024xf32>
  %0 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] : (tensor<3x1024xf32>, tensor<1024x1024xf32>) -> tensor<3x1024xf32>
  return %0 : tensor<3x1024xf32>
}

// -----

// A state is kept as it is read, in every function.
dist.mesh @mesh <["model" = 4]>
// CHECK-LABEL: func.func @first
// CHECK-SAME: %{{.*}}: tensor<4x1x256x64xf32> {{.*}}loom.state = "s"
// CHECK-LABEL: func.func @second
// CHECK-SAME: %{{.*}}: tensor<4x1x256x64xf32> {{.*}}loom.state = "s"
func.func @first(%s: tensor<4x4x256x64xf32> {loom.name = "s", loom.state = "s"}, %x: tensor<4x4x8x64xf32> {loom.name = "x"}) -> (tensor<4x4x8x256xf32> {loom.name = "y"}, tensor<4x4x256x64xf32> {loom.name = "t", loom.state = "s"}) {
  %0 = loom.dot_general %x, %s batch = [0, 1] x [0, 1] contract = [3] x [3] : (tensor<4x4x8x64xf32>, tensor<4x4x256x64xf32>) -> tensor<4x4x8x256xf32>
  %1 = loom.exp %s : tensor<4x4x256x64xf32>
  return %0, %1 : tensor<4x4x8x256xf32>, tensor<4x4x256x64xf32>
}
func.func @second(%s: tensor<4x4x256x64xf32> {loom.name = "s", loom.state = "s", dist.sharding = #dist.sharding<@mesh, [{}, {"model"}, {}, {}]>, dist.origin = #dist.origin<"user">}) -> (tensor<4x4x256x64xf32> {loom.name = "t", loom.state = "s"}) {
  %0 = loom.exp %s : tensor<4x4x256x64xf32>
  return %0 : tensor<4x4x256x64xf32>
}

// -----

// An axis that would only cost time is not used.
dist.mesh @mesh <["model" = 2]>
// CHECK-LABEL: func.func @tiny
// CHECK-SAME: tensor<4xf32>
func.func @tiny(%x: tensor<4xf32> {loom.name = "x", dist.sharding = #dist.sharding<@mesh, [{}]>, dist.origin = #dist.origin<"user">}) -> (tensor<4xf32> {loom.name = "y", dist.sharding = #dist.sharding<@mesh, [{}]>, dist.origin = #dist.origin<"user">}) {
  %0 = loom.exp %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// A lookup reads only its rows of a table: splitting the table's rows does not pay when one is read.
dist.mesh @mesh <["model" = 4]>
loom.weight @t : tensor<100000x1024xf32> from <"", offset = 0, bytes = 409600000>
// CHECK-LABEL: func.func @lookup
// CHECK-NOT: = dist.
// CHECK: loom.gather {{.*}} (tensor<100000x1024xf32>, tensor<1xi64>)
// CHECK-NOT: = dist.
// CHECK: return
func.func @lookup(%ids: tensor<1xi64> {loom.name = "ids"}) -> (tensor<1x1024xf32> {loom.name = "y", dist.sharding = #dist.sharding<@mesh, [{}, {}]>, dist.origin = #dist.origin<"user">}) {
  %t = loom.get_weight @t : tensor<100000x1024xf32>
  %0 = loom.gather %t, %ids dim = 0 : (tensor<100000x1024xf32>, tensor<1xi64>) -> tensor<1x1024xf32>
  return %0 : tensor<1x1024xf32>
}

// -----

// Each device scatters into its own rows, which takes no communication.
dist.mesh @mesh <["model" = 4]>
// CHECK-LABEL: func.func @scatter
// CHECK-NOT: = dist.{{all|reduce}}
// CHECK: loom.scatter {{.*}} -> tensor<16x1024xf32>
// CHECK-NOT: = dist.{{all|reduce}}
// CHECK: return
func.func @scatter(%x: tensor<64x1024xf32> {loom.name = "x"}, %i: tensor<2xi64> {loom.name = "i"}, %u: tensor<2x1024xf32> {loom.name = "u"}) -> (tensor<64x1024xf32> {loom.name = "y", dist.sharding = #dist.sharding<@mesh, [{"model"}, {}]>, dist.origin = #dist.origin<"user">}) {
  %0 = loom.scatter %x, %i, %u dim = 0 : (tensor<64x1024xf32>, tensor<2xi64>, tensor<2x1024xf32>) -> tensor<64x1024xf32>
  return %0 : tensor<64x1024xf32>
}

// -----

// Windows that stay within the parts of a picture need no elements of the neighbours, so parts cost
// nothing, however little work there is.
dist.mesh @mesh <["model" = 2]>
// CHECK-LABEL: func.func @pool
// CHECK-NOT: = dist.
// CHECK: loom.reduce_window max {{.*}} -> tensor<1x1x16x32xf32>
// CHECK-NOT: = dist.
// CHECK: return
func.func @pool(%x: tensor<1x1x64x64xf32> {loom.name = "x"}) -> (tensor<1x1x32x32xf32> {loom.name = "y", dist.sharding = #dist.sharding<@mesh, [{}, {}, {"model"}, {}]>, dist.origin = #dist.origin<"user">}) {
  %0 = loom.reduce_window max %x dims = [2, 3] sizes = [2, 2] strides = [2, 2] low = [0, 0] high = [0, 0] dilations = [1, 1] : (tensor<1x1x64x64xf32>) -> tensor<1x1x32x32xf32>
  return %0 : tensor<1x1x32x32xf32>
}
