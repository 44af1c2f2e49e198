// RUN: gridloom-opt %s --dist-insert-mesh='axes=data=2,model=4' | FileCheck %s
// RUN: not gridloom-opt %s --dist-insert-mesh='axes=data=2,micro=2' 2>&1 | FileCheck %s --check-prefix=MICRO
// RUN: not gridloom-opt %s --dist-insert-mesh='axes=data=two' 2>&1 | FileCheck %s --check-prefix=SIZE
// RUN: not gridloom-opt %s --dist-insert-mesh='axes=data=0' 2>&1 | FileCheck %s --check-prefix=ZERO
// RUN: not gridloom-opt %s --dist-insert-mesh='axes=data=2048,model=2048' 2>&1 | FileCheck %s --check-prefix=DEVICES
// RUN: gridloom-opt %s --dist-insert-mesh='axes=data=2' | not gridloom-opt --dist-insert-mesh='axes=data=2' 2>&1 | FileCheck %s --check-prefix=TWICE

// CHECK: dist.mesh @mesh <["data" = 2, "model" = 4]>
// MICRO: error: mesh axis 'micro' is reserved for micro-batches; give the axis another name
// SIZE: error: cannot read mesh axis 'data=two'; write name=size with a size of at least 1
// ZERO: error: cannot read mesh axis 'data=0'
// DEVICES: error: 'dist.mesh' op has more than 1048576 devices
// TWICE: error: the program has a mesh already
module {
}
