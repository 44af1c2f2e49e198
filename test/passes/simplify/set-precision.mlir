// RUN: gridloom-opt %s --loom-set-precision=precision=bf16 2>/dev/null | FileCheck %s --check-prefixes=CHECK,BF16
// RUN: gridloom-opt %s --loom-set-precision=precision=f16 2>/dev/null | FileCheck %s --check-prefixes=CHECK,F16
// RUN: gridloom-opt %s --loom-set-precision=precision=bf16 2>&1 >/dev/null | FileCheck %s --check-prefix=REMARK
// RUN: gridloom-opt %s --loom-set-precision=precision=tf32 2>/dev/null | FileCheck %s --check-prefix=TF32
// RUN: gridloom-opt %s --loom-set-precision=precision=f32 > %t && gridloom-opt %s | sed 's/ {loom.full_precision}//' | diff %t -
// RUN: not gridloom-opt %s --loom-set-precision=precision=fp8 2>&1 | FileCheck %s --check-prefix=UNKNOWN

// UNKNOWN: unknown precision 'fp8'; write f32, tf32, bf16 or f16

// BF16: loom.precision = "bf16"
// TF32: loom.precision = "tf32"

loom.weight @w : tensor<16x32xf32> from <"", offset = 0, bytes = 2048>
loom.weight @b : tensor<32xf32> from <"", offset = 2048, bytes = 128>
loom.weight @freq : tensor<1x32xf32> from <"", offset = 2176, bytes = 128>
loom.weight @table : tensor<50x16xf32> from <"", offset = 2304, bytes = 3200>

// Weights are converted once; a norm computes in f32 internally, and its scale is small; values
// that only the output reads are not rounded.
// CHECK-LABEL: func.func @layer(
// CHECK-SAME: %[[X:.*]]: tensor<8x16xf32>) -> tensor<8x16xf32>
// CHECK-DAG: %[[XN:.*]] = loom.convert %[[X]] : (tensor<8x16xf32>) -> tensor<8x16x[[$T:b?f16]]>
// CHECK-DAG: %[[W:.*]] = loom.get_weight @w : tensor<16x32xf32>
// CHECK-DAG: %[[WN:.*]] = loom.convert %[[W]]
// CHECK-DAG: %[[B:.*]] = loom.get_weight @b : tensor<32xf32>
// CHECK-DAG: %[[BN:.*]] = loom.convert %[[B]]
// CHECK: %[[Y:.*]] = loom.dot_general %[[XN]], %[[WN]] {{.*}} -> tensor<8x32x[[$T]]>
// CHECK: %[[BB:.*]] = loom.broadcast %[[BN]]
// CHECK: %[[Z:.*]] = loom.add %[[Y]], %[[BB]] : tensor<8x32x[[$T]]>
// CHECK: %[[G:.*]] = loom.gelu {{ *}}erf %[[Z]] : tensor<8x32x[[$T]]>
// CHECK: %[[N:.*]] = loom.layer_norm %[[G]], %[[B]] {{.*}} : (tensor<8x32x[[$T]]>, tensor<32xf32>) -> tensor<8x32x[[$T]]>
// CHECK: %[[O:.*]] = loom.dot_general %[[N]], %[[WN]] {{.*}} -> tensor<8x16xf32>
// CHECK: %[[A:.*]] = loom.abs %[[O]] : tensor<8x16xf32>
// CHECK: return %[[A]]
// TF32-LABEL: func.func @layer(
// TF32: loom.dot_general {{.*}} tf32 : {{.*}} -> tensor<8x32xf32>
func.func @layer(%x: tensor<8x16xf32>) -> tensor<8x16xf32> {
  %w = loom.get_weight @w : tensor<16x32xf32>
  %b = loom.get_weight @b : tensor<32xf32>
  %y = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0]
      : (tensor<8x16xf32>, tensor<16x32xf32>) -> tensor<8x32xf32>
  %bb = loom.broadcast %b dims = [1] : (tensor<32xf32>) -> tensor<8x32xf32>
  %z = loom.add %y, %bb : tensor<8x32xf32>
  %g = loom.gelu erf %z : tensor<8x32xf32>
  %n = loom.layer_norm %g, %b epsilon = 1.0e-5 : (tensor<8x32xf32>, tensor<32xf32>) -> tensor<8x32xf32>
  %o = loom.dot_general %n, %w batch = [] x [] contract = [1] x [1]
      : (tensor<8x32xf32>, tensor<16x32xf32>) -> tensor<8x16xf32>
  %a = loom.abs %o : tensor<8x16xf32>
  return %a : tensor<8x16xf32>
}

