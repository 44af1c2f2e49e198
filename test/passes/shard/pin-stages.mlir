// RUN: printf 'strategy: 1\nmesh: pipe=2\nstage-axis: pipe\nmicrobatches: 4\nstages:\n  "/l.0/*": 0\n  "/l.1/*": 1\n  "/l.0/act": 1\n' > %t.strategy
// RUN: gridloom-opt %s --dist-pin-stages=file=%t.strategy | FileCheck %s
// RUN: printf 'strategy: 1\nmesh: pipe=2\nstage-axis: pipe\nstages:\n  "/l.0/ac": 0\n  "/l.*/act": 0\n  "/l.1/ac*": 1\nspecialisations:\n  maim:\n' > %t.bad.strategy
// RUN: not gridloom-opt %s --dist-pin-stages=file=%t.bad.strategy 2>&1 | FileCheck %s --check-prefix=BAD
// RUN: printf 'strategy: 1\nmesh: pipe=2\nstage-axis: pipe\nstages:\n  "/head": 0\n' > %t.given.strategy
// RUN: not gridloom-opt %s --dist-pin-stages=file=%t.given.strategy 2>&1 | FileCheck %s --check-prefix=GIVEN
// RUN: not gridloom-opt %s --dist-pin-stages 2>&1 | FileCheck %s --check-prefix=NONE

// BAD: error: the strategy '{{.*}}.bad.strategy' line 5: unknown node '/l.0/ac'; did you mean '/l.0/act'?
// BAD: note: line 7: '/l.1/ac*' says 1 of '/l.1/act', and '/l.*/act' (line 6) says 0; make them agree, or add a line for '/l.1/act' alone
// BAD: note: line 9: unknown specialisation 'maim'; did you mean 'main'?
// GIVEN: error: the strategy '{{.*}}.given.strategy' line 5: '/head' is given stage 0, the model's annotations give it 1; keep one of them
// NONE: error: cannot read the strategy ''

// CHECK: dist.mesh @mesh <["pipe" = 2, "micro" = 4]>
dist.mesh @mesh <["pipe" = 2]>
func.func @main(%x: tensor<8xf32> {loom.name = "x"}) -> (tensor<8xf32> {loom.name = "y"}) attributes {loom.entry = "main"} {
  // Constants have no stage of their own.
  // CHECK: loom.constant dense<2.000000e+00> : tensor<8xf32>{{$}}
  %c = loom.constant dense<2.0> : tensor<8xf32> loc("/l.0/mul")
  // CHECK: loom.multiply {{.*}} {dist.stage = 0 : i64}
  %0 = loom.multiply %x, %c : tensor<8xf32> loc("/l.0/mul")
  // The exact name is an exception to the pattern.
  // CHECK: loom.tanh {{.*}} {dist.stage = 1 : i64}
  %1 = loom.tanh %0 : tensor<8xf32> loc("/l.0/act")
  // CHECK: loom.tanh {{.*}} {dist.stage = 1 : i64}
  %2 = loom.tanh %1 : tensor<8xf32> loc("/l.1/act")
  // CHECK: loom.negate {{.*}} {dist.stage = 1 : i64}
  %3 = loom.negate %2 {dist.stage = 1 : i64} : tensor<8xf32> loc("/head")
  return %3 : tensor<8xf32>
}
