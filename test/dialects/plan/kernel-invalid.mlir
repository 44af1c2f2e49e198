// RUN: gridloom-opt %s --split-input-file --verify-diagnostics

// P-IP1
// expected-error @below {{in_place names output 1; outputs are numbered from 0 and number 1}}
plan.kernel @k in_place = [#plan.in_place<output = 1, input = 0>] {
^bb0(%a: tensor<4xf32>):
  %0 = loom.abs %a : tensor<4xf32>
  loom.yield %0 : tensor<4xf32>
}

// -----

// expected-error @below {{in_place names input 2; inputs are numbered from 0 and number 1}}
plan.kernel @k in_place = [#plan.in_place<output = 0, input = 2>] {
^bb0(%a: tensor<4xf32>):
  %0 = loom.abs %a : tensor<4xf32>
  loom.yield %0 : tensor<4xf32>
}

// -----

// P-IP2
// expected-error @below {{in_place gives output 0 of 16 bytes the memory of input 0 of 8 bytes}}
plan.kernel @k in_place = [#plan.in_place<output = 0, input = 0>] {
^bb0(%a: tensor<4xf16>):
  %0 = loom.convert %a : (tensor<4xf16>) -> tensor<4xf32>
  loom.yield %0 : tensor<4xf32>
}

// -----

// P-IP3: a transpose reads elsewhere.
// expected-error @below {{in_place gives output 0 the memory of input 0, of which the body does not read exactly the elements in their places}}
plan.kernel @k in_place = [#plan.in_place<output = 0, input = 0>] {
^bb0(%a: tensor<4x4xf32>):
  %0 = loom.transpose %a [1, 0] : (tensor<4x4xf32>) -> tensor<4x4xf32>
  loom.yield %0 : tensor<4x4xf32>
}

// -----

// P-IP3: the second output, of another shape and therefore computed later, still reads what the first would have written over.
// expected-error @below {{in_place gives output 0 the memory of input 0, of which the body does not read exactly the elements in their places}}
plan.kernel @k in_place = [#plan.in_place<output = 0, input = 0>] {
^bb0(%a: tensor<4x4xf32>):
  %0 = loom.abs %a : tensor<4x4xf32>
  %1 = loom.reshape %a : (tensor<4x4xf32>) -> tensor<16xf32>
  %2 = loom.exp %1 : tensor<16xf32>
  loom.yield %0, %2 : tensor<4x4xf32>, tensor<16xf32>
}

// -----

// P-IP3: a scatter's updates are read while its copy is written.
// expected-error @below {{in_place gives output 0 the memory of input 2, of which the body does not read exactly the elements in their places}}
plan.kernel @k in_place = [#plan.in_place<output = 0, input = 2>] {
^bb0(%a: tensor<4xf32>, %i: tensor<4xi64>, %u: tensor<4xf32>):
  %0 = loom.scatter %a, %i, %u dim = 0 : (tensor<4xf32>, tensor<4xi64>, tensor<4xf32>) -> tensor<4xf32>
  loom.yield %0 : tensor<4xf32>
}

// -----

// P-IP3: a sum reads every element for each one that it writes.
// expected-error @below {{in_place gives output 0 the memory of input 0, of which the body does not read exactly the elements in their places}}
plan.kernel @k in_place = [#plan.in_place<output = 0, input = 0>] {
^bb0(%a: tensor<4x4xf32>):
  %0 = loom.softmax %a dim = 1 : tensor<4x4xf32>
  loom.yield %0 : tensor<4x4xf32>
}