// Logits, and values that are ordered, leave the multiplication unrounded.
// CHECK-LABEL: func.func @logits(
// CHECK: %[[Y:.*]] = loom.dot_general {{.*}} : (tensor<8x16x[[$T]]>, tensor<16x32x[[$T]]>) -> tensor<8x32xf32>
// CHECK: loom.arg_reduce max %[[Y]]
// CHECK: return %[[Y]]
func.func @logits(%x: tensor<8x16xf32>) -> (tensor<8x32xf32>, tensor<8xi64>) {
  %w = loom.get_weight @w : tensor<16x32xf32>
  %y = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0]
      : (tensor<8x16xf32>, tensor<16x32xf32>) -> tensor<8x32xf32>
  %i = loom.arg_reduce max %y dim = 1 : (tensor<8x32xf32>) -> tensor<8xi64>
  return %y, %i : tensor<8x32xf32>, tensor<8xi64>
}

// Rotary positions: integers, their products with frequencies, and angles stay f32, even if the
// exporter multiplies them as matrices; the cosine does not.
// CHECK-LABEL: func.func @angles(
// CHECK: %[[F:.*]] = loom.get_weight @freq : tensor<1x32xf32>
// CHECK: %[[P:.*]] = loom.convert %{{.*}} : (tensor<8x1xi64>) -> tensor<8x1xf32>
// CHECK: %[[A:.*]] = loom.dot_general %[[P]], %[[F]] {{.*}} -> tensor<8x32xf32>
// CHECK: %[[C:.*]] = loom.cosine %[[A]] : tensor<8x32xf32>
// CHECK: %[[CN:.*]] = loom.convert %[[C]]
// CHECK: loom.dot_general %[[CN]],
// REMARK: convert stays f32: integers
// REMARK: dot_general stays f32: it multiplies integers
// TF32-LABEL: func.func @angles(
// TF32: loom.dot_general
// TF32-NOT: tf32
// TF32: loom.cosine
// TF32: loom.dot_general {{.*}} tf32 :
func.func @angles(%p: tensor<8x1xi64>, %x: tensor<32x4xf32>) -> tensor<8x4xf32> {
  %f = loom.get_weight @freq : tensor<1x32xf32>
  %0 = loom.convert %p : (tensor<8x1xi64>) -> tensor<8x1xf32>
  %1 = loom.dot_general %0, %f batch = [] x [] contract = [1] x [0]
      : (tensor<8x1xf32>, tensor<1x32xf32>) -> tensor<8x32xf32>
  %2 = loom.cosine %1 : tensor<8x32xf32>
  %3 = loom.dot_general %2, %x batch = [] x [] contract = [1] x [0]
      : (tensor<8x32xf32>, tensor<32x4xf32>) -> tensor<8x4xf32>
  return %3 : tensor<8x4xf32>
}

// A mask of the lowest f32 keeps the softmax over it in f32; a pool's padding becomes the narrow type's lowest.
// CHECK-LABEL: func.func @masked(
// CHECK: loom.constant dense<-3.4{{.*}}E+38> : tensor<8x8xf32>
// CHECK: loom.select {{.*}}, tensor<8x8xf32>
// CHECK: %[[S:.*]] = loom.softmax {{.*}} : tensor<8x8xf32>
// CHECK: loom.convert %[[S]] : (tensor<8x8xf32>) -> tensor<8x8x[[$T]]>
// BF16: loom.pad %{{.*}} value = -3.389{{.*}} : bf16
// F16: loom.pad %{{.*}} value = -6.550{{.*}} : f16
func.func @masked(%q: tensor<8x16xf32>, %k: tensor<16x8xf32>, %m: tensor<8x8xi1>, %v: tensor<8x4xf32>) -> tensor<8x8xf32> {
  %s = loom.dot_general %q, %k batch = [] x [] contract = [1] x [0]
      : (tensor<8x16xf32>, tensor<16x8xf32>) -> tensor<8x8xf32>
  %low = loom.constant dense<-3.40282347E+38> : tensor<8x8xf32>
  %mask = loom.select %m, %s, %low : tensor<8x8xi1>, tensor<8x8xf32>
  %a = loom.softmax %mask dim = 1 : tensor<8x8xf32>
  %y = loom.dot_general %a, %v batch = [] x [] contract = [1] x [0]
      : (tensor<8x8xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
  %p = loom.pad %y value = -3.40282347E+38 : f32 low = [0, 0] high = [0, 4] interior = [0, 0]
      : (tensor<8x4xf32>) -> tensor<8x8xf32>
  %r = loom.dot_general %p, %p batch = [] x [] contract = [1] x [1]
      : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  return %r : tensor<8x8xf32>
}

// A sum of squares and its root are f32, though the summed values are not; the product is rounded.
// CHECK-LABEL: func.func @rms(
// CHECK: %[[X:.*]] = loom.gather %{{.*}} -> tensor<8x16x[[$T]]>
// CHECK: %[[XW:.*]] = loom.convert %[[X]]
// CHECK: %[[SQ:.*]] = loom.multiply %[[XW]], %[[XW]] : tensor<8x16xf32>
// CHECK: %[[S:.*]] = loom.reduce sum %[[SQ]] {{.*}} -> tensor<8xf32>
// CHECK: %[[R:.*]] = loom.rsqrt %[[S]] : tensor<8xf32>
// CHECK: %[[P:.*]] = loom.multiply %[[XW]], %{{.*}} : tensor<8x16xf32>
// CHECK: %[[PN:.*]] = loom.convert %[[P]] : (tensor<8x16xf32>) -> tensor<8x16x[[$T]]>
// CHECK: loom.dot_general %[[PN]]
// REMARK: reduce stays f32: a sum of many elements
func.func @rms(%ids: tensor<8xi64>) -> tensor<8x32xf32> {
  %t = loom.get_weight @table : tensor<50x16xf32>
  %w = loom.get_weight @w : tensor<16x32xf32>
  %x = loom.gather %t, %ids dim = 0 : (tensor<50x16xf32>, tensor<8xi64>) -> tensor<8x16xf32>
  %sq = loom.multiply %x, %x : tensor<8x16xf32>
  %s = loom.reduce sum %sq dims = [1] : (tensor<8x16xf32>) -> tensor<8xf32>
  %r = loom.rsqrt %s : tensor<8xf32>
  %rb = loom.broadcast %r dims = [0] : (tensor<8xf32>) -> tensor<8x16xf32>
  %p = loom.multiply %x, %rb : tensor<8x16xf32>
  %y = loom.dot_general %p, %w batch = [] x [] contract = [1] x [0]
      : (tensor<8x16xf32>, tensor<16x32xf32>) -> tensor<8x32xf32>
  return %y : tensor<8x32xf32>
}

// The elements of a cache are rounded once: they are stored in their readers' type.
// CHECK-LABEL: func.func @cache(
// CHECK-SAME: %[[X:[^:]*]]: tensor<1x16xf32>, %[[PAST:[^:]*]]: tensor<8x32x[[$T]]> {loom.state = "k"}, %{{[^:]*}}: tensor<1xi64>)
// CHECK-SAME: -> (tensor<16x8xf32>, tensor<8x32x[[$T]]> {loom.state = "k"})
// CHECK: %[[K:.*]] = loom.dot_general {{.*}} : (tensor<1x16x[[$T]]>, tensor<16x32x[[$T]]>) -> tensor<1x32x[[$T]]>
// CHECK: %[[C:.*]] = loom.scatter %[[PAST]], %{{.*}}, %[[K]] dim = 0 : (tensor<8x32x[[$T]]>, tensor<1xi64>, tensor<1x32x[[$T]]>) -> tensor<8x32x[[$T]]>
// CHECK-NEXT: loom.dot_general %{{.*}}, %[[C]]
// CHECK: return %{{.*}}, %[[C]]
// TF32-LABEL: func.func @cache(
// TF32-SAME: tensor<8x32xf32> {loom.state = "k"}
func.func @cache(%x: tensor<1x16xf32>, %past: tensor<8x32xf32> {loom.state = "k"}, %at: tensor<1xi64>)
    -> (tensor<16x8xf32>, tensor<8x32xf32> {loom.state = "k"}) {
  %w = loom.get_weight @w : tensor<16x32xf32>
  %k = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0]
      : (tensor<1x16xf32>, tensor<16x32xf32>) -> tensor<1x32xf32>
  %c = loom.scatter %past, %at, %k dim = 0 : (tensor<8x32xf32>, tensor<1xi64>, tensor<1x32xf32>) -> tensor<8x32xf32>
  %s = loom.dot_general %w, %c batch = [] x [] contract = [1] x [1]
      : (tensor<16x32xf32>, tensor<8x32xf32>) -> tensor<16x8xf32>
  return %s, %c : tensor<16x8xf32>, tensor<8x32xf32>
}

// A value computed from its previous one would be rounded in every call, and one written as f32 is kept as f32;
// one such function decides for all.
// CHECK-LABEL: func.func @computed(
// CHECK-SAME: %{{[^:]*}}: tensor<8x32xf32> {loom.state = "h"}, %{{[^:]*}}: tensor<8x32xf32> {loom.state = "given"}
func.func @computed(%h: tensor<8x32xf32> {loom.state = "h"}, %given: tensor<8x32xf32> {loom.state = "given"},
                    %row: tensor<1x32xf32>, %at: tensor<1xi64>)
    -> (tensor<8x32xf32> {loom.state = "h"}, tensor<8x32xf32> {loom.state = "given"}) {
  %half = loom.constant dense<0.5> : tensor<8x32xf32>
  %next = loom.multiply %h, %half : tensor<8x32xf32>
  %c = loom.scatter %given, %at, %row dim = 0 : (tensor<8x32xf32>, tensor<1xi64>, tensor<1x32xf32>) -> tensor<8x32xf32>
  return %next, %c : tensor<8x32xf32>, tensor<8x32xf32>
}
// CHECK-LABEL: func.func @cleared()
// CHECK-SAME: -> (tensor<8x32xf32> {loom.state = "h"})
func.func @cleared() -> (tensor<8x32xf32> {loom.state = "h"}) {
  %zero = loom.constant dense<0.0> : tensor<8x32xf32>
  return %zero : tensor<8x32xf32>
}

// Not rounded: two states that are computed from each other, though neither from its own previous value, and values
// that are only moved from them. A pair that swaps, and a state computed from a past that does not come back, are
// rounded once.
// CHECK-LABEL: func.func @by_way_of(
// CHECK-SAME: tensor<4x4xf32> {loom.state = "a"}, %{{[^:]*}}: tensor<4x4xf32> {loom.state = "b"}
// CHECK-SAME: tensor<4x4x[[$T]]> {loom.state = "p"}, %{{[^:]*}}: tensor<4x4x[[$T]]> {loom.state = "q"}
// CHECK-SAME: tensor<4x4x[[$T]]> {loom.state = "r"}
func.func @by_way_of(%a: tensor<4x4xf32> {loom.state = "a"}, %b: tensor<4x4xf32> {loom.state = "b"},
                     %p: tensor<4x4xf32> {loom.state = "p"}, %q: tensor<4x4xf32> {loom.state = "q"},
                     %r: tensor<4x4xf32> {loom.state = "r"}, %x: tensor<4x4xf32>)
    -> (tensor<4x4xf32> {loom.state = "a"}, tensor<4x4xf32> {loom.state = "b"},
        tensor<4x4xf32> {loom.state = "p"}, tensor<4x4xf32> {loom.state = "q"},
        tensor<4x4xf32> {loom.state = "r"}, tensor<4x4xf32>) {
  %half = loom.constant dense<0.5> : tensor<4x4xf32>
  %t = loom.multiply %b, %half : tensor<4x4xf32>
  %an = loom.add %t, %x : tensor<4x4xf32>
  %s = loom.dot_general %p, %x batch = [] x [] contract = [1] x [0]
      : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %y = loom.dot_general %r, %q batch = [] x [] contract = [1] x [0]
      : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return %an, %a, %q, %p, %s, %y : tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>,
      tensor<4x4xf32>, tensor<4x4xf32>
}

// Values carried by a loop stay f32; values that it only reads are converted once, outside.
// CHECK-LABEL: func.func @loop(
// CHECK: %[[W:.*]] = loom.get_weight @w
// CHECK: %[[WN:.*]] = loom.convert %[[W]]
// CHECK: loom.while @body if %{{.*}} carry %{{.*}} read %[[WN]]
// CHECK-SAME: (tensor<i1>, tensor<16x16xf32>, tensor<16x32x[[$T]]>) -> tensor<16x16xf32>
// CHECK-LABEL: func.func @body(
// CHECK-SAME: tensor<16x16xf32>, %{{.*}}: tensor<16x32x[[$T]]>) -> (tensor<i1>, tensor<16x16xf32>)
func.func @loop(%c: tensor<i1>, %x: tensor<16x16xf32>) -> tensor<16x16xf32> {
  %w = loom.get_weight @w : tensor<16x32xf32>
  %r = loom.while @body if %c carry %x read %w : (tensor<i1>, tensor<16x16xf32>, tensor<16x32xf32>) -> tensor<16x16xf32>
  return %r : tensor<16x16xf32>
}
func.func @body(%x: tensor<16x16xf32>, %w: tensor<16x32xf32>) -> (tensor<i1>, tensor<16x16xf32>) attributes {loom.body} {
  %y = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0]
      : (tensor<16x16xf32>, tensor<16x32xf32>) -> tensor<16x32xf32>
  %z = loom.dot_general %y, %w batch = [] x [] contract = [1] x [1]
      : (tensor<16x32xf32>, tensor<16x32xf32>) -> tensor<16x16xf32>
  %c = loom.constant dense<false> : tensor<i1>
  return %c, %z : tensor<i1>, tensor<16x16xf32>
}

// Only f16 overflows: its exponentials stay f32 until the division.
// CHECK-LABEL: func.func @exponentials(
// BF16: loom.exp %{{.*}} : tensor<8x4xbf16>
// F16: %[[E:.*]] = loom.exp %{{.*}} : tensor<8x4xf32>
// F16: %[[D:.*]] = loom.divide {{.*}} : tensor<8x4xf32>
// F16: loom.convert %[[D]]
func.func @exponentials(%x: tensor<8x16xf32>, %w: tensor<16x4xf32>, %v: tensor<4x16xf32>) -> tensor<8x16xf32> {
  %one = loom.constant dense<1.0> : tensor<8x4xf32>
  %y = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0]
      : (tensor<8x16xf32>, tensor<16x4xf32>) -> tensor<8x4xf32>
  %z = loom.add %y, %y : tensor<8x4xf32>
  %e = loom.exp %z : tensor<8x4xf32>
  %d = loom.add %e, %one : tensor<8x4xf32>
  %q = loom.divide %z, %d : tensor<8x4xf32>
  %r = loom.dot_general %q, %v batch = [] x [] contract = [1] x [0]
      : (tensor<8x4xf32>, tensor<4x16xf32>) -> tensor<8x16xf32>
  return %r : tensor<8x16xf32>
}

// Integers, f64 and the model's own 16-bit floats do not change.
// CHECK-LABEL: func.func @others(
// CHECK: loom.add %{{.*}} : tensor<4xf64>
// CHECK: loom.add %{{.*}} : tensor<4xi32>
// CHECK: loom.add %{{.*}} : tensor<4xf16>
func.func @others(%a: tensor<4xf64>, %b: tensor<4xi32>, %c: tensor<4xf16>) -> (tensor<4xf64>, tensor<4xi32>, tensor<4xf16>) {
  %0 = loom.add %a, %a : tensor<4xf64>
  %1 = loom.add %b, %b : tensor<4xi32>
  %2 = loom.add %c, %c : tensor<4xf16>
  return %0, %1, %2 : tensor<4xf64>, tensor<4xi32>, tensor<4xf16>
}

// A value that becomes an 8-bit float is rounded once.
// CHECK-LABEL: func.func @eighths(
// CHECK: %[[Y:.*]] = loom.dot_general {{.*}} -> tensor<8x4xf32>
// CHECK: loom.convert %[[Y]] : (tensor<8x4xf32>) -> tensor<8x4xf8E4M3FN>
func.func @eighths(%x: tensor<8x16xf32>, %w: tensor<16x4xf32>) -> tensor<8x4xf8E4M3FN> {
  %y = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0]
      : (tensor<8x16xf32>, tensor<16x4xf32>) -> tensor<8x4xf32>
  %z = loom.convert %y : (tensor<8x4xf32>) -> tensor<8x4xf8E4M3FN>
  return %z : tensor<8x4xf8E4M3FN>
}

// Marked operations stay f32 with the operands that only they read, and a remark says so; the mark is removed.
// REMARK: subtract stays f32: a loss
// CHECK-LABEL: func.func @loss(
// CHECK: %[[Y:.*]] = loom.dot_general {{.*}} : (tensor<8x16x[[$T]]>, tensor<16x32x[[$T]]>) -> tensor<8x32xf32>
// CHECK: %[[S:.*]] = loom.subtract %[[Y]], %{{[^ ]*}} : tensor<8x32xf32>
// CHECK: %[[E:.*]] = loom.exp {{.*}}: tensor<8x32xf32>
// CHECK: %[[EN:.*]] = loom.convert %[[E]] : (tensor<8x32xf32>) -> tensor<8x32x[[$T]]>
// CHECK: loom.dot_general %[[EN]]
func.func @loss(%x: tensor<8x16xf32>) -> tensor<8x16xf32> {
  %w = loom.get_weight @w : tensor<16x32xf32>
  %y = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0]
      : (tensor<8x16xf32>, tensor<16x32xf32>) -> tensor<8x32xf32>
  %one = loom.constant dense<1.0> : tensor<8x32xf32>
  %s = loom.subtract %y, %one {loom.full_precision} : tensor<8x32xf32>
  %e = loom.exp %s {loom.full_precision} : tensor<8x32xf32>
  %o = loom.dot_general %e, %w batch = [] x [] contract = [1] x [1]
      : (tensor<8x32xf32>, tensor<16x32xf32>) -> tensor<8x16xf32>
  return %o : tensor<8x16xf32>
}
